"""Gradients: PyTorch's bits, in both modes, of any order; a random operator differentiates the draw it returned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import bridge
from bridge import aten
from bridge.primitive import differentiate
from bridge.primitive.aten import ATen
from shared import data


def leaky_relu(op: Any, x: Any, w: Any) -> Any:  # saves an input
    return op.sum(op.leaky_relu(op.mm(x, w), 0.2))


def softmax(op: Any, x: Any, w: Any) -> Any:  # saves the result
    return op.sum(op.mul(op._softmax(op.mm(x, w), 1, False), op.mm(x, w)))


def broadcast(op: Any, x: Any, w: Any) -> Any:  # gradients are summed over broadcast dimensions
    return op.sum(op.mul(op.add(op.sum(x, [1], True), op.sum(w)), x))


def lists(op: Any, x: Any, w: Any) -> Any:  # a list of tensors in, a list out, of which some are unused
    return op.sum(op.split(op.cat([x, op.t(w)], 0), 2, 0)[1])


def several_results(op: Any, x: Any, w: Any) -> Any:  # the second result is not differentiable
    return op.sum(op.mul(op.max.dim(op.mm(x, w), 1)[0], op.native_layer_norm(x, [4], None, None, 1e-5)[1]))


def composite(op: Any, x: Any, w: Any) -> Any:
    return op.sum(op.layer_norm(op.linear(x, op.sin(x)), [3]))


def twice(op: Any, x: Any, w: Any) -> Any:  # one tensor in two places
    return op.sum(op.mul(op.mm(x, w), op.mm(x, w)))


@pytest.mark.parametrize("function", [leaky_relu, softmax, broadcast, lists, several_results, composite, twice])
def test_gradients_have_pytorchs_bits(function: Callable[..., Any], mode: Callable[..., Any]) -> None:
    x, w = data(3, 4), data(4, 5, seed=1)

    def loss(x, w):
        return function(aten, x, w)

    found = mode(ms.grad(loss, (0, 1)))(ms.Tensor(x), ms.Tensor(w))
    leaves = [torch.from_numpy(a).requires_grad_() for a in (x, w)]
    expected = torch.autograd.grad(function(torch.ops.aten, *leaves), leaves, allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        bits = np.zeros(one.shape, np.float32) if other is None else other.numpy()
        np.testing.assert_array_equal(one.asnumpy(), bits)


def cube(x):
    return aten.mul(aten.mul(x, x), aten.sin(x))


def second(x):
    return ms.grad(cube)(x)


def third(x):
    return ms.grad(second)(x)


@pytest.mark.parametrize(("derivative", "order"), [(second, 2), (third, 3)])
def test_higher_orders(derivative: Callable[..., Any], order: int, mode: Callable[..., Any]) -> None:
    found = mode(ms.grad(derivative))(ms.Tensor(np.float64(0.7)))
    x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    expected = x * x * torch.sin(x)
    for _ in range(order):
        (expected,) = torch.autograd.grad(expected, x, create_graph=True)
    # MindSpore adds the parts of a gradient in an order of its own: float64 round-off.
    np.testing.assert_allclose(found.asnumpy(), expected.detach().numpy(), rtol=1e-13)


def dropped(x):
    return aten.sum(aten.dropout(x, 0.5, True))


def test_the_gradient_belongs_to_the_draw(mode: Callable[..., Any]) -> None:
    x = ms.Tensor(data(8, 8))
    bridge.manual_seed(1)
    value, gradient = mode(ms.value_and_grad(dropped))(x)
    assert set(np.unique(gradient.asnumpy())) == {0.0, 2.0}
    # A sum in another order than PyTorch's: float32 round-off.
    np.testing.assert_allclose((gradient.asnumpy() * x.asnumpy()).sum(), value.asnumpy(), rtol=1e-5)


def test_differentiating_does_not_draw_more() -> None:
    x = ms.Tensor(data(4, 4))
    bridge.manual_seed(2)
    ms.grad(dropped)(x)
    after_gradient = aten.rand([3]).asnumpy()
    bridge.manual_seed(2)
    dropped(x)
    np.testing.assert_array_equal(after_gradient, aten.rand([3]).asnumpy())


def selected(x, mask):
    return aten.sum(aten.mul(aten.masked_select(x, mask), 3.0))


def test_results_of_data_dependent_shape_have_gradients() -> None:
    x = data(3, 4)
    gradient = ms.grad(selected)(ms.Tensor(x), ms.Tensor(x > 0))
    np.testing.assert_array_equal(gradient.asnumpy(), np.where(x > 0, np.float32(3), np.float32(0)))


def divided(x):
    return aten.sum(aten.floor_divide(x, 2))


def airy(x):
    return aten.sum(aten.special_airy_ai(x))


@pytest.mark.parametrize(("function", "name"), [(divided, "floor_divide"), (airy, "special_airy_ai")])
def test_no_derivative_is_an_error_that_names_the_operator(
    function: Callable[..., Any], name: str, mode: Callable[..., Any]
) -> None:
    with pytest.raises(RuntimeError, match=rf"aten\.{name}.* has no gradient: PyTorch"):
        mode(ms.grad(function))(ms.Tensor(data(3)))


def masked(op, x):
    return op.sum(op.where(op.gt(x, 0.0), x, op.mul(x, 0.1)))


def indexed(op, x):
    return op.sum(op.gather(x, 1, op.argmax(x, 1, True)))


def with_constants(op, x):
    return op.sum(op.mul(op.mul(x, op.full_like(x, 2.0)), op.detach(x)))


def with_integers(op, x):
    return op.sum(op.mul(x, op.bitwise_and(op.gt(x, 0.0), op.lt(x, 1.0))))


@pytest.mark.parametrize("function", [masked, indexed, with_constants, with_integers])
def test_masks_indices_and_filled_tensors_are_constants(function: Callable[..., Any], mode: Callable[..., Any]) -> None:
    x = data(3, 4)

    def loss(x):
        return function(aten, x)

    leaf = torch.from_numpy(x).requires_grad_()
    (expected,) = torch.autograd.grad(function(torch.ops.aten, leaf), leaf)
    np.testing.assert_array_equal(mode(ms.grad(loss))(ms.Tensor(x)).asnumpy(), expected.numpy())


def orthogonal(op, a):  # its results are column-major in PyTorch
    q, r = op.linalg_qr(a)
    return q, r


def decomposed(op, a):
    u, s, vh = op._linalg_svd(a)
    return u, s, vh


def factored(op, a):
    return op.linalg_cholesky_ex(a)[0]


def solved(op, a):  # its formula asks the saved matrix whether it wants a gradient
    return op._linalg_solve_ex(a, a)[0]


@pytest.mark.parametrize("function", [orthogonal, decomposed, factored, solved])
def test_saved_results_have_pytorchs_strides(function: Callable[..., Any], mode: Callable[..., Any]) -> None:
    def results(a):
        return function(aten, a)

    gradient = mode(ms.ops.GradOperation(sens_param=True)(results))
    for seed in range(5):
        half = data(5, 5, seed=seed)
        a = half @ half.T + np.eye(5, dtype=np.float32)
        leaf = torch.from_numpy(a).requires_grad_()
        outputs = function(torch.ops.aten, leaf)
        cotangents: Any
        sens: Any
        if isinstance(outputs, tuple):
            cotangents = tuple(torch.from_numpy(data(*one.shape, seed=seed + 100)) for one in outputs)
            sens = tuple(ms.Tensor(one.numpy()) for one in cotangents)
        else:
            cotangents = torch.from_numpy(data(5, 5, seed=seed + 100))
            sens = ms.Tensor(cotangents.numpy())
        (expected,) = torch.autograd.grad(outputs, leaf, cotangents)
        np.testing.assert_array_equal(gradient(ms.Tensor(a), sens).asnumpy(), expected.numpy())


def test_sparse_gradients_are_given_dense(mode: Callable[..., Any]) -> None:
    index = np.array([[1, 1], [3, 0]])

    def looked_up(weight, index):
        return aten.sum(aten.embedding(weight, index, -1, False, True))

    gradient = mode(ms.grad(looked_up))(ms.Tensor(data(4, 2)), ms.Tensor(index))
    np.testing.assert_array_equal(gradient.asnumpy(), [[1, 1], [2, 2], [0, 0], [1, 1]])


def test_many_inputs() -> None:  # more than graph mode differentiates
    def joined(x):
        return aten.sum(aten.sin(aten.cat([x] * 200)))

    x = ms.Tensor(data(1))
    # A sum in another order than a product's: float32 round-off.
    np.testing.assert_allclose(ms.grad(joined)(x).asnumpy(), 200 * np.cos(x.asnumpy()), rtol=1e-5)


@pytest.fixture
def gradients_computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many gradients each kernel of a backward pass gives, as they run."""
    counts: list[int] = []

    def counting(primitive: Any, tensors: Any) -> Any:
        results = launch(primitive, tensors)
        if not isinstance(primitive, ATen):
            counts.append(len(results))
        return results

    launch = differentiate.launch
    monkeypatch.setattr(differentiate, "launch", counting)
    return counts


def multiplied(op: Any, name: str, x: Any, w: Any) -> Any:
    return op.mm(x, w) if name == "mm" else op.einsum("ij,jk->ik", [x, w])


def product_with(name: str, x: ms.Tensor, w: ms.Parameter) -> None:
    """Differentiates a product, and compares."""
    gradient = ms.grad(lambda x: multiplied(aten, name, x, w))(x)
    leaf = torch.from_numpy(x.asnumpy()).requires_grad_()
    product = multiplied(torch.ops.aten, name, leaf, torch.from_numpy(w.asnumpy()))
    (expected,) = torch.autograd.grad(product, leaf, torch.ones_like(product))
    np.testing.assert_array_equal(gradient.asnumpy(), expected.numpy())


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mm", "einsum"])  # by a backward shim, and by a recomputation
def test_kernels_compute_only_needed_gradients(name: str, gradients_computed: list[int]) -> None:
    x = ms.Tensor(data(3, 4))
    for required in (True, False):
        gradients_computed.clear()
        product_with(name, x, ms.Parameter(ms.Tensor(data(4, 5, seed=1)), name="w", requires_grad=required))
        assert gradients_computed == [1 + required]


class Calls(TorchDispatchMode):
    """The calls that PyTorch makes on this thread."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "part"), [("mm", "mm"), ("einsum", "bmm")])
def test_pytorch_computes_only_needed_gradients(name: str, part: str) -> None:
    x = ms.Tensor(data(3, 4))
    for required in (True, False):
        w = ms.Parameter(ms.Tensor(data(4, 5, seed=1)), name="w", requires_grad=required)
        product_with(name, x, w)  # and infers shapes
        with Calls() as calls:
            ms.grad(lambda x, w=w: multiplied(aten, name, x, w))(x)
        assert calls.names.count(part) == 2  # forward, and the gradient of x


@pytest.mark.parametrize("name", ["mm", "einsum"])
def test_second_order_past_a_frozen_parameter(name: str) -> None:
    x, frozen = ms.Tensor(data(3, 4)), ms.Parameter(ms.Tensor(data(4, 5)), name="frozen", requires_grad=False)

    def second(x):
        return ms.grad(lambda x: aten.sum(aten.sin(multiplied(aten, name, x, frozen))))(x)

    leaf, weight = torch.from_numpy(data(3, 4)).double().requires_grad_(), torch.from_numpy(data(4, 5)).double()
    (first,) = torch.autograd.grad((leaf @ weight).sin().sum(), leaf, create_graph=True)
    (expected,) = torch.autograd.grad(first.sum(), leaf)
    np.testing.assert_allclose(ms.grad(second)(x).asnumpy(), expected.numpy(), rtol=1e-4, atol=1e-5)  # float32


@pytest.mark.parametrize("which", ["input", "result"])
def test_a_saved_tensor_that_was_written_to_is_no_gradient(which: str) -> None:
    def loss(x):
        x = aten.mul(x, 2)
        y = aten.exp(x) if which == "result" else aten.sin(x)
        # MindSpore counts what is written through a view. Of ops.assign and of an item it tells nobody.
        (x if which == "input" else y).view(4, 3).copy_(ms.Tensor(data(4, 3)))
        return aten.sum(y)

    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        ms.grad(loss)(ms.Tensor(data(3, 4)))
    gradient = ms.grad(lambda x: aten.exp(x))(ms.Tensor(data(3)))  # the next call
    np.testing.assert_array_equal(gradient.asnumpy(), torch.tensor(data(3)).exp())


def test_a_gradient_that_pytorch_gives_no_memory_is_zero() -> None:
    gradient = ms.grad(lambda x: aten.sgn(x))(ms.Tensor(data(3, 4)))
    assert not gradient.asnumpy().any()


def test_mixed_results_have_gradients() -> None:  # tensors and an int
    x = data(2, 3, 4)

    def normed(op, x):
        return op.sum(op.sin(op._batch_norm_impl_index(x, None, None, None, None, True, 0.1, 1e-5, True)[0]))

    leaf = torch.from_numpy(x).requires_grad_()
    (expected,) = torch.autograd.grad(normed(torch.ops.aten, leaf), leaf)
    gradient = ms.grad(lambda x: normed(aten, x))(ms.Tensor(x))
    np.testing.assert_array_equal(gradient.asnumpy(), expected.numpy())


def test_draws_of_data_dependent_shape_are_differentiated_as_drawn() -> None:
    sizes = ms.Tensor([3, 2, 1], ms.int64)
    weights = [ms.Tensor(data(*shape, seed=i)) for i, shape in enumerate([(4, 4), (4, 4), (4,), (4,)] * 2)]

    def recurrent(x):
        results = aten.rnn_tanh.data(x, sizes, ms.ops.zeros((2, 3, 4)), weights, True, 2, 0.5, True, False)
        return aten.sum(results[0]), results[0]

    bridge.manual_seed(3)
    (_, drawn), gradient = ms.value_and_grad(recurrent, has_aux=True)(ms.Tensor(data(6, 4)))
    torch.manual_seed(3)
    leaf = torch.from_numpy(data(6, 4)).requires_grad_()
    expected = torch.rnn_tanh(
        leaf,
        torch.tensor([3, 2, 1]),
        torch.zeros(2, 3, 4),
        [torch.from_numpy(w.asnumpy()) for w in weights],
        True,
        2,
        0.5,
        True,
        False,
    )[0]
    np.testing.assert_array_equal(drawn.asnumpy(), expected.detach().numpy())
    np.testing.assert_array_equal(gradient.asnumpy(), torch.autograd.grad(expected.sum(), leaf)[0].numpy())


def test_integer_inputs_have_no_gradient(mode: Callable[..., Any]) -> None:
    def rows(x, index):
        return aten.sum(aten.index_select(x, 0, index))

    gradient = mode(ms.grad(rows))(ms.Tensor(data(4, 2)), ms.Tensor([1, 1, 3], ms.int64))
    np.testing.assert_array_equal(gradient.asnumpy(), [[0, 0], [2, 2], [0, 0], [1, 1]])


def test_running_statistics_are_updated_once() -> None:
    x, mean, var = ms.Tensor(data(6, 4)), ms.Tensor(np.zeros(4, np.float32)), ms.Tensor(np.ones(4, np.float32))

    def normed(x):
        return aten.sum(aten.mul(aten.batch_norm(x, None, None, mean, var, True, 0.1, 1e-5, False), x))

    ms.grad(normed)(x)
    expected = torch.zeros(4)
    torch.batch_norm(torch.from_numpy(x.asnumpy()), None, None, expected, torch.ones(4), True, 0.1, 1e-5, False)
    np.testing.assert_array_equal(mean.asnumpy(), expected.numpy())


# The first overload of these in ATen takes a number where another takes a tensor.
def clamp(op: Any, x: Any, y: Any) -> Any:
    return op.clamp_min(op.clamp(x, y), y)


def clip(op: Any, x: Any, y: Any) -> Any:
    return op.clip(x, None, y)


def fill(op: Any, x: Any, y: Any) -> Any:
    return op.fill(x, y)


def lerp(op: Any, x: Any, y: Any) -> Any:
    return op.lerp(x, op.sin(x), y)


def masked_fill(op: Any, x: Any, y: Any) -> Any:
    return op.masked_fill(x, op.gt(x, 0), y)


@pytest.mark.parametrize("function", [clamp, clip, fill, lerp, masked_fill])
def test_a_tensor_without_dimensions_keeps_its_gradient(function: Callable[..., Any], mode: Callable[..., Any]) -> None:
    x, y = data(3, 4), np.float32(0.25)

    def call(x, y):
        return function(aten, x, y)

    found = mode(ms.grad(call, (0, 1)))(ms.Tensor(x), ms.Tensor(y))
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, y)]
    expected = torch.autograd.grad(function(torch, *leaves).sum(), leaves, allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one.asnumpy(), np.zeros(one.shape, np.float32) if other is None else other.numpy())


def test_an_overload_of_numbers_reads_a_tensor_without_dimensions() -> None:
    x = data(3, 4)
    assert np.array_equal(aten.sum(ms.Tensor(x), ms.Tensor(1)).asnumpy(), x.sum(1))
    assert np.array_equal(aten.clamp(ms.Tensor(x), ms.Tensor(0.25), 1.0).asnumpy(), x.clip(0.25, 1.0))
    assert np.array_equal(aten.clamp_min.default(ms.Tensor(x), ms.Tensor(0.25)).asnumpy(), x.clip(0.25))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_class_weights_have_no_gradient(smoothing: float, mode: Any) -> None:
    """PyTorch has no formula for it, and a graph asks for the gradients of all inputs."""
    weight, labels = ms.Tensor([1.0, 2.0, 3.0]), ms.Tensor([0, 2, 1, 1])

    def loss(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return aten.cross_entropy_loss(x, labels, weight, label_smoothing=smoothing)

    x = np.random.default_rng(0).random((4, 3), np.float32)
    reference = torch.tensor(x, requires_grad=True)
    lost = torch.nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0]), label_smoothing=smoothing)
    lost(reference, torch.tensor([0, 2, 1, 1])).backward()
    found = mode(ms.grad(loss))(ms.Tensor(x))
    assert reference.grad is not None
    np.testing.assert_array_equal(found.asnumpy(), reference.grad.numpy())
