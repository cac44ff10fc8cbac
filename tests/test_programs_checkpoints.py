"""Modules that run a part again for the gradient, and modules that keep something for their next call."""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import bridge
from shared import data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs")]


class Parts(nn.Module):
    """Layers for a function to use."""

    def __init__(self, function: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function
        self.first, self.second, self.drop = nn.Linear(6, 6), nn.Linear(6, 6), nn.Dropout(0.4)
        self.norm, self.layer_norm = nn.BatchNorm1d(6), nn.LayerNorm(6)
        self.register_buffer("hidden", torch.zeros(4, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def dropped(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.second(m.drop(m.first(x)))


def with_checkpoint(part: Callable[[Any, torch.Tensor], torch.Tensor], **options: Any) -> Any:
    def forward(m: Any, x: torch.Tensor) -> torch.Tensor:
        options.setdefault("use_reentrant", False)
        return m.drop(checkpoint(lambda y: part(m, y), m.first(x), **options))  # type: ignore[no-any-return]

    return forward


def nested(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.drop(checkpoint(lambda y: dropped(m, m.norm(y)), x, use_reentrant=False))  # type: ignore[no-any-return]


def drawn_again(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The same mask twice, without a checkpoint."""
    get, put = (torch.cuda.get_rng_state, torch.cuda.set_rng_state) if x.is_cuda else (
        torch.get_rng_state, torch.set_rng_state
    )  # fmt: skip
    state = get()
    y = m.drop(m.first(x))
    put(state)
    return y - m.drop(m.second(x)) + m.drop(x)  # type: ignore[no-any-return]


def forked(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Another draw, of other sizes, after a state that was set back."""
    with torch.random.fork_rng():
        y = F.dropout(m.first(x), 0.3)
    with torch.random.fork_rng():
        noise = torch.randn(3)
    return y * m.drop(m.second(x)) + torch.rand(5).sum() * noise.sum()


def set_back(m: Any, x: torch.Tensor) -> torch.Tensor:
    state = torch.default_generator.get_state()
    y = m.first(x) * torch.bernoulli(m.first(x).sigmoid().detach())
    torch.default_generator.set_state(state)
    return y - m.second(x) * torch.bernoulli(m.second(x).sigmoid().detach())  # type: ignore[no-any-return]


def set_back_by_torch_random(m: Any, x: torch.Tensor) -> torch.Tensor:
    state, own = torch.random.get_rng_state().clone(), torch.random.default_generator.get_state()
    y = F.dropout(m.first(x), 0.3)
    torch.random.set_rng_state(state)
    y = y * torch.rand(x.shape[0], 1, device=x.device)
    torch.random.default_generator.set_state(own)
    return y + torch.rand(6, device=x.device)  # type: ignore[no-any-return]


def mixed_norms(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Norms of an input and weights of two dtypes."""
    with torch.autocast(x.device.type, torch.bfloat16):
        y = m.layer_norm(m.first(x)) + m.norm(m.second(x))
        y = y + F.group_norm(m.second(x), 2, m.layer_norm.weight, m.layer_norm.bias)
    return y.float()


def from_distribution(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Many questions whether arguments are valid, some of them of constants."""
    normal = torch.distributions.Normal(m.first(x), F.softplus(m.second(x)) + 0.1)
    drawn = normal.rsample()
    prior = torch.distributions.Normal(0.0, 1.0)
    return normal.log_prob(drawn) - torch.distributions.kl_divergence(normal, prior)


def puts_another_buffer(m: Any, x: torch.Tensor) -> torch.Tensor:
    """The gradient needs what the buffer was before."""
    y = torch.tanh(m.first(x) * m.hidden + m.second(x))
    m.hidden = y.detach()
    return y * m.hidden


FORWARDS: list[Any] = [
    with_checkpoint(dropped),
    with_checkpoint(dropped, use_reentrant=True),
    with_checkpoint(dropped, preserve_rng_state=False),
    with_checkpoint(lambda m, x: m.second(m.norm(x))),
    with_checkpoint(lambda m, x: x * torch.bernoulli(m.second(x).sigmoid()), use_reentrant=False),
    with_checkpoint(nested),
    drawn_again,
    mixed_norms,
    from_distribution,
    puts_another_buffer,
]


def gradients_of(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: own.grad.cpu().numpy() for name, own in module.named_parameters() if own.grad is not None}


@pytest.mark.parametrize("forward", FORWARDS)
def test_steps_are_pytorchs(forward: Any, context_mode: str) -> None:
    compare_steps(forward)


@pytest.mark.parametrize("forward", [forked, set_back, set_back_by_torch_random])
def test_draws_after_a_state_that_was_set_back(forward: Any, context_mode: str) -> None:
    # What a GPU draws does not follow from the state of torch.default_generator.
    if context_mode == "graph" and torch_device() != "cpu" and forward is forked:
        with pytest.raises(RuntimeError, match=r"a generator's state|the state of a generator is set back"):
            compare_steps(forward)
    else:
        compare_steps(forward)


def compare_steps(forward: Any) -> None:
    """Results, gradients, buffers and the next numbers of three steps; PyTorch's are those of `backward()`."""
    torch.manual_seed(0)
    module = Parts(forward)
    reference = copy.deepcopy(module).to(torch_device())
    cell: Any = bridge.cell(module)
    differentiate = ms.value_and_grad(cell, 0, cell.trainable_params())
    for seed in range(3):
        x = on_device(data(4, 6, seed=seed), requires_grad=True)
        torch.manual_seed(seed)
        reference.zero_grad()
        expected = reference(x)
        expected.sum().backward()
        drawn = torch.rand(2, device=torch_device())
        bridge.manual_seed(seed)
        found, (of_input, of_weights) = differentiate(ms.Tensor(data(4, 6, seed=seed)))
        found.asnumpy(), of_input.asnumpy()
        assert torch.equal(torch.rand(2, device=torch_device()), drawn)
        assert x.grad is not None
        np.testing.assert_array_equal(found.asnumpy(), expected.detach().cpu().numpy())
        np.testing.assert_array_equal(of_input.asnumpy(), x.grad.cpu().numpy())
        names = [weight.name for weight in cell.trainable_params()]
        own = dict(zip(names, of_weights, strict=True))
        for name, gradient in gradients_of(reference).items():
            np.testing.assert_array_equal(own[name].asnumpy(), gradient, err_msg=name)
        for name, buffer in reference.named_buffers():
            np.testing.assert_array_equal(cell.parameters_dict()[name].asnumpy(), buffer.cpu().numpy(), err_msg=name)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda x: torch.rand(x.shape, generator=torch.default_generator), "is given a generator"),
        (lambda x: torch.rand(x.shape) * torch.default_generator.initial_seed(), r"default_generator\.initial_seed"),
    ],
)
def test_what_else_asks_for_the_default_generator_is_refused(draw: Any, words: str, graph_mode: None) -> None:
    cell: Any = bridge.cell(Parts(lambda m, x: m.first(x) * draw(x)))
    with pytest.raises(RuntimeError, match=words):
        cell(ms.Tensor(data(4, 6)))


class ForksInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        with torch.random.fork_rng():
            return gradient * torch.rand(6, device=gradient.device)


def test_a_state_that_backward_sets_back_is_refused(graph_mode: None) -> None:
    cell: Any = bridge.cell(Parts(lambda m, x: ForksInBackward.apply(m.first(x))))
    with pytest.raises(RuntimeError, match=r"the state of a generator is set back on a GPU or in backward"):
        ms.value_and_grad(cell, 0, cell.trainable_params())(ms.Tensor(data(4, 6)))


def test_other_threads_have_the_default_generator(graph_mode: None) -> None:
    sizes = []

    def asks(m: Any, x: torch.Tensor) -> torch.Tensor:
        thread = threading.Thread(target=lambda: sizes.append(torch.default_generator.get_state().numel()))
        thread.start()
        thread.join()
        return m.first(x)  # type: ignore[no-any-return]

    own = torch.default_generator.get_state().numel()
    bridge.cell(Parts(asks))(ms.Tensor(data(4, 6)))
    assert {*sizes} == {own}


def test_a_draw_of_other_data(graph_mode: None) -> None:
    def twice(m: Any, x: torch.Tensor) -> torch.Tensor:
        get, put = (torch.cuda.get_rng_state, torch.cuda.set_rng_state) if x.is_cuda else (
            torch.get_rng_state, torch.set_rng_state
        )  # fmt: skip
        state = get()
        y = torch.bernoulli(m.first(x).sigmoid())
        put(state)
        return y + torch.bernoulli(m.second(x).sigmoid())  # type: ignore[no-any-return]

    cell: Any = bridge.cell(Parts(twice))
    if torch_device() == "cpu":
        torch.manual_seed(3)
        expected = cell.module(on_device(data(4, 6)))
        torch.manual_seed(3)
        np.testing.assert_array_equal(cell(ms.Tensor(data(4, 6))).asnumpy(), expected.detach().numpy())
    else:
        with pytest.raises(RuntimeError, match=r"aten::bernoulli draws again, perhaps of other data"):
            cell(ms.Tensor(data(4, 6)))


class AsksForGradients(nn.Module):
    """As Wav2Vec2 does it. In PyTorch the input requires no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x[:, None]
        if self.training:
            x.requires_grad = True
        return checkpoint(self.line, x, use_reentrant=True)  # type: ignore[no-any-return]


def test_a_module_asks_for_the_gradient_of_a_view(context_mode: str) -> None:
    module = AsksForGradients()
    reference = copy.deepcopy(module).to(torch_device())
    cell: Any = bridge.cell(module)
    found, of_weights = ms.value_and_grad(cell, None, cell.trainable_params())(ms.Tensor(data(4, 6)))
    expected = reference(on_device(data(4, 6)))
    expected.backward(torch.ones_like(expected))
    np.testing.assert_array_equal(found.asnumpy(), expected.detach().cpu().numpy())
    for gradient, (name, wanted) in zip(of_weights, gradients_of(reference).items(), strict=True):
        np.testing.assert_array_equal(gradient.asnumpy(), wanted, err_msg=name)


class HandsOn(nn.Module):
    """A state in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.GRUCell(6, 6), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.last = self.cell(x, None if self.last is None else self.last.detach())
        return self.last  # type: ignore[return-value]


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class Appends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(x)
        return torch.stack(self.seen).sum(0)


class PutsAnother(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale: torch.Tensor
        self.register_buffer("scale", torch.ones(6), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale = self.scale * 2
        return x * self.scale


@dataclasses.dataclass
class State:
    calls: int = 0


class CountsInside(nn.Module):
    """A number in what the attribute holds."""

    def __init__(self, kept: Any, count: Callable[[Any], float]) -> None:
        super().__init__()
        self.kept, self.count = kept, count

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.count(self.kept)


class Table(dict[str, int]):
    pass


def in_nested(kept: dict[str, list[int]]) -> float:
    kept["calls"][0] += 1
    return kept["calls"][0]


def in_length(kept: Any) -> float:
    kept.append(1)
    return len(kept)


def in_table(kept: dict[str, int]) -> float:
    kept["calls"] = kept.get("calls", 0) + 1
    return kept["calls"]


def in_array(kept: Any) -> float:
    kept += 1
    return float(kept[0])


def in_object(kept: State) -> float:
    kept.calls += 1
    return kept.calls


class FillsABuffer(nn.Module):
    """The buffer is None until the first call."""

    first: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first is None:
            self.first = x.detach().clone()
        return x + self.first


class RegistersABuffer(nn.Module):
    first: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "first"):
            self.register_buffer("first", x.detach().clone())
        return x + self.first


class DropsABuffer(nn.Module):
    first: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, self.first = self.first, None
        return x if first is None else x + first


def in_generator(kept: Any) -> float:
    return float(kept.random())


def in_random_state(kept: np.random.RandomState) -> float:
    return kept.rand()


def test_a_list_of_hooks_that_a_capture_makes_is_not_left(graph_mode: None) -> None:
    """As transformers does for `output_hidden_states`."""

    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line, self.is_hooked = nn.Linear(6, 6), False
            self.seen: list[torch.Tensor] = []

        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            if not self.is_hooked:
                self.line.register_forward_hook(lambda part, inputs, result: self.seen.append(result))
                self.is_hooked = True
            found = [self.line(x) + 1, *self.seen]
            self.seen.clear()
            return found

    module = Hooked()
    cell: Any = bridge.cell(module)
    reference = copy.deepcopy(module).to(torch_device())
    for length in (4, 3):
        found = cell(ms.Tensor(data(length, 6)))
        assert not module.line._forward_hooks
        expected = reference(on_device(data(length, 6)))
        assert len(found) == len(expected) == 2
    ms.set_context(mode=ms.PYNATIVE_MODE)
    found, expected = cell(ms.Tensor(data(4, 6))), reference(on_device(data(4, 6)))
    assert len(found) == len(expected)
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(own.asnumpy(), other.detach().cpu().numpy())


def as_text(module: nn.Module, name: str) -> Any:
    """What an attribute is and holds, to be compared."""
    kept = getattr(module, name, "none")
    if isinstance(kept, torch.Tensor):  # wherever it is
        return kept.tolist()
    state = getattr(kept, "getstate", None) or getattr(kept, "get_state", None)
    return repr([kept, state and state(), getattr(getattr(kept, "bit_generator", None), "state", None)])


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize(
    "make, name",
    [
        (HandsOn, "last"),
        (Counts, "calls"),
        (Appends, "seen"),
        (PutsAnother, "scale"),
        (FillsABuffer, "first"),
        (RegistersABuffer, "first"),
        (DropsABuffer, "first"),
        *(
            (functools.partial(CountsInside, kept, count), "kept")
            for kept, count in (
                ({"calls": [0]}, in_nested),
                (collections.deque(maxlen=9), in_length),
                (collections.UserList(), in_length),
                (collections.OrderedDict(), in_table),
                (Table(), in_table),
                (np.zeros(1), in_array),
                (State(), in_object),
                (random.Random(0), in_generator),
                (np.random.default_rng(0), in_generator),
                (np.random.RandomState(0), in_random_state),
            )
        ),
    ],
)
def test_what_only_the_next_call_sees_is_refused(make: Callable[[], nn.Module], name: str) -> None:
    module = make()
    before = as_text(module, name)
    cell: Any = bridge.cell(module)
    with pytest.raises(RuntimeError, match=rf"{type(module).__name__}\.{name} changes in a call .*register_buffer"):
        cell(ms.Tensor(data(4, 6)))
    assert as_text(module, name) == before
    ms.set_context(mode=ms.PYNATIVE_MODE)  # which sees it, and meets nothing of the graph's
    reference = copy.deepcopy(module).to(torch_device())
    for seed in range(2):
        found, expected = cell(ms.Tensor(data(4, 6, seed=seed))), reference(on_device(data(4, 6, seed=seed)))
        np.testing.assert_array_equal(found.asnumpy(), expected.detach().cpu().numpy())


class KeepsATable(nn.Module):
    """In evaluation mode it keeps what `make` gives until it is trained again, as LeViT does with biases."""

    def __init__(self, make: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.make, self.weight = make, nn.Parameter(torch.linspace(0.0, 1.0, 9))
        self.table: dict[str, torch.Tensor] = {}

    def train(self, mode: bool = True) -> KeepsATable:
        if mode:
            self.table.clear()
        return super().train(mode)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            return x * self.make(self.weight, x)
        if "made" not in self.table:
            self.table["made"] = self.make(self.weight, x)
        return x * self.table["made"]


class KeepsTheFirst(KeepsATable):
    train = nn.Module.train


def of_weight(weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return weight[torch.arange(6, device=x.device)].exp()


def test_a_table_of_parameters_that_training_drops() -> None:
    module: Any = nn.Sequential(KeepsATable(of_weight)).eval()
    reference = copy.deepcopy(module).to(torch_device())
    cell: Any = bridge.cell(module)
    cell.set_train(False)

    @ms.jit
    def evaluated(x: ms.Tensor) -> ms.Tensor:
        return cell(x)

    for seed in range(3):
        x = data(4, 6, seed=seed)
        np.testing.assert_array_equal(evaluated(ms.Tensor(x)).asnumpy(), reference(on_device(x)).detach().cpu().numpy())
        assert not module[0].table
        weight = cell.trainable_params()[0]
        weight.set_data(ms.Tensor(weight.asnumpy() + 0.5))
        reference[0].weight.data += 0.5
        reference.train().eval()


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize(
    "module",
    [KeepsTheFirst(of_weight), KeepsATable(lambda weight, x: x * 2), KeepsATable(lambda weight, x: torch.rand_like(x))],
    ids=["not dropped", "of an argument", "of a draw"],
)
def test_another_table_is_refused(module: nn.Module) -> None:
    cell: Any = bridge.cell(module.eval())
    with pytest.raises(RuntimeError, match=rf"{type(module).__name__}\.table changes in a call"):
        cell(ms.Tensor(data(4, 6)))


@pytest.mark.usefixtures("graph_mode")
@pytest.mark.parametrize(
    "kept", [itertools.count(1), iter([1, 2, 3]), itertools.cycle([1, 2]), (number for number in range(9))], ids=type
)
def test_an_iterator_that_a_call_moves_on_is_refused(kept: Any) -> None:
    cell: Any = bridge.cell(CountsInside(kept, next))
    with pytest.raises(RuntimeError, match=r"CountsInside\.kept changes in a call"):
        cell(ms.Tensor(data(4, 6)))


class Remembers(nn.Module):
    """An attribute that nobody reads before it is set, and a table that the first call makes."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(6, 6)
        self.table: torch.Tensor | None
        self.register_buffer("table", None, persistent=False)
        self.length = 0
        self.prior = torch.distributions.MultivariateNormal(on_device(data(6)), torch.eye(6, device=torch_device()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None or self.length < len(x):
            self.table, self.length = torch.arange(float(len(x)), device=x.device)[:, None].cos(), len(x)
        x = x * self.table[: len(x)]
        self.attention = self.line(x).softmax(-1)
        return self.attention * x + self.prior.variance  # which it computes once


@pytest.mark.usefixtures("graph_mode")
def test_what_no_call_sees_is_not_refused() -> None:
    module = Remembers()
    found = bridge.cell(module)(ms.Tensor(data(4, 6)))
    assert "attention" not in vars(module)  # a graph has no tensor for it
    expected = copy.deepcopy(module).to(torch_device())(on_device(data(4, 6)))
    np.testing.assert_array_equal(found.asnumpy(), expected.detach().cpu().numpy())
    ms.set_context(mode=ms.PYNATIVE_MODE)
    found = bridge.cell(module)(ms.Tensor(data(4, 6)))
    np.testing.assert_array_equal(found.asnumpy(), expected.detach().cpu().numpy())


_CALLS = 0
_NUMBERS = np.random.default_rng(0)


class CountsInFile(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global _CALLS
        _CALLS += 1
        return x * _CALLS


class CountsInClass(nn.Module):
    calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        type(self).calls += 1
        return x * self.calls


class DrawsInFile(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * float(_NUMBERS.random())


@pytest.mark.parametrize(
    "make, name", [(CountsInFile, "_CALLS"), (CountsInClass, "CountsInClass.calls"), (DrawsInFile, "_NUMBERS")]
)
def test_what_a_file_keeps_for_the_next_call_is_refused(graph_mode: None, make: Any, name: str) -> None:
    cell: Any = bridge.cell(make())
    with pytest.raises(RuntimeError, match=rf"{__name__}\.{name} changes in a call"):
        cell(ms.Tensor(data(4, 6)))
    ms.set_context(mode=ms.PYNATIVE_MODE)
    first, second = (cell(ms.Tensor(data(4, 6))).asnumpy() for _ in range(2))
    assert (first != second).any()


class ChecksSmall(nn.Module):
    """So few calls that their gradients need no engine, but for the checkpoint, which asks it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.runs = nn.BatchNorm1d(6), 0

    def part(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        return self.norm(x.sin())  # type: ignore[no-any-return]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.part, x, use_reentrant=False)  # type: ignore[no-any-return]


def test_a_small_checkpoint_runs_its_part_twice() -> None:
    module = ChecksSmall()
    reference = copy.deepcopy(module).to(torch_device())
    cell: Any = bridge.cell(module)
    reference(on_device(data(4, 6), requires_grad=True)).sum().backward()
    ms.value_and_grad(cell, None, cell.trainable_params())(ms.Tensor(data(4, 6)))
    assert module.runs == reference.runs == 2
    for name, buffer in reference.named_buffers():
        np.testing.assert_array_equal(cell.parameters_dict()[name].asnumpy(), buffer.cpu().numpy(), err_msg=name)


class RunsAgain(torch.autograd.Function):
    """As reversible layers do: its backward calls `backward`, which adds to the `grad` of a part's parameters."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, part: nn.Module) -> torch.Tensor:
        ctx.part = part
        ctx.save_for_backward(x)
        with torch.no_grad():
            return part(x)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.part(x)
        torch.autograd.backward(y, gradient)
        return x.grad, None


class Reversible(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(RunsAgain.apply(self.first(x), self.second))  # type: ignore[no-any-return, no-untyped-call]


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad])
def test_what_a_backward_adds_to_grad_is_in_the_gradients(differentiate: Any, context_mode: str) -> None:
    torch.manual_seed(0)
    module = Reversible()
    reference = copy.deepcopy(module).to(torch_device())
    cell: Any = bridge.cell(module)
    expected = reference(on_device(data(4, 6)))
    expected.backward(torch.ones_like(expected))
    found = differentiate(cell, None, cell.trainable_params())(ms.Tensor(data(4, 6)))[1]
    for own, parameter, kept in zip(found, reference.parameters(), module.parameters(), strict=True):
        assert parameter.grad is not None and kept.grad is None
        np.testing.assert_array_equal(own.asnumpy(), parameter.grad.cpu().numpy())
