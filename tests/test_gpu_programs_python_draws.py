"""Numbers that Python draws in a graph on a GPU: refused, because the graph runs later than Python goes on."""

import mindspore as ms
import pytest

import bridge
from test_programs_data_sizes import Scaled
from test_programs_python_draws import ARRAYS, graph_of, left_out

pytestmark = pytest.mark.gpu


def test_a_graph_on_a_gpu_does_not_draw_in_python() -> None:
    with pytest.raises(
        RuntimeError, match=r"(?s)random\.random draws in Python, and MindSpore .* later.*if drawn\(\) < 0\.4"
    ):
        graph_of(bridge.cell(Scaled(left_out)))(ms.Tensor(ARRAYS[0]))
