"""Programs of plain functions, in both modes: PyTorch's bits, state that they write to, and what is kept of them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch.nn import functional as F

import bridge
from bridge import aten
from bridge.op import devices
from bridge.primitive.tensors import from_torch
from bridge.programs import store
from bridge.programs.program import Program
from bridge.programs.state import tensor_of
from bridge.programs.written_down import write_down
from shared import data

pytestmark = [pytest.mark.usefixtures("own_programs")]


graph_only = pytest.mark.parametrize("context_mode", ["graph"], indirect=True)


def device() -> str:
    return devices.torch_name(devices.target())


def numbers(*shape: int) -> torch.Tensor:
    return torch.from_numpy(data(*shape))


def equal(own: ms.Tensor, expected: torch.Tensor) -> bool:
    return np.array_equal(own.asnumpy(), expected.detach().cpu().numpy(), equal_nan=True)


class Calls(ms.nn.Cell):
    """A Cell that calls a program with constants."""

    def __init__(self, program: Program, **constants: Any) -> None:
        super().__init__()
        self.program, self.constants = program, constants

    def construct(self, *tensors):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.program(*tensors, **self.constants)


FUNCTIONS: list[tuple[Callable[..., Any], list[torch.Tensor], dict[str, Any]]] = [
    (F.cross_entropy, [numbers(4, 5), torch.tensor([0, 4, 2, 1])], {"label_smoothing": 0.1}),
    (F.interpolate, [numbers(1, 2, 4, 4)], {"scale_factor": 2.0, "mode": "bilinear"}),
    (F.max_pool2d, [numbers(1, 2, 4, 4)], {"kernel_size": 2, "return_indices": True}),
    (torch.einsum, [], {}),
    (functools.partial(torch.softmax, dim=-1), [numbers(3, 4)], {}),
    (lambda x, y: (x @ y).relu_() + 1, [numbers(3, 4), numbers(4, 2)], {}),
]


LABELS = torch.tensor([0, 2, 1])
# Their last tensor has no derivative.
WEIGHTED: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "cross_entropy": (lambda x, w: F.cross_entropy(x, LABELS.to(x.device), w), torch.rand(4)),
    "nll_loss": (lambda x, w: F.nll_loss(x, LABELS.to(x.device), w), torch.rand(4)),
    "multi_margin_loss": (lambda x, w: F.multi_margin_loss(x, LABELS.to(x.device), weight=w), torch.rand(4)),
    "binary_cross_entropy": (lambda x, w: F.binary_cross_entropy(x.sigmoid(), 0.5 * w, w), torch.rand(3, 4)),
    "with_logits": (lambda x, w: F.binary_cross_entropy_with_logits(x, torch.ones_like(x), w), torch.rand(3, 4)),
    "pos_weight": (
        lambda x, w: F.binary_cross_entropy_with_logits(x, torch.ones_like(x), pos_weight=w.sum(0)), torch.rand(3, 4),
    ),
    "weight_and_pos_weight": (
        lambda x, w: F.binary_cross_entropy_with_logits(x, torch.ones_like(x), w, pos_weight=w[0]), torch.rand(3, 4),
    ),
    "pos_weight_by_name": (
        lambda x, w: torch.binary_cross_entropy_with_logits(x, torch.ones_like(x), pos_weight=w).mean(), torch.rand(4),
    ),
    "soft_margin_loss": (F.soft_margin_loss, torch.ones(3, 4)),
    "fake_quantize_per_channel": (
        lambda x, w: torch.fake_quantize_per_channel_affine(x, w, w.new_zeros(3, dtype=torch.int32), 0, -4, 4).sum(),
        torch.rand(3) + 0.1,
    ),
    "fake_quantize_per_tensor": (
        lambda x, w: torch.fake_quantize_per_tensor_affine(x, w, w.new_zeros(1, dtype=torch.int32), -4, 4).sum(),
        torch.rand(1) + 0.1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WEIGHTED)
def test_arguments_without_a_derivative_are_constants(context_mode: str, name: str) -> None:
    function, weight = WEIGHTED[name]
    x = numbers(3, 4).to(device()).requires_grad_()
    expected = function(x, weight.to(device()))
    (given,) = torch.autograd.grad(expected, x)
    call = Calls(Program(function))
    inputs = from_torch(x.detach()), from_torch(weight)
    assert equal(call(*inputs), expected)
    of_x, of_weight = ms.grad(call, (0, 1))(*inputs)
    assert equal(of_x, given)
    if name != "binary_cross_entropy":  # there it is the label, too
        assert not of_weight.asnumpy().any()


@pytest.mark.parametrize("function, tensors, constants", FUNCTIONS)
def test_results_and_gradients_are_pytorchs(
    context_mode: str, function: Callable[..., Any], tensors: list[torch.Tensor], constants: dict[str, Any]
) -> None:
    if function is torch.einsum:
        function, tensors = functools.partial(torch.einsum, "ij,jk->ik"), [numbers(3, 4), numbers(4, 2)]
    moved = [tensor.to(device()).requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    expected = function(*moved, **constants)
    first = expected[0] if isinstance(expected, tuple) else expected
    given = torch.autograd.grad(first.sum(), moved[0])[0]
    call = Calls(Program(function), **constants)
    inputs = [from_torch(tensor) for tensor in tensors]
    own = call(*inputs)
    assert equal(own[0] if isinstance(expected, tuple) else own, first)

    def total(*x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        y = call(*x)
        return y[0].sum() if isinstance(y, tuple) else y.sum()

    assert equal(ms.grad(total)(*inputs), given)


class Momentum:
    """An optimizer's step: parameters and a state that it writes to, gradients as arguments."""

    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        self.optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True)
        for parameter in parameters:
            self.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)

    def state(self) -> dict[str, torch.Tensor]:
        found = {}
        for i, parameter in enumerate(self.optimizer.param_groups[0]["params"]):
            found[f"{i}"] = parameter
            found[f"{i}.momentum_buffer"] = self.optimizer.state[parameter]["momentum_buffer"]
        return found

    def __call__(self, *gradients: torch.Tensor) -> None:
        for parameter, gradient in zip(self.optimizer.param_groups[0]["params"], gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad()


def test_state_is_written_to(context_mode: str) -> None:
    expected = [torch.nn.Parameter(numbers(3).to(device())), torch.nn.Parameter(numbers(2, 2).to(device()))]
    own = [ms.Parameter(from_torch(tensor), name=f"p{i}") for i, tensor in enumerate(expected)]
    theirs, ours = Momentum(expected), Momentum([tensor_of(parameter) for parameter in own])
    call = Calls(Program(ours, name="step", state=ours.state()))
    for step in range(3):
        gradients = [numbers(3) + step, numbers(2, 2) * step]
        theirs(*(gradient.to(device()) for gradient in gradients))
        call(*map(from_torch, gradients))
        assert all(map(equal, own, expected))


def test_a_parameter_has_one_tensor() -> None:
    parameter = ms.Parameter(from_torch(numbers(3)), name="p")
    tensor = tensor_of(parameter)
    assert tensor_of(parameter) is tensor
    assert Program(torch.relu, state={"p": tensor}).state.parameters["p"] is parameter
    parameter.set_data(ms.Tensor(np.arange(3, dtype=np.float32)))
    program = Program(lambda: tensor * 2, state={"p": tensor})
    assert program().asnumpy().tolist() == [0, 2, 4]


def _kept() -> int:
    return len(list(store.place().glob("*.json"))) if store.place().exists() else 0


FOUND = torch.ones(3, device=devices.torch_name(devices.target()))


def test_what_is_kept_follows_from_all_that_a_function_sees() -> None:
    def scaled(factor: Any) -> Callable[..., Any]:
        return lambda x: x * factor

    seen = [write_down(scaled(factor), []) for factor in (2, 3, numbers(3), numbers(3) + 1)]
    assert len({written.digest for written in seen if written is not None}) == 4
    again = write_down(scaled(2), [])
    assert again is not None and seen[0] is not None and again.digest == seen[0].digest
    other = write_down(lambda x: x / 2, [])
    assert other is not None and other.digest != seen[0].digest


@graph_only
def test_a_function_is_kept_if_all_of_its_tensors_are_known(context_mode: str) -> None:
    x = from_torch(numbers(3))
    found: Any = sys.modules[__name__]
    assert equal(Calls(Program(lambda x: x + FOUND))(x), numbers(3) + 1)
    assert _kept() == 1
    assert equal(Calls(Program(lambda x: x - found.FOUND))(x), numbers(3) - 1)
    assert equal(Calls(Program(lambda x: x * found.FOUND.tolist()[0]))(x), numbers(3))
    assert _kept() == 1  # nobody could tell that the tensor is another in the next process


SCALE = 2.0


class Scales(ms.nn.Cell):
    """A Cell that calls the bridge, with a module inside, an option and a Parameter."""

    def __init__(self, drop: float = 0.5, bias: float = 1.0) -> None:
        super().__init__()
        self.part: Any = bridge.cell(torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(drop)))
        self.weight, self.bias = ms.Parameter(ms.Tensor([1.0, 2.0, 3.0]), name="weight"), bias

    @property
    def shift(self) -> float:
        return SCALE * self.bias

    def construct(self, x):
        return aten.add(aten.mul(self.part(x), self.weight), self.shift)


@graph_only
def test_own_code_is_kept_for_the_next_process(context_mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Cell or function that is made anew has the plan of one that does the same, and of no other."""
    x = from_torch(torch.ones(1, 3))

    def kept_after(net: Any, is_fused: bool = False) -> int:
        own = bridge.fuse(net) if is_fused else bridge.value_and_grad(lambda x: net(x) * 2, None, net.weight)

        def call(x):
            return own(x)

        ms.jit(call)(x)
        return _kept()

    torch.manual_seed(0)
    assert kept_after(Scales()) == 1
    torch.manual_seed(1)  # other weights make no other program
    assert kept_after(Scales()) == 1
    assert kept_after(Scales(), is_fused=True) == 2
    assert kept_after(Scales(drop=0.25)) == 3
    assert kept_after(Scales(bias=2.0)) == 4
    assert kept_after(Scales().set_train()) == 5
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert kept_after(Scales()) == 6


@graph_only
@pytest.mark.parametrize("read", [lambda p: p.detach()[0].item(), lambda p: p.data.sum().item()])
def test_a_float_of_state_is_what_the_state_has(context_mode: str, read: Callable[[torch.Tensor], float]) -> None:
    parameter = torch.nn.Parameter(numbers(3).to(device()))
    call = Calls(Program(lambda x: x * read(parameter), state={"p": parameter}))
    assert equal(call(from_torch(numbers(3))), numbers(3) * read(parameter))
    call.program.state.parameters["p"].set_data(ms.Tensor(np.ones(3, np.float32)))
    assert equal(call(from_torch(numbers(3))), numbers(3) * read(torch.ones(3)))


@graph_only
def test_state_is_not_read_while_a_graph_is_captured(context_mode: str) -> None:
    parameter = torch.nn.Parameter(numbers(3).to(device()))
    call = Calls(Program(lambda x: x * parameter.tolist()[0], state={"p": parameter}))
    with pytest.raises(RuntimeError, match="asks for a value that depends on data"):
        call(from_torch(numbers(3)))


@graph_only
def test_the_data_of_state_is_state(context_mode: str) -> None:
    parameter = torch.nn.Parameter(numbers(3).to(device()))
    call = Calls(Program(lambda x: x * parameter.data, state={"p": parameter}))
    assert equal(call(from_torch(numbers(3))), numbers(3) * numbers(3))
    call.program.state.parameters["p"].set_data(ms.Tensor(np.ones(3, np.float32)))
    assert equal(call(from_torch(numbers(3))), numbers(3))
