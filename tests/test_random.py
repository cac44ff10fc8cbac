"""Random operators: their draws follow the seeds, are PyTorch's, and no two are one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import aten
from bridge.torch.nn import functional as F

HALVES = np.full((64, 8), 0.5, np.float32)
WEIGHTS = np.linspace(0.1, 1.0, 16, dtype=np.float32)

Draw = Callable[[Any, Any], Any]

# Each draws through `op`, which is bridge.aten or torch.ops.aten, from arrays that `tensor` turns into tensors.
DRAWS: dict[str, Draw] = {
    "rand": lambda op, tensor: op.rand([32, 3]),
    "randn": lambda op, tensor: op.randn([32, 3]),
    "randint": lambda op, tensor: op.randint(0, 1000, [64]),
    "randperm": lambda op, tensor: op.randperm(100),
    "rand_like": lambda op, tensor: op.rand_like(tensor(HALVES)),
    "randn_like": lambda op, tensor: op.randn_like(tensor(HALVES)),
    "bernoulli": lambda op, tensor: op.bernoulli(tensor(HALVES)),
    "multinomial": lambda op, tensor: op.multinomial(tensor(WEIGHTS), 8),
    "normal": lambda op, tensor: op.normal(tensor(HALVES), 2.0),
    "poisson": lambda op, tensor: op.poisson(tensor(HALVES)),
    "dropout": lambda op, tensor: op.dropout(tensor(HALVES), 0.5, True),
    "feature_dropout": lambda op, tensor: op.feature_dropout(tensor(HALVES), 0.5, True),
    "native_dropout": lambda op, tensor: op.native_dropout(tensor(HALVES), 0.5, True)[0],
    "rrelu": lambda op, tensor: op.rrelu(tensor(-HALVES), 0.1, 0.9, True),
    "exponential": lambda op, tensor: op.exponential(tensor(HALVES), 1.5),
    "uniform": lambda op, tensor: op.uniform(tensor(HALVES), -1.0, 1.0),
    "geometric": lambda op, tensor: op.geometric(tensor(HALVES), 0.3),
}


def with_bridge(name: str) -> np.ndarray:
    return DRAWS[name](aten, ms.Tensor).asnumpy()


def with_torch(name: str) -> np.ndarray:
    return DRAWS[name](torch.ops.aten, torch.tensor).numpy()


@pytest.mark.parametrize("name", DRAWS)
def test_draws_after_manual_seed_are_those_of_torch(name: str) -> None:
    bridge.manual_seed(7)
    drawn = [with_bridge(name), with_bridge(name)]
    torch.manual_seed(7)
    np.testing.assert_array_equal(drawn, [with_torch(name), with_torch(name)])
    assert not np.array_equal(drawn[0], drawn[1])


SEEDS = {
    "bridge.manual_seed": bridge.manual_seed,
    "mindspore.set_seed": ms.set_seed,
    "mindspore.manual_seed": ms.manual_seed,
    "default_generator": lambda number: ms.default_generator.manual_seed(number),
}


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
@pytest.mark.parametrize("name", ["rand", "dropout", "multinomial"])
def test_same_seed_gives_same_draws_and_another_seed_others(name: str, seed: Callable[[int], None]) -> None:
    drawn = []
    for number in (5, 5, 6):
        seed(number)
        drawn.append(with_bridge(name))
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_every_seed_draws_what_torch_draws_after_the_same_seed(seed: Callable[[int], None]) -> None:
    seed(11)
    drawn = with_bridge("rand")
    torch.manual_seed(11)
    np.testing.assert_array_equal(drawn, with_torch("rand"))


def test_set_seed_still_seeds_mindspore() -> None:
    drawn = []
    for _ in range(2):
        ms.set_seed(3)
        drawn.append((ms.ops.rand(8).asnumpy(), np.random.rand(8)))  # set_seed seeds NumPy too
    np.testing.assert_array_equal(drawn[0], drawn[1])


def test_manual_seed_still_seeds_mindspore() -> None:
    assert ms.manual_seed(3) is ms.default_generator
    assert ms.initial_seed() == 3


def test_a_seed_by_chance_is_that_of_both() -> None:
    seed = ms.seed()
    drawn = with_bridge("rand")
    assert seed == ms.initial_seed()
    torch.manual_seed(seed)
    np.testing.assert_array_equal(drawn, with_torch("rand"))


@pytest.mark.parametrize("kept", [lambda state: state, lambda state: ms.Tensor(state.asnumpy())], ids=["kept", "saved"])
def test_a_state_brings_back_the_draws(kept: Callable[[ms.Tensor], ms.Tensor]) -> None:
    state = kept(ms.get_rng_state())
    own = ms.initial_seed()
    before = [with_bridge(name) for name in DRAWS]
    ms.manual_seed(own + 1)
    ms.set_rng_state(state)
    for found, expected in zip([with_bridge(name) for name in DRAWS], before, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert ms.initial_seed() == own


def test_a_state_fits_mindspores_own_generators_too() -> None:
    ms.manual_seed(23)
    other = ms.Generator()
    other.set_state(ms.get_rng_state())
    assert other.initial_seed() == 23
    ms.set_rng_state(other.get_state())  # MindSpore's part only: the bridge's draws go on
    assert ms.initial_seed() == 23


def test_states_in_a_graph_are_mindspores_own() -> None:
    @ms.jit
    def get():
        return ms.get_rng_state()

    @ms.jit
    def put(state):
        ms.set_rng_state(state)
        return state

    state = get()
    assert state.shape == (16,)
    np.testing.assert_array_equal(put(state).asnumpy(), state.asnumpy())


class Dropped(ms.nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.weight = ms.Parameter(ms.Tensor(np.ones(HALVES.shape, np.float32)))

    def construct(self, x):
        return aten.dropout(aten.mul(x, self.weight), 0.5, True)


@pytest.mark.parametrize("reentrant", [True, False])
def test_recompute_draws_what_the_forward_drew(reentrant: bool) -> None:
    cell = Dropped()
    cell.recompute(use_reentrant=reentrant)

    def total(x):
        result = cell(x)
        return result.sum(), result

    differentiated = ms.value_and_grad(total, has_aux=True)
    ms.manual_seed(37)
    (_, dropped), gradient = differentiated(ms.Tensor(HALVES))
    after = with_bridge("rand")
    mask = np.where(dropped.asnumpy() == 0, np.float32(0), np.float32(2))
    np.testing.assert_array_equal(gradient.asnumpy(), mask)
    torch.manual_seed(37)
    torch.dropout(torch.tensor(HALVES), 0.5, True)
    np.testing.assert_array_equal(after, with_torch("rand"))  # the backward leaves the generator as the forward did


def halved(x):
    return aten.dropout(x, 0.5, True)


class Around(ms.nn.Cell):
    """Draws twice, with what is computed again between."""

    def __init__(self, drawing: Callable[[Any], Any]) -> None:
        super().__init__()
        self.drawing = drawing

    def construct(self, x):
        return self.drawing(aten.mul(self.drawing(x), 3.0))


@pytest.mark.parametrize(
    "make",
    [
        lambda: halved,
        lambda: F.dropout,
        lambda: bridge.cell(torch.nn.Dropout(0.5)),
        lambda: bridge.cell(torch.nn.Sequential(torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.5))),
        lambda: bridge.fuse(halved),
    ],
    ids=["operator", "function", "cell", "with buffers", "fuse"],
)
def test_recompute_in_a_graph_draws_once(make: Callable[[], Any]) -> None:
    given = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)

    def gradients(recomputed: bool) -> list[Any]:
        cell = Around(make())
        cell.set_train()
        if recomputed:
            cell.recompute()

        @ms.jit
        def differentiated(x):
            return ms.value_and_grad(lambda x: cell(x), 0)(x)

        ms.manual_seed(37)
        return [*differentiated(ms.Tensor(given)), ms.Tensor(with_bridge("rand"))]

    for found, expected in zip(gradients(True), gradients(False), strict=True):
        np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy())


def test_seed_does_not_reach_back_to_calls_before_it() -> None:
    bridge.manual_seed(1)
    before = aten.randn([1000, 1000])  # asynchronous: may still be under way when the seed changes
    bridge.manual_seed(2)
    torch.manual_seed(1)
    np.testing.assert_array_equal(before.asnumpy(), torch.randn(1000, 1000).numpy())


def draw_once(x):
    return aten.dropout(x, 0.5, True)


def draw_twice(x):
    return aten.dropout(x, 0.5, True), aten.dropout(x, 0.5, True)


def draw_without_inputs():
    return aten.rand([16]), aten.rand([16])


def draw_in_order(x):
    first = aten.rand_like(x)
    second = aten.randn_like(x)
    third = aten.bernoulli(first)
    return first, second, third


def test_two_calls_of_one_graph_draw_differently() -> None:
    graph = ms.jit(draw_once)
    x = ms.Tensor(HALVES)
    bridge.manual_seed(3)
    drawn = [graph(x).asnumpy(), graph(x).asnumpy()]
    assert not np.array_equal(*drawn)
    torch.manual_seed(3)
    np.testing.assert_array_equal(drawn, [torch.dropout(torch.tensor(HALVES), 0.5, True).numpy() for _ in range(2)])


def test_two_equal_draws_in_one_graph_are_two() -> None:
    first, second = ms.jit(draw_twice)(ms.Tensor(HALVES))
    assert not np.array_equal(first.asnumpy(), second.asnumpy())


def test_two_draws_without_inputs_are_neither_merged_nor_folded_into_constants() -> None:
    graph = ms.jit(draw_without_inputs)
    drawn = [result.asnumpy() for _ in range(2) for result in graph()]
    assert len({result.tobytes() for result in drawn}) == 4


def test_draws_in_a_graph_keep_their_order() -> None:
    x = torch.tensor(HALVES)
    bridge.manual_seed(9)
    graph = ms.jit(draw_in_order)
    drawn = []
    for _ in range(3):  # MindSpore's scheduler orders what is free in the first run otherwise than later
        bridge.manual_seed(9)
        drawn.append([result.asnumpy() for result in graph(ms.Tensor(HALVES))])
    torch.manual_seed(9)
    first = torch.rand_like(x)
    expected = [t.numpy() for t in (first, torch.randn_like(x), torch.bernoulli(first))]
    for results in drawn:
        np.testing.assert_array_equal(results, expected)


def test_dropout_in_evaluation_draws_nothing() -> None:
    bridge.manual_seed(4)
    state = torch.get_rng_state()
    result = aten.dropout(ms.Tensor(HALVES), 0.5, False)
    np.testing.assert_array_equal(result.asnumpy(), HALVES)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_dropout_of_nothing_and_of_everything(p: float) -> None:
    np.testing.assert_array_equal(aten.dropout(ms.Tensor(HALVES), p, True).asnumpy(), HALVES * (1 - p))


def test_dropout_keeps_about_half_and_scales_it() -> None:
    result = aten.dropout(ms.Tensor(np.ones(10000, np.float32)), 0.5, True).asnumpy()
    assert set(np.unique(result)) == {0.0, 2.0}
    assert 4500 < np.count_nonzero(result) < 5500  # ten standard deviations (50) around the mean


SEEDED_BEFORE = """
import mindspore as ms
import torch
ms.set_device("CPU")
{first}
import bridge
from bridge import aten
{then}
drawn = aten.rand([3]).asnumpy()
torch.manual_seed({expected})
assert (drawn == torch.rand([3]).numpy()).all()
"""


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        ("", "ms.set_seed(4)", 4),
        ("ms.set_seed(4)", "", 4),
        ("", "ms.manual_seed(4)", 4),
        ("ms.set_seed(4)", "ms.manual_seed(5)", 5),
        ("", "ms.set_seed(4); torch.manual_seed(6)", 6),
        ("", "torch.manual_seed(6); torch.rand(3); ms.set_seed(4)", 4),
    ],
)
def test_the_first_call_draws_from_the_seed_that_was_set_before(first: str, then: str, expected: int) -> None:
    program = SEEDED_BEFORE.format(first=first, then=then, expected=expected)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("first", "then"), [("", "ms.set_seed(4)"), ("ms.set_seed(4)", ""), ("ms.manual_seed(4)", "")])
def test_modules_that_are_made_before_the_first_call_have_the_weights_of_the_seed(first: str, then: str) -> None:
    program = f"""
import mindspore as ms
import torch
{first}
import bridge
{then}
weight = torch.nn.Linear(2, 2).weight
torch.manual_seed(4)
assert torch.equal(weight, torch.nn.Linear(2, 2).weight)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


RECOMPUTED_AT_ONCE = """
import mindspore as ms
from mindspore import nn
from bridge import aten


class Block(nn.Cell):
    def construct(self, x):
        return aten.dropout(x, 0.5, True) * x


ms.set_device("CPU")
ms.set_seed(1)
x = ms.Tensor([1.0] * 64)
block = Block()
block.recompute()
outputs = []


def loss(x):
    out = block(x)
    outputs.append(out)
    return out.sum()


gradient = ms.grad(loss)(x).asnumpy()
assert ((outputs[0].asnumpy() != 0) == (gradient != 0)).all(), "the gradient drew again"
"""


def test_recompute_of_the_first_call_draws_what_it_drew() -> None:
    done = subprocess.run([sys.executable, "-c", RECOMPUTED_AT_ONCE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
