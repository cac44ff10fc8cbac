"""Kernels of the user's own, in their three forms: arguments, results, gradients, both modes."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

from bridge import aten, kernels
from shared import modes

HERE = pathlib.Path(__file__).parent
FEATURES = HERE / "kernels" / "features.cpp"
PLAIN = HERE / "kernels" / "plain.cpp"
LEAKY_RELU = HERE.parent / "aten_ops" / "leaky_relu.cpp"
X = np.array([[0.5, -1.25, 3.0], [2.0, 0.125, -4.0]], np.float32)


def python_gradient(x, y, out, dout):
    """The gradient of x + y, where y may be left out."""
    if y is None:
        return (dout,)
    return dout, dout


def cube_gradient(x, out, dout):
    return aten.mul(dout, aten.mul(aten.mul(x, x), 3.0))


# All of one source, so that they are one build.
describe = kernels.extension(
    FEATURES,
    "lib::describe(Tensor x, int n, float r, bool flag, str mode, Scalar s, int[] sizes, float? maybe=None, "
    "ScalarType? dtype=None) -> Tensor",
    results="x",
)
narrow = kernels.extension(FEATURES, "narrow(Tensor x, int n, float r) -> Tensor", results="x")
add_optional = kernels.extension(
    FEATURES, "add_optional(Tensor x, Tensor? y=None) -> Tensor", results="x", gradient=python_gradient
)
join = kernels.extension(
    FEATURES,
    "join(Tensor[] tensors) -> Tensor",
    results=lambda tensors: tensors[0].new_empty(sum(t.shape[0] for t in tensors), *tensors[0].shape[1:]),
)
sum_and_difference = kernels.extension(
    FEATURES,
    "sum_and_difference(Tensor a, Tensor b) -> (Tensor sum, Tensor difference)",
    results="a, a",
    gradient="a, b: sum_and_difference_backward(grad, grads[1], 1.0)",
)
scale_by_mode = kernels.extension(
    FEATURES,
    "scale_by_mode(Tensor x, str mode) -> Tensor",
    results="x",
    gradient="x: scale_by_mode_backward(grad, mode)",
)
split = kernels.extension(
    FEATURES, "split(Tensor x, int parts) -> Tensor[]", results=lambda x, parts: list(x.chunk(parts, 0))
)
add_into = kernels.extension(
    FEATURES, "add_into(Tensor x, *, Tensor(a!) out) -> ()", results="x", initial={"out": "zeros"}, gradient="x: grad"
)
add_to_copy = kernels.extension(
    FEATURES,
    "add_into(Tensor x, *, Tensor(a!) out) -> ()",
    results="x",
    initial="x",
    gradient="x: aten.mul(grad, 2)",
)
decay = kernels.extension(
    FEATURES, "decay(Tensor(a!) state, Tensor x, float rate) -> ()", gradient="state: aten.mul(grad, rate), x: grad"
)
places = kernels.extension(FEATURES, "places(Tensor x) -> Tensor")
sign = kernels.extension(FEATURES, "sign(Tensor x) -> Tensor", results=lambda x: torch.empty_like(x, dtype=torch.int64))
cube = kernels.extension(FEATURES, "cube(Tensor x) -> Tensor", results="x", gradient="x: cube_backward(grad, x, 3)")
cube_twice = kernels.extension(FEATURES, "cube(Tensor x) -> Tensor", results="x", gradient=cube_gradient)
broadcast = kernels.extension(
    FEATURES,
    "broadcast(Tensor x, int n) -> Tensor",
    results=lambda x, n: x.new_empty(n, *x.shape),
    gradient="x: constant_backward(grad)",
)

affine = kernels.aot(
    PLAIN, "Affine(Tensor x, float scale=2.0, int shift=0, bool negate=False, str mode='move') -> Tensor", results="x"
)
accumulate = kernels.aot(
    PLAIN,
    "Accumulate(Tensor x, Tensor start) -> (Tensor once, Tensor twice)",
    results="x, x",
    initial={"once": "zeros", "twice": "start"},
    gradient="x: aten.add(grad, grads[1], alpha=2), start: grads[1]",
)
sum_rows = kernels.aot(
    PLAIN, "SumRows(Tensor x) -> Tensor", results=lambda x: x.new_empty(x.shape[1]), gradient="x: SumRowsGrad(grad)"
)
leaky_relu = kernels.aot(LEAKY_RELU, "LeakyRelu(Tensor x) -> Tensor", results="x")


def equal(found: Any, expected: Any) -> None:
    result = found.asnumpy()
    np.testing.assert_array_equal(result, np.asarray(expected))
    assert result.dtype == np.asarray(expected).dtype


@modes
@pytest.mark.parametrize("maybe, dtype", [(None, None), (1 / 3, ms.float16)])
def test_arguments_that_are_not_tensors_arrive_exactly(wrap: Callable[..., Any], maybe: Any, dtype: Any) -> None:
    def call(x):
        return describe(x, 2**53 + 2, math.pi, True, "modes", 0.1, [7, -9], maybe, dtype)

    found = wrap(call)(ms.Tensor(np.zeros(8)))
    expected = [2.0**53 + 2, math.pi, 1, 5, 0.1, -9, -1 if maybe is None else maybe, -1 if dtype is None else 5]
    equal(found, np.array(expected))


@modes
@pytest.mark.parametrize("mode", ["BILINEAR", "COLOR", "R", ""])
def test_strings_arrive_whole_whatever_they_end_in(wrap: Callable[..., Any], mode: str) -> None:
    def call(x):
        return scale_by_mode(x, mode)

    def moved(x):
        return affine(x, 3.0, 1, True, mode)

    factor = np.float32(sum(mode.encode()))
    equal(wrap(call)(ms.Tensor(X)), X * factor)
    equal(wrap(ms.grad(call))(ms.Tensor(X)), np.full_like(X, factor))
    equal(wrap(moved)(ms.Tensor(X)), -(X * 3 + 1))
    np.testing.assert_array_equal(scale_by_mode.on_torch(torch.tensor(X), mode).numpy(), X * factor)


@modes
def test_parameters_may_be_narrower_than_atens(wrap: Callable[..., Any]) -> None:
    def call(x):
        return narrow(x, 3, 0.25)

    equal(wrap(call)(ms.Tensor(X)), X * 3 + np.float32(0.25))


def test_an_integer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(RuntimeError, match="custom::narrow: 4294967296 does not fit into the integer"):
        narrow(ms.Tensor(X), 2**32, 0.0).asnumpy()


@modes
def test_optional_tensors(wrap: Callable[..., Any]) -> None:
    def without(x):
        return add_optional(x).sum()

    def with_one(x, y):
        return add_optional(x, y).sum()

    x, y = ms.Tensor(X), ms.Tensor(X)
    equal(wrap(without)(x), X.sum())
    equal(wrap(ms.grad(without))(x), np.ones_like(X))
    equal(wrap(with_one)(x, y), (X + X).sum())
    for gradient in wrap(ms.grad(with_one, grad_position=(0, 1)))(x, y):
        equal(gradient, np.ones_like(X))


@modes
def test_lists_of_tensors_in_and_out(wrap: Callable[..., Any]) -> None:
    def call(x):
        parts = split(x, 2)
        return join([parts[1], x, parts[0]])

    equal(wrap(call)(ms.Tensor(X)), np.concatenate([X[1:], X, X[:1]]))


@modes
def test_several_results_and_their_gradients(wrap: Callable[..., Any]) -> None:
    def call(a, b):
        total, difference = sum_and_difference(a, b)
        return (total * total + difference * 3).sum()

    a, b = ms.Tensor(X), ms.Tensor(X[:, ::-1].copy())
    gradients = wrap(ms.grad(call, grad_position=(0, 1)))(a, b)
    double_sum = 2 * (X + X[:, ::-1])
    equal(gradients[0], double_sum + 3)
    equal(gradients[1], double_sum - 3)


@modes
def test_outputs_that_the_function_fills(wrap: Callable[..., Any]) -> None:
    def from_zeros(x):
        return add_into(x)

    def from_copy(x):
        return add_to_copy(x)

    def total(x):
        return (add_into(x) * add_to_copy(x)).sum()

    x = ms.Tensor(X)
    equal(wrap(from_zeros)(x), X)
    equal(wrap(from_copy)(x), 2 * X)
    equal(wrap(ms.grad(total))(x), 4 * X)


@modes
def test_an_argument_that_is_changed_is_changed_in_a_copy(wrap: Callable[..., Any]) -> None:
    def call(state, x):
        return decay(state, x, 0.5)

    def total(state, x):
        return decay(state, x, 0.5).sum()

    state, x = ms.Tensor(X), ms.Tensor(2 * X)
    equal(wrap(call)(state, x), X * np.float32(0.5) + 2 * X)
    equal(state, X)
    gradients = wrap(ms.grad(total, grad_position=(0, 1)))(state, x)
    equal(gradients[0], np.full_like(X, 0.5))
    equal(gradients[1], np.ones_like(X))


def test_results_without_a_declaration_follow_from_data() -> None:
    equal(places(ms.Tensor(np.array([0.0, 2.0, 0.0, 3.0]))), np.array([[1], [3]]))
    equal(places(ms.Tensor(np.zeros(3))), np.zeros((0, 1), np.int64))

    @ms.jit
    def call(x):
        return places(x)

    with pytest.raises(RuntimeError, match="works in PyNative mode only"):
        call(ms.Tensor(X))


@modes
def test_results_of_integers_have_no_gradient_and_need_none(wrap: Callable[..., Any]) -> None:
    def call(x):
        return (x * sign(x).astype(ms.float32)).sum()

    equal(wrap(ms.grad(call))(ms.Tensor(X)), np.sign(X))


@modes
def test_a_line_may_have_literals(wrap: Callable[..., Any]) -> None:
    def total(x):
        return cube(x).sum()

    equal(wrap(ms.grad(total))(ms.Tensor(X)), 3 * X * X)


@modes
def test_a_python_gradient_of_operators_has_gradients(wrap: Callable[..., Any]) -> None:
    def total(x):
        return cube_twice(x).sum()

    def total_gradient(x):
        return ms.grad(total)(x).sum()

    equal(wrap(ms.grad(total))(ms.Tensor(X)), 3 * X * X)
    equal(wrap(ms.grad(total_gradient))(ms.Tensor(X)), 6 * X)


@modes
def test_shapes_that_are_unknown_when_the_graph_is_compiled(wrap: Callable[..., Any]) -> None:
    class Net(ms.nn.Cell):
        def construct(self, x):
            return cube(x) + sum_rows(x)

    class GraphNet(Net):
        @ms.jit
        def construct(self, x):
            return cube(x) + sum_rows(x)

    net = GraphNet() if wrap is ms.jit else Net()
    if wrap is ms.jit:
        net.set_inputs(ms.Tensor(shape=[None, 3], dtype=ms.float32))
    for rows in (2, 5):
        x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
        equal(net(ms.Tensor(x)), x * x * x + x.sum(0))


@modes
def test_aot_attributes_init_and_workspace(wrap: Callable[..., Any]) -> None:
    def call(x):
        return affine(x, 0.5, shift=-3, negate=True) + affine(x, mode="same")

    equal(wrap(call)(ms.Tensor(X)), -(X * np.float32(0.5) - 3) + X)


@modes
def test_aot_outputs_start_as_declared(wrap: Callable[..., Any]) -> None:
    def call(x, start):
        once, twice = accumulate(x, start)
        return once, twice

    def total(x, start):
        once, twice = accumulate(x, start)
        return (once + twice * 10).sum()

    x, start = ms.Tensor(X), ms.Tensor(X * 100)
    once, twice = wrap(call)(x, start)
    equal(once, X)
    equal(twice, X * 100 + 2 * X)
    gradients = wrap(ms.grad(total, grad_position=(0, 1)))(x, start)
    equal(gradients[0], np.full_like(X, 21))
    equal(gradients[1], np.full_like(X, 10))


@modes
def test_a_gradient_takes_its_shape_from_the_argument(wrap: Callable[..., Any]) -> None:
    weight = ms.Tensor(np.array([1.0, 2.0, 3.0], np.float32))

    def total(x):
        return (sum_rows(x) * weight).sum()

    equal(wrap(ms.grad(total))(ms.Tensor(X)), np.broadcast_to(weight.asnumpy(), X.shape))


@modes
def test_a_shim_in_the_tutorials_style(wrap: Callable[..., Any]) -> None:
    def call(x):
        return leaky_relu(x)

    x = ms.Tensor([[0.0, -0.1], [-0.2, 1.0]], ms.float32)
    assert str(wrap(call)(x)) == "[[ 0.    -0.001]\n [-0.002  1.   ]]"


def test_the_same_kernel_on_pytorchs_tensors() -> None:
    x = torch.tensor(X)
    assert torch.equal(cube.on_torch(x), x * x * x)
    assert torch.equal(add_into.on_torch(x), x)
    total, difference = sum_and_difference.on_torch(x, x)
    assert torch.equal(total, 2 * x) and torch.equal(difference, 0 * x)
    assert torch.equal(cube.gradient_kernels["cube_backward"].on_torch(x, x, 3), 3 * x * x * x)
    with pytest.raises(RuntimeError, match="custom::narrow: 4294967296 does not fit"):
        narrow.on_torch(x, 2**32, 0.0)


def test_the_shim_can_be_written_out(tmp_path: pathlib.Path) -> None:
    path = kernels.extension(LEAKY_RELU, "lib::f(Tensor x) -> Tensor", results="x")
    with pytest.raises(kernels.KernelError, match=r"leaky_relu.cpp has no function 'lib::f'"):
        path.write_shim(tmp_path)
    written = cube.write_shim(tmp_path / "shims")
    text = written.read_text()
    assert f'#include "{FEATURES}"' in text and "struct cube_shim" in text and "MS_EXT_CPU_SHIM(cube)" in text


# Registered operators.


@pytest.fixture(scope="module")
def library() -> Any:
    found = torch.library.Library("bridge_tests", "DEF")
    found.define("scale(Tensor x, float factor) -> Tensor")
    found.define("scale.Tensor(Tensor x, Tensor factor) -> Tensor")
    found.define("plain(Tensor x) -> Tensor")
    found.define("positive(Tensor x) -> Tensor")
    found.define("measure(Tensor x) -> Tensor")
    found.define("change(Tensor(a!) x) -> ()")
    for name in ("scale", "scale.Tensor"):
        found.impl(name, lambda x, factor: x * factor, "CompositeImplicitAutograd")
    found.impl("plain", lambda x: x * 2, "CPU")
    found.impl("plain", torch.empty_like, "Meta")
    found.impl("positive", lambda x: x[x > 0], "CPU")
    torch.library.register_fake(
        "bridge_tests::positive", lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size())
    )
    found.impl("change", lambda x: None, "CPU")
    return found


@modes
def test_a_registered_operator_with_overloads_and_gradient(library: Any, wrap: Callable[..., Any]) -> None:
    scale = kernels.registered("bridge_tests::scale")

    def total(x, factor):
        return (scale(scale(x, 3.0), factor)).sum()

    factor = ms.Tensor(np.array(0.5, np.float32))
    equal(wrap(total)(ms.Tensor(X), factor), (X * 3 * np.float32(0.5)).sum())
    gradients = wrap(ms.grad(total, grad_position=(0, 1)))(ms.Tensor(X), factor)
    equal(gradients[0], np.full_like(X, 1.5))
    equal(gradients[1], np.float32((X * 3).sum()))


@modes
def test_a_registered_operator_may_be_given_a_gradient(library: Any, wrap: Callable[..., Any]) -> None:
    plain = kernels.registered("bridge_tests::plain", gradient="x: aten.mul(grad, 2)")
    other = kernels.registered("bridge_tests::plain", gradient="x: bridge_tests::plain(grad)")
    third = kernels.registered("bridge_tests::plain", gradient="x: aten.mul(grad, 3)")

    def total(x):
        return (plain(x) + other(x) + third(x)).sum()

    equal(wrap(total)(ms.Tensor(X)), (6 * X).sum())
    equal(wrap(ms.grad(total))(ms.Tensor(X)), np.full_like(X, 7))
    with pytest.raises(ValueError, match="needs results= or a meta function for gradient="):
        kernels.registered("bridge_tests::measure", gradient="x: grad")


def test_a_registered_operator_keeps_its_gradient_when_another_declaration_has_its_own() -> None:
    library = torch.library.Library("bridge_twice", "DEF")
    library.define("triple(Tensor x) -> Tensor")
    library.impl("triple", lambda x: x * 3, "CompositeImplicitAutograd")
    wrong = kernels.registered("bridge_twice::triple", gradient="x: aten.mul(grad, 7)")
    triple = kernels.registered("bridge_twice::triple")
    equal(ms.grad(lambda x: wrong(x).sum())(ms.Tensor(X)), np.full_like(X, 7))
    equal(ms.grad(lambda x: triple(x).sum())(ms.Tensor(X)), np.full_like(X, 3))


@pytest.fixture(scope="module")
def custom_namespace() -> Any:
    """What others register in a namespace in which the extensions above are declared too: custom::sign is one."""
    found = torch.library.Library("custom", "FRAGMENT")
    found.define("sign(Tensor x) -> Tensor")
    found.impl("sign", lambda x: x * 10, "CompositeImplicitAutograd")
    found.define("half(Tensor grad) -> Tensor")
    found.impl("half", lambda grad: grad / 2, "CompositeImplicitAutograd")
    return found


@modes
def test_others_may_register_operators_in_the_namespace_custom(custom_namespace: Any, wrap: Callable[..., Any]) -> None:
    theirs = kernels.registered("custom::sign", gradient="x: custom::half(grad)")
    registered = kernels.registered("custom::sign")

    def total(x):
        return theirs(x).sum()

    equal(wrap(total)(ms.Tensor(X)), (X * 10).sum())
    equal(wrap(ms.grad(total))(ms.Tensor(X)), np.full_like(X, 0.5))
    equal(registered(ms.Tensor(X)), X * 10)
    equal(sign(ms.Tensor(X)), np.sign(X).astype(np.int64))


def test_a_registered_operator_whose_shape_follows_from_data(library: Any) -> None:
    positive = kernels.registered("bridge_tests::positive")
    equal(positive(ms.Tensor(X)), X[X > 0])
    equal(positive(ms.Tensor(-X)), -X[X < 0])
