"""Numbers that Python draws by `random` and `numpy.random`, in a graph: the module's own, in each call anew."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from random import random as drawn
from random import randrange
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import bridge
from shared import on_device, torch_device
from test_programs_data_sizes import Scaled, name_of

ARRAYS = np.random.default_rng(1).standard_normal((8, 5, 4)).astype(np.float32)


def left_out(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """By the name that the file has imported, between PyTorch's draws."""
    for _ in range(3):
        if drawn() < 0.4:
            continue
        y = nn.functional.dropout(y.sin(), 0.2)
    return y * random.random()


def mixed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As mixup does."""
    share = np.random.beta(0.8, 0.8)
    share = max(share, 1 - share)
    order = torch.randperm(len(y), device=y.device)
    return share * y + (1 - share) * y[order]


def forced(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As a decoder is that is given what it should have said, now and then."""
    said = y[0]
    for step in y[1:]:
        said = (said + (step if random.random() < 0.5 else said)).tanh()
    return said


def cropped(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    first = random.randint(0, 2)
    return y[first : first + 3].flip(randrange(2))


def chosen(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    function = random.choice([torch.sin, torch.exp, torch.square])
    return function(y) * np.random.choice([0.5, 2.0], p=[0.25, 0.75])


def of_many_kinds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    shift: Any = np.random.normal(loc=0.5, scale=np.float32(2))
    y = y * random.uniform(-1, 1) + shift
    y = y + random.gauss(0, 1) + random.betavariate(alpha=2, beta=3)
    return y * np.random.randint(1, high=4) + np.random.uniform()


def never(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Draws all the same."""
    return y if random.random() >= 0.0 and not np.random.rand() < 0 else y.new_zeros(3)


def in_a_checkpoint(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Which draws again for the gradient: PyTorch does not set Python's generators back."""
    part: Callable[..., Any] = lambda y: y.sin() * random.random()  # noqa: E731
    return checkpoint(part, y, use_reentrant=False)  # type: ignore[no-any-return]


def of_several(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y[random.sample(range(5), 2)] * torch.tensor(random.choices([1, 3], k=4)).to(y)


def of_an_array(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y * torch.from_numpy(np.random.rand(4)).to(y) + np.random.rand(1).item()


def in_tensors(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of arrays, and of lists with drawn numbers and arrays in them. A number alone is a size."""
    y = y * torch.Tensor(np.random.rand(4)).to(y) + torch.FloatTensor(np.random.rand(5, 1)).to(y)
    y = y[torch.LongTensor(np.random.permutation(5))] * y.new_tensor(np.random.rand(4)) + y.new(np.random.rand(4))
    y = y * y.new_tensor(random.random()) + torch.Tensor([[0.5, random.random()], [1, np.random.rand()]]).sum(1).max()
    y = y + torch.tensor([np.random.rand(4), np.arange(4.0)]).sum(0).to(y)
    y = y * torch.tensor(np.array([random.random(), 1, np.random.rand(), 2]), dtype=y.dtype)
    y = y - torch.from_numpy(np.array([[random.random()], [0.5]])).sum(0).to(y)
    y = y + torch.tensor([np.arange(1, 5, dtype=np.float32), np.random.rand(4).astype("f"), [0.1, 1, 2, 3]]).prod(0)
    assert isinstance(y, torch.FloatTensor) and y.new(2, 3).shape == torch.Tensor(2, 3).shape
    double: Any = torch.DoubleTensor
    return (y.type(double) * torch.Tensor(np.random.rand(1)).item()).type_as(x)


def permuted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y = y[np.random.permutation(len(y))]
    y[np.random.choice(5, 2, replace=False)] = 0.5
    return y


def mask_of(shape: tuple[int, int], share: float, lengths: torch.Tensor | None = None) -> np.ndarray:
    """As SpecAugment does."""
    rounding = np.random.rand(1).item()
    mask = np.zeros(shape, bool)
    for row, length in enumerate([shape[1]] * shape[0] if lengths is None else lengths.tolist()):
        count = int(share * shape[1] + rounding)
        mask[row, np.random.choice(np.arange(max(length, count)), count, replace=False)] = True
    return mask


def masked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y = y.masked_fill(torch.tensor(mask_of((5, 4), 0.3), device=y.device), 0)
    y[torch.from_numpy(mask_of((1, 5), 0.3)[0]).to(y.device)] = y.mean()
    return y * torch.as_tensor(mask_of((5, 4), 0.4, (x > 0).sum(1)), dtype=y.dtype, device=y.device)


def both_masks(shape: tuple[int, int]) -> np.ndarray:
    """Calls one that is taken for a call, and draws after it."""
    return (mask_of(shape, 0.5) | mask_of(shape, 0.3)) * np.random.rand(*shape)


def masked_twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y = y.masked_fill(torch.tensor(mask_of((5, 4), 0.3), device=y.device), 0)
    return y * torch.tensor(both_masks((5, 4)), dtype=y.dtype)


def noise_and_order(count: int) -> tuple[np.ndarray, np.ndarray]:
    order = list(range(count))
    random.shuffle(order)
    return np.random.standard_normal((count, 1)).astype(np.float32), np.array(order)


def disturbed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    noise, order = noise_and_order(5)
    return (y + torch.tensor(noise, device=y.device))[torch.tensor(order)]


def box_of(size: torch.Size, share: float) -> tuple[int, int, int, int]:
    height, width = size
    part = np.sqrt(1.0 - share)
    row, column = np.random.randint(height), np.random.randint(width)
    rows, columns = int(height * part) // 2, int(width * part) // 2
    ends = np.clip(row + rows, 0, height), np.clip(column + columns, 0, width)
    return np.clip(row - rows, 0, height), np.clip(column - columns, 0, width), *ends


def boxed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As CutMix does."""
    top, left, bottom, right = box_of(y.shape, np.random.beta(1.0, 1.0))
    other = y.flip(0)
    y = y.clone()
    y[top:bottom, left:right] = other[top:bottom, left:right]
    share = 1 - (bottom - top) * (right - left) / y.numel()
    return y * share


FUNCTIONS = [
    left_out, mixed, forced, cropped, chosen, of_many_kinds, never, in_a_checkpoint, of_several, of_an_array, permuted,
    in_tensors, masked, masked_twice, disturbed, boxed,
]  # fmt: skip


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


def graph_of(net: Any) -> Any:
    def called(x: ms.Tensor) -> Any:
        return net(x)

    return ms.jit(called)


def state() -> tuple[Any, ...]:
    return torch.rand(()).item(), random.random(), np.random.rand()


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad])
@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_a_graph_draws_as_pytorchs_program(function: Any, differentiate: Any) -> None:
    torch.manual_seed(0)
    module = Scaled(function)
    own = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    step = ms.jit(differentiate(net, None, net.trainable_params()))
    seed(0)
    found = [step(ms.Tensor(array)) for array in ARRAYS]
    end = state()
    seed(0)
    for array, (result, gradients) in zip(ARRAYS, found, strict=True):
        expected = own(on_device(array))
        own_gradients = torch.autograd.grad(expected.sum(), list(own.parameters()), allow_unused=True)
        np.testing.assert_array_equal(result.asnumpy(), expected.detach().cpu().numpy())
        for one, other in zip(gradients, own_gradients, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), 0 if other is None else other.cpu().numpy())
    assert end == state()


def test_what_compiles_draws_nothing() -> None:
    net = bridge.cell(Scaled(left_out))
    step = graph_of(net)
    seed(0)
    step(ms.Tensor(ARRAYS[0]))
    after = state()
    seed(0)
    step(ms.Tensor(ARRAYS[0]))
    assert after == state()


picked: Callable[[], float] = random.random


def half() -> float:
    return 0.5


class Picks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * picked()


def test_a_name_may_get_a_function_that_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    net = bridge.cell(Picks())
    x = np.ones((2, 3), np.float32)
    random.seed(0)
    expected = random.random()
    random.seed(0)
    np.testing.assert_array_equal(net(ms.Tensor(x)).asnumpy(), x * np.float32(expected))
    monkeypatch.setitem(globals(), "picked", half)
    np.testing.assert_array_equal(net(ms.Tensor(x)).asnumpy(), x / 2)
    monkeypatch.setitem(globals(), "picked", random.random)
    random.seed(0)
    np.testing.assert_array_equal(net(ms.Tensor(x)).asnumpy(), x * np.float32(expected))


def test_two_cells_of_a_graph_draw_in_turn() -> None:
    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * random.random() + np.random.rand()

    first, second = bridge.cell(Noisy()), bridge.cell(Noisy())

    def both(x: ms.Tensor) -> Any:
        return second(first(x))

    step = graph_of(both)
    seed(3)
    found = [step(ms.Tensor(array)).asnumpy() for array in ARRAYS]
    seed(3)
    own = Noisy()
    for array, result in zip(ARRAYS, found, strict=True):
        np.testing.assert_array_equal(result, own(own(on_device(array))).cpu().numpy())


def test_fused_code_draws() -> None:
    @bridge.fuse
    def fast(x: ms.Tensor) -> ms.Tensor:
        return bridge.torch.sin(x) * random.random()

    seed(5)
    found = [fast(ms.Tensor(array)).asnumpy() for array in ARRAYS]
    seed(5)
    for array, result in zip(ARRAYS, found, strict=True):
        np.testing.assert_array_equal(result, (on_device(array).sin() * random.random()).cpu().numpy())


def shuffled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    order = [0, 1, 2, 3, 4]
    random.shuffle(order)
    return y[order]


def used_by_numpy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    weights = np.random.rand(4)
    return y * torch.from_numpy(weights / weights.sum()).to(y)


def fill(mask: np.ndarray) -> np.ndarray:
    mask[np.argsort(np.random.rand(4))[:2]] = True
    return mask


def written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mask = np.zeros(4, bool)
    fill(mask)
    return y * torch.from_numpy(mask).to(y)


def by_an_array(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y * float(np.random.normal(np.zeros(())))


def by_data(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y * random.uniform(0, x.sum().item())


def seeded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    random.seed(1)
    return y


def by_a_default(x: torch.Tensor, y: torch.Tensor, draw: Callable[[], float] = random.random) -> torch.Tensor:
    return y * draw()


REFUSED = [
    (shuffled, ["random.shuffle draws what is no number and no array in Python", "random.shuffle(order)"]),
    (
        used_by_numpy,
        ["an array that rand draws is used by NumPy", "in a function of your file", "weights.sum"],
    ),
    (written, ["an array that rand draws is used by NumPy", "np.argsort(np.random.rand(4))"]),
    (by_an_array, ["numpy.random.normal draws by arguments that are neither numbers nor texts", "np.zeros(())"]),
    (by_data, ["random.uniform draws by a number that depends on data", "random.uniform(0, x.sum().item())"]),
    (seeded, ["sets the state of one"]),
    (by_a_default, ["draws numbers in Python by a generator of its own"]),
]


@pytest.mark.parametrize("function, words", REFUSED, ids=name_of)
def test_other_draws_are_refused(function: Any, words: list[str]) -> None:
    net = bridge.cell(Scaled(function))
    before = random.getstate(), repr(np.random.get_state())
    with pytest.raises(RuntimeError) as caught:
        graph_of(net)(ms.Tensor(ARRAYS[0]))
    for word in words:
        assert word in str(caught.value)
    assert before == (random.getstate(), repr(np.random.get_state()))


def some() -> np.ndarray:
    values = np.random.rand(4)
    return values[values > 0.5]


def test_arrays_of_other_sizes_are_refused() -> None:
    def of_some(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y * torch.from_numpy(some()).to(y).sum()

    step = graph_of(bridge.cell(Scaled(of_some)))
    with pytest.raises(RuntimeError, match=r"some gives \[\(\(\d,\), '<f8'\)\], and gave .* takes no other shapes"):
        for _ in range(20):
            step(ms.Tensor(ARRAYS[0]))


def test_a_function_that_draws_nothing_gives_constants() -> None:
    def in_boxes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return y[: len(mask_of((3, 4), 0.3))] * torch.from_numpy(weights_of(4)).to(y)

    module = Scaled(in_boxes)
    step, own = graph_of(bridge.cell(copy.deepcopy(module))), module.to(torch_device())
    seed(2)
    found = [step(ms.Tensor(array)).asnumpy() for array in ARRAYS]
    seed(2)
    for array, result in zip(ARRAYS, found, strict=True):
        np.testing.assert_array_equal(result, own(on_device(array)).detach().cpu().numpy())


def weights_of(count: int) -> np.ndarray:
    return np.arange(count) / np.arange(count).sum() + (np.random.rand() if count > 5 else 0)
