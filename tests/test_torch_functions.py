"""PyTorch's functions on MindSpore's tensors (bridge.torch) have PyTorch's results, gradients and errors."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import re
import subprocess
import sys
import types
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
import torch.nn.functional as torch_functional
from mindspore import nn

import bridge
from bridge import aten
from bridge import torch as T
from bridge.op import devices
from bridge.torch.elsewhere import Elsewhere
from bridge.torch.nn import functional as F
from shared import data

X = data(2, 3, 8, 8)
LABELS = np.array([1, 0])


# Each calls its function by the names of a namespace, PyTorch's or the bridge's.
def binary_operator(t: Any, f: Any, x: Any) -> Any:
    return t.add(x, 2, alpha=3)


def number_first(t: Any, f: Any, x: Any) -> Any:
    return t.pow(2, x)


def numpy_names(t: Any, f: Any, x: Any) -> Any:
    return t.sum(x, axis=1, keepdims=True)


def names_of_arguments(t: Any, f: Any, x: Any) -> Any:
    return t.softmax(input=x, dim=1)


def named_results(t: Any, f: Any, x: Any) -> Any:
    return t.max(x, 1)[0]


def einsum(t: Any, f: Any, x: Any) -> Any:
    return t.einsum("abcd,aecd->be", x, x)


def several_results(t: Any, f: Any, x: Any) -> Any:
    return t.split(x, 3, dim=2)[1]


def linear_algebra(t: Any, f: Any, x: Any) -> Any:
    return t.linalg.norm(x, dim=(2, 3))


def fourier(t: Any, f: Any, x: Any) -> Any:
    return t.abs(t.fft.rfft(x, n=5))


def special(t: Any, f: Any, x: Any) -> Any:
    return t.special.expit(x)


def one_of_nine_overloads(t: Any, f: Any, x: Any) -> Any:
    return f.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def shapes_that_are_equal(t: Any, f: Any, x: Any) -> Any:
    return f.mse_loss(x, x * 2)


def loss_of_labels(t: Any, f: Any, x: Any) -> Any:
    return f.cross_entropy(t.sum(x, dim=(2, 3)), t.tensor([1, 0]), label_smoothing=0.1)


def pooling(t: Any, f: Any, x: Any) -> Any:
    return f.max_pool2d(x, 2, stride=1)


def several_calls(t: Any, f: Any, x: Any) -> Any:
    return f.normalize(x, dim=1)


def calls_that_draw(t: Any, f: Any, x: Any) -> Any:
    return f.gumbel_softmax(f.dropout(x, 0.5), dim=1)


def an_argument_itself(t: Any, f: Any, x: Any) -> Any:
    return t.atleast_2d(x)


def made_and_used(t: Any, f: Any, x: Any) -> Any:
    return x * t.linspace(0, 1, 8, dtype=t.float32) + t.zeros(8)


FUNCTIONS = [
    binary_operator, number_first, numpy_names, names_of_arguments, named_results, einsum, several_results,
    linear_algebra, fourier, special, one_of_nine_overloads, shapes_that_are_equal, pooling, several_calls,
    calls_that_draw, an_argument_itself, made_and_used,
]  # fmt: skip


def place() -> str:
    return devices.torch_name(devices.target())


def in_pytorch(x: np.ndarray) -> torch.Tensor:
    """The array on MindSpore's device."""
    return torch.from_numpy(x).to(place())


def on_pytorch(function: Callable[..., Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """The result of one of the above in PyTorch, and its gradient."""
    T.manual_seed(0)
    given = in_pytorch(X).requires_grad_()
    with torch.device(place()):
        result = function(torch, torch_functional, given)
    (gradient,) = torch.autograd.grad(result, given, torch.ones_like(result))
    return result, gradient


def same(found: ms.Tensor, wanted: torch.Tensor) -> None:
    np.testing.assert_array_equal(found.asnumpy(), wanted.detach().cpu().numpy(), strict=True)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_results_and_gradients(mode: Callable[..., Any], function: Callable[..., Any]) -> None:
    result, gradient = on_pytorch(function)

    def call(x: ms.Tensor) -> Any:
        return function(T, F, x)

    call = mode(call)
    T.manual_seed(0)
    same(call(ms.Tensor(X)), result)
    T.manual_seed(0)
    same(ms.grad(call)(ms.Tensor(X)), gradient)


def test_labels_in_pynative() -> None:
    result, gradient = on_pytorch(loss_of_labels)
    same(loss_of_labels(T, F, ms.Tensor(X)), result)
    same(ms.grad(lambda x: loss_of_labels(T, F, x))(ms.Tensor(X)), gradient)


class Block(nn.Cell):
    """What a ported `forward` looks like."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ReLU()
        self.weight = ms.Parameter(ms.Tensor(data(6, 192, seed=1)))

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        y = T.view(self.own(x), T.size(x, 0), -1)
        y = F.layer_norm(F.linear(y, self.weight), (T.size(self.weight, 0),))
        return T.to(T.masked_fill(y, y < 0, 0.5), T.float64)


@pytest.mark.parametrize("graph", [False, True], ids=["PyNative", "graph"])
def test_in_a_cell(graph: bool) -> None:
    net = Block()
    if graph:
        net.construct = ms.jit(net.construct)  # type: ignore[method-assign]
    y = torch_functional.linear(in_pytorch(X).relu().view(2, -1), in_pytorch(data(6, 192, seed=1)))
    y = torch_functional.layer_norm(y, (6,))
    same(net(ms.Tensor(X)), y.masked_fill(y < 0, 0.5).double())


@pytest.mark.parametrize(
    "name", ["std", "var", "expand_as", "type_as", "contiguous", "new_zeros", "view", "repeat", "size"]
)
def test_methods_of_tensors(name: str) -> None:
    x = data(4, 6)
    arguments: dict[str, tuple[Any, ...]] = {
        "expand_as": (x,), "type_as": (x.astype(np.float64),), "new_zeros": ((2, 3),), "view": (2, -1),
        "repeat": (2, 1),
    }  # fmt: skip
    given = arguments.get(name, ())
    wanted = getattr(in_pytorch(x), name)(*(in_pytorch(v) if isinstance(v, np.ndarray) else v for v in given))
    found = getattr(T, name)(ms.Tensor(x), *(ms.Tensor(v) if isinstance(v, np.ndarray) else v for v in given))
    if name == "size":
        assert found == tuple(wanted)
    else:
        same(found, wanted)


def test_names_of_results() -> None:
    x = ms.Tensor(X)
    values, _ = T.max(x, dim=1)
    same(T.max(x, dim=1).values, in_pytorch(values.asnumpy()))
    same(T.sort(x, dim=0).indices, in_pytorch(X).sort(dim=0).indices)
    assert T.max(x).shape == ()


def test_python_values() -> None:
    x = ms.Tensor(X)
    assert T.is_tensor(x) and not T.is_tensor(1)
    assert T.numel(x) == X.size and T.size(x, 1) == 3 and T.size(x) == X.shape
    assert T.allclose(x, x) and T.equal(x, x) is True
    assert T.result_type(x, 1.0) == ms.float32 and T.promote_types(T.int64, T.float16) == ms.float16
    assert T.finfo(T.float16).max == 65504


def test_shapes_that_the_data_decides(mode: Callable[..., Any]) -> None:
    def call(x: ms.Tensor) -> Any:
        return T.nonzero(x, as_tuple=False), T.unique(x, return_counts=True)

    x = np.array([1.0, 0.0, 1.0], np.float32)
    where, (values, counts) = mode(call)(ms.Tensor(x))
    wanted, wanted_counts = torch.unique(in_pytorch(x), return_counts=True)
    same(where, torch.nonzero(in_pytorch(x)))
    same(values, wanted)
    same(counts, wanted_counts)


def test_shapes_in_a_graph_are_constants() -> None:
    @ms.jit
    def halves(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return T.narrow(x, 0, 0, T.size(x, 0) // T.dim(x))

    assert halves(ms.Tensor(X)).shape == (0, 3, 8, 8)


def test_unknown_shapes_in_a_graph() -> None:
    class Net(nn.Cell):
        def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return T.tanh(T.flatten(x, 1))

    net = Net()
    net.construct = ms.jit(net.construct)  # type: ignore[method-assign]
    net.set_inputs(ms.Tensor(shape=[None, 3, 8, 8], dtype=ms.float32))
    for rows in (2, 1):
        same(net(ms.Tensor(X[:rows])), in_pytorch(X[:rows]).flatten(1).tanh())


def test_unknown_shapes_of_python() -> None:
    class Net(nn.Cell):
        def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return F.normalize(F.relu(x), dim=1)

    net = Net()
    net.construct = ms.jit(net.construct)  # type: ignore[method-assign]
    net.set_inputs(ms.Tensor(shape=[None, 3, 8, 8], dtype=ms.float32))
    for rows in (2, 1):
        same(net(ms.Tensor(X[:rows])), torch_functional.normalize(in_pytorch(X[:rows]).relu(), dim=1))


def test_inside_a_fused_program(mode: Callable[..., Any]) -> None:
    def block(x: Any) -> Any:
        return F.softmax(T.to(T.add(x, 1), ms.float64), dim=1), T.max(x, 1).values

    fused = bridge.fuse(block)

    def call(x: ms.Tensor) -> Any:
        return fused(x)

    found = mode(call)(ms.Tensor(X))
    same(found[0], torch_functional.softmax((in_pytorch(X) + 1).double(), dim=1))
    same(found[1], in_pytorch(X).max(1).values)


@pytest.mark.parametrize("dtype", [ms.float64, torch.float64, T.double], ids=["MindSpore's", "PyTorch's", "T's"])
def test_dtypes(dtype: Any) -> None:
    assert T.zeros(2, 3, dtype=dtype).dtype == ms.float64
    assert T.to(ms.Tensor(X), dtype).dtype == ms.float64
    assert T.tensor([1, 2], dtype=dtype).dtype == ms.float64
    assert F.softmax(ms.Tensor(X), dim=1, dtype=dtype).dtype == ms.float64


def test_default_dtype() -> None:
    assert T.get_default_dtype() == ms.float32 and T.sqrt(ms.Tensor([4])).dtype == ms.float32
    T.set_default_dtype(T.float64)
    try:
        assert T.zeros(2).dtype == T.sqrt(ms.Tensor([4])).dtype == aten.sqrt(ms.Tensor([4])).dtype == ms.float64
    finally:
        T.set_default_dtype(ms.float32)
    assert T.zeros(2).dtype == T.sqrt(ms.Tensor([4])).dtype == ms.float32
    with pytest.raises(TypeError, match="only floating-point types are supported"):
        T.set_default_dtype(ms.int64)


def test_random_numbers() -> None:
    T.manual_seed(3)
    found = T.randn(2, 3), T.normal(0.0, 1.0, (4,)), T.randperm(5)
    torch.manual_seed(3)
    with torch.device(place()):
        wanted = torch.randn(2, 3), torch.normal(0.0, 1.0, (4,), device=place()), torch.randperm(5)
    for one, other in zip(found, wanted, strict=True):
        same(one, other)
    drawn = T.rand(3, generator=torch.Generator(place()).manual_seed(5))
    same(drawn, torch.rand(3, generator=torch.Generator(place()).manual_seed(5), device=place()))


def test_a_number_in_a_tensor_keeps_its_gradient(mode: Callable[..., Any]) -> None:
    x, low = torch.tensor([-1.0, 2.0]), torch.tensor(0.5, requires_grad=True)
    (wanted,) = torch.autograd.grad(torch.clamp_min(x, low).sum(), low)

    def call(x: Any, low: Any) -> Any:
        return T.clamp_min(x, low)

    found = ms.grad(mode(call), 1)(ms.Tensor(x.numpy()), ms.Tensor(0.5))
    assert float(found) == float(wanted) == 1.0


def test_in_place_gives_a_new_tensor(mode: Callable[..., Any]) -> None:
    """By keyword, by position, and where several calls come of it."""

    def call(x: Any) -> Any:
        return F.leaky_relu(F.relu(x, inplace=True) - 1, 0.1, True) + F.dropout(x, 0.0, True, True)

    x = ms.Tensor(X)
    with pytest.warns(UserWarning, match=r"relu\(inplace=True\) returns a new tensor here"):
        found = mode(call)(x)
    wanted = torch_functional.leaky_relu(torch.relu(in_pytorch(X)) - 1, 0.1) + in_pytorch(X)
    same(found, wanted)
    assert np.array_equal(x.asnumpy(), X)


ERRORS = [
    lambda t, f, x: t.add(x),
    lambda t, f, x: t.add(x, "2"),
    lambda t, f, x: t.cat([x, x[0]], 0),
    lambda t, f, x: t.view(x, 5, -1) if t is T else x.view(5, -1),
    lambda t, f, x: f.interpolate(x, scale_factor=2, mode="none"),
    lambda t, f, x: f.cross_entropy(x, t.tensor([1])),
    lambda t, f, x: f.relu(3),
    lambda t, f, x: f.relu(x, none=3),
    lambda t, f, x: t.linalg.inv(x[:, :, :5]),
    lambda t, f, x: t.einsum("ab,cd", x, x),
]
if devices.target() == "CPU":  # on a GPU the error comes when the call has run
    ERRORS.append(lambda t, f, x: t.softmax(x, 7))


@pytest.mark.parametrize("call", ERRORS, ids=range(len(ERRORS)))
def test_errors_are_pytorchs(call: Callable[..., Any]) -> None:
    with pytest.raises(Exception) as wanted, torch.device(place()):  # whichever PyTorch raises
        call(torch, torch_functional, in_pytorch(X))
    with pytest.raises(wanted.type) as found:
        call(T, F, ms.Tensor(X))
    assert found.type is wanted.type
    assert str(found.value).splitlines()[0] == str(wanted.value).splitlines()[0]
    assert any(str(entry.path) == __file__ for entry in found.traceback)


REFUSED = [
    pytest.param(lambda x: T.zeros(2, requires_grad=True), ValueError, "mindspore.grad names", id="requires_grad"),
    pytest.param(lambda x: T.zeros(2, device="meta"), ValueError, "MindSpore's device", id="device"),
    pytest.param(lambda x: T.to(x, "meta", T.float64), ValueError, "MindSpore's device", id="device by position"),
    pytest.param(lambda x: T.zeros(2, layout=torch.sparse_coo), ValueError, "strided", id="layout"),
    pytest.param(lambda x: T.zeros(2, pin_memory=True), ValueError, "pinned memory", id="pinned memory"),
    pytest.param(lambda x: T.add(x, x, out=x), TypeError, "MindSpore allocates the results", id="out"),
    pytest.param(
        lambda x: F.embedding(T.arange(2), x, max_norm=1.0), ValueError, "would change its argument", id="max_norm"
    ),
    pytest.param(lambda x: T.no_grad().__enter__(), NotImplementedError, "stop_gradient", id="no_grad"),
    pytest.param(lambda x: T.cuda.is_available(), NotImplementedError, "mindspore.set_device", id="cuda"),
    pytest.param(lambda x: T.cuda.amp.GradScaler(), NotImplementedError, "scales losses", id="amp"),
    pytest.param(lambda x: T.utils.checkpoint.checkpoint(x), NotImplementedError, "recompute", id="checkpoint"),
    pytest.param(lambda x: T.utils.data.DataLoader(x), NotImplementedError, "mindspore.dataset", id="DataLoader"),
    pytest.param(lambda x: T.distributions.Normal(0, 1), NotImplementedError, r"bridge\.fuse", id="distributions"),
    pytest.param(lambda x: T.FloatTensor([1]), NotImplementedError, "write tensor", id="FloatTensor"),
    pytest.param(
        lambda x: setattr(T.backends.cudnn, "benchmark", True),
        NotImplementedError,
        "import torch for it",
        id="a setting",
    ),
    pytest.param(
        lambda x: types.new_class("Own", (T.autograd.Function,)), NotImplementedError, "value_and_grad", id="a base"
    ),
    pytest.param(lambda x: T.save(x, "x"), NotImplementedError, "mindspore.save_checkpoint", id="save"),
    pytest.param(lambda x: T.cuda.manual_seed_all(0), NotImplementedError, "bridge.manual_seed seeds", id="seeds"),
    pytest.param(lambda x: torch.relu(x), TypeError, r"torch\.relu is PyTorch's own", id="PyTorch's own function"),
    pytest.param(
        lambda x: F.relu(torch.nn.Parameter(torch.ones(2))),
        TypeError,
        r"torch\.nn\.functional\.relu takes MindSpore's tensors, and was given PyTorch's",
        id="PyTorch's tensors",
    ),
    pytest.param(lambda x: torch.nn.ReLU()(x), TypeError, r"bridge\.cell makes a Cell", id="PyTorch's own module"),
    pytest.param(lambda x: T.optim.SGD([x]), NotImplementedError, "bridge.optim", id="optim"),
    pytest.param(lambda x: T.nn.modules(x), NotImplementedError, "bridge.nn", id="what is about layers"),
    pytest.param(lambda x: T.nn.parallel(x), NotImplementedError, "msrun", id="many devices"),
    pytest.param(lambda x: T.sum(x, **{"dim": 0, "axis": 1}), TypeError, "both dim and axis", id="a name twice"),
    pytest.param(lambda x: T.relu_(x), NotImplementedError, "without the underscore", id="in place"),
    pytest.param(
        lambda x: T.masked_fill_(x, x, 1), NotImplementedError, "without the underscore", id="a method in place"
    ),
    pytest.param(lambda x: T.softmx(x), AttributeError, "did you mean softmax", id="a name that is like another"),
    pytest.param(
        lambda x: F.softmx(x),  # type: ignore[attr-defined]
        AttributeError,
        "did you mean softmax",
        id="of functional",
    ),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED)
def test_what_mindspore_has_elsewhere(call: Callable[..., Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call(ms.Tensor(X))


def test_what_says_what_is_so_anyway() -> None:
    assert T.zeros(2, device=place(), requires_grad=False, layout=torch.strided, out=None).shape == (2,)


def test_a_device_by_position() -> None:
    x = ms.Tensor(X)
    assert T.to(x, place()).dtype == T.to(x, torch.device(place()), T.float32).dtype == ms.float32
    assert T.to(x, place(), T.float64).dtype == ms.float64

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return T.to(x, "meta")

    with pytest.raises(ValueError, match=r"device meta is not MindSpore's device(.|\n)*test_torch_functions\.py"):
        call(x)


def test_a_device_as_mindspore_names_it() -> None:
    x = ms.Tensor(X)
    assert T.zeros(2, device=x.device).shape == (2,)

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return T.zeros(2, device=x.device)

    with pytest.raises(ValueError, match="a graph does not know the device of a tensor: leave device= out"):
        call(x)


def test_what_is_elsewhere_may_decorate() -> None:
    @T.no_grad()
    def decorated(x: ms.Tensor) -> ms.Tensor:
        return x

    with pytest.raises(NotImplementedError, match="stop_gradient"):
        decorated(ms.Tensor(X))
    with pytest.raises(NotImplementedError, match="stop_gradient"), T.no_grad():
        pass


def test_elsewhere_in_a_graph() -> None:
    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        T.no_grad()
        return x

    with pytest.raises(NotImplementedError, match="stop_gradient"):
        call(ms.Tensor(X))


@T.jit.script
def doubled(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return x * 2


class MarkedForTorchScript(nn.Cell):
    @T.jit.ignore
    def names(self) -> set[str]:
        return {"own"}

    @T.jit.unused
    def more(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return x + 1

    @T.jit.ignore(drop=True)
    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        if T.jit.is_scripting() or T.jit.is_tracing():
            raise ValueError
        return self.more(doubled(x))


def test_what_files_tell_torchscript(context_mode: str) -> None:
    net = MarkedForTorchScript()
    assert np.array_equal(net(ms.Tensor(X)).asnumpy(), X * 2 + 1) and net.names() == {"own"}
    for compile_it in (T.jit.script, T.jit.trace):
        with pytest.raises(NotImplementedError, match=r"mindspore\.jit compiles"):
            compile_it(net)
    assert T.__version__ == torch.__version__


class ChecksItsShape(nn.Cell):
    def construct(self, x, wanted, is_right):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        T._assert(x.dim() == wanted, f"wanted {wanted} dimensions, got {x.shape}")
        if is_right is not None:
            T._assert(is_right, "not right")
        return x + 1


def test_assertions(context_mode: str) -> None:
    net, x, wrong = ChecksItsShape(), ms.Tensor(X), ms.Tensor(False)
    assert np.array_equal(net(x, 4, None).asnumpy(), X + 1)
    with pytest.raises(AssertionError, match=r"^wanted 3 dimensions, got \(2, 3, 8, 8\)"):
        net(x, 3, None)
    in_graph = (RuntimeError, "depends on data") if context_mode == "graph" else (AssertionError, "^not right")
    with pytest.raises(in_graph[0], match=in_graph[1]):
        net(x, 4, wrong)


def test_a_refusal_in_a_graph_has_the_users_line() -> None:
    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return F.interpolate(x, scale_factor=2, mode="none")

    with pytest.raises(NotImplementedError, match="Only 3D, 4D and 5D") as found:
        call(ms.Tensor(X))
    assert __file__ in str(found.value)


def test_documentation() -> None:
    assert "nn.functional.interpolate.html" in (F.interpolate.__doc__ or "")
    assert "scale_factor" in (F.interpolate.__doc__ or "")
    assert list(inspect.signature(F.interpolate).parameters)[:2] == ["input", "size"]
    assert "torch.linalg.svd" in repr(T.linalg.svd)


def test_copies() -> None:
    assert copy.deepcopy(F.relu) is F.relu
    same(pickle.loads(pickle.dumps(F.relu))(ms.Tensor(X)), in_pytorch(X).relu())
    same(pickle.loads(pickle.dumps(T.add))(ms.Tensor(X), 1), in_pytorch(X) + 1)


def test_mixed_precision() -> None:
    class Net(nn.Cell):
        def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return F.relu(x), T.add(x, 1)

    assert [y.dtype for y in Net().to_float(ms.float16)(ms.Tensor(X))] == [ms.float16, ms.float16]


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
def test_a_plan_is_for_its_shapes_and_dtypes() -> None:
    """`softmax` without a dimension takes the first of one or three dimensions, and the second of others."""
    arrays = [data(5), data(4, 5), data(2, 4, 5), data(4, 5).astype(np.float64), data(4, 5), data(5, 4), data(5)]
    for x in [*arrays, *arrays]:
        for _ in range(2):
            same(F.softmax(ms.Tensor(x)), torch_functional.softmax(in_pytorch(x)))


def test_a_plan_is_for_what_is_given_before_mixed_precision_casts_it() -> None:
    class Net(nn.Cell):
        def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return F.mse_loss(x, x * 2, reduction="none"), F.relu(x)

    nets = [Net(), Net().to_float(ms.float16)]
    for array in (X, X.astype(np.float16), X) * 2:
        for net, dtype in zip(nets, (array.dtype, np.float16), strict=True):
            x = in_pytorch(array.astype(dtype))
            loss, kept = net(ms.Tensor(array))
            same(kept, x.relu())
            same(loss, torch_functional.mse_loss(x, x * 2, reduction="none"))


@pytest.mark.parametrize("name", ["torch", "torch.linalg", "torch.fft", "torch.special", "torch.nn.functional"])
def test_every_public_function_is_there_or_elsewhere(name: str) -> None:
    from bridge.torch import coverage

    reasons = coverage.rows(name)
    assert len(reasons) > 20 and [each for each, why in reasons.items() if why == coverage.UNKNOWN] == []


def test_the_command() -> None:
    command = [sys.executable, "-m", "bridge", "coverage", "--functions"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"torch.linalg: (\d+) public functions, \1 callable", text)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("torch.utils.data", "mindspore.dataset loads data"),
        ("torch.optim.lr_scheduler", "bridge.optim has the optimizers"),
        ("torch.cuda.amp", "mindspore.set_device chooses"),
        ("torch.backends.cudnn", "about PyTorch itself"),
        ("nn.modules.utils", "bridge.nn has the layers"),
        ("nn.parallel", "msrun"),
        ("optim.adamw", "bridge.optim has the optimizers"),
        ("torch.nothing", "No module named 'bridge.torch.nothing'"),
        ("nn.nothing", "No module named 'bridge.nn.nothing'"),
    ],
)
def test_what_a_file_imports_in_vain(name: str, words: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=words):
        importlib.import_module(f"bridge.{name}")


@pytest.mark.parametrize("name", ["functional", "init", "parameter", "utils", "utils.rnn", "utils.parametrize"])
def test_a_file_imports_from_pytorchs_modules(name: str) -> None:
    assert importlib.import_module(f"bridge.nn.{name}") is importlib.import_module(f"bridge.torch.nn.{name}")


def test_elsewhere_knows_pytorchs_names_only() -> None:
    assert isinstance(T.cuda, Elsewhere)
    with pytest.raises(AttributeError, match="has no 'nothing'"):
        _ = T.cuda.nothing
