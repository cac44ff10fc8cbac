"""Operators, and Cells that hold them, are pickled and copied by name, also after calls in both modes."""

from __future__ import annotations

import copy
import pickle

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from bridge import aten
from bridge.operator import Operator

X = ms.Tensor([[1.0, -2.0]], ms.float32)


class Activated(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.operator = aten.leaky_relu

    def construct(self, x):
        return self.operator(x, 0.5)


@pytest.fixture(params=[ms.PYNATIVE_MODE, ms.GRAPH_MODE], ids=["pynative", "graph"])
def called(request: pytest.FixtureRequest) -> Activated:
    ms.set_context(mode=request.param)
    cell = Activated()
    cell(X)
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return cell


def test_a_called_operator_is_pickled(called: Activated) -> None:
    restored = pickle.loads(pickle.dumps(called.operator))
    np.testing.assert_array_equal(restored(X, 0.5).asnumpy(), called(X).asnumpy())


@pytest.mark.parametrize("operator", [aten.add, aten.add.Tensor, aten.sort.on_cpu, aten.sort.stable])
def test_what_an_operator_is_comes_back(operator: Operator) -> None:
    restored = pickle.loads(pickle.dumps(operator))
    assert repr(restored) == repr(operator)
    assert (restored.names, restored.wants_cpu) == (operator.names, operator.wants_cpu)


def test_a_cell_is_copied_with_the_operator_that_it_holds(called: Activated) -> None:
    copied = copy.deepcopy(called)
    assert copied.operator is called.operator
    np.testing.assert_array_equal(copied(X).asnumpy(), called(X).asnumpy())


def test_a_kernel_that_is_not_declared_here_is_asked_for() -> None:
    pickled = pickle.dumps(Operator("elsewhere::f", ("elsewhere::f",)))
    with pytest.raises(LookupError, match=r"elsewhere::f is not declared in this process: call bridge\.kernels"):
        pickle.loads(pickled)(X)


def test_the_class_and_its_instances_have_their_own_docstrings() -> None:
    assert "Raises:" in (Operator.__doc__ or "")
    documented = aten.mm.__doc__ or ""
    assert "\nmm(Tensor self, Tensor mat2) -> Tensor\n    PyNative and graph mode; CPU" in documented
    assert "generated/torch.mm.html" in documented and "Raises:" in documented
