"""Sizes that data decides, in a graph: masks, `unique`, `nonzero`, and what follows from them."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn

import bridge
from bridge import aten
from bridge.programs import capture, data_sizes, plan
from shared import class_at_sync, data, on_device, torch_device

RNG = np.random.default_rng(0)
# Zeros are among them, and one has no positive number in its first column.
ARRAYS = [RNG.standard_normal((6, 4)).astype(np.float32) for _ in range(3)]
ARRAYS.append(-np.abs(ARRAYS[0]))


class Scaled(nn.Module):
    """Something of what a layer gives, with a parameter of its own besides."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.layer(x)) * self.scale


def put(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y = y.clone()
    y[x > 0] = y[0, 0].clone()
    return y


def put_and_taken(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mask = x > 0
    before = len(x.detach()[mask])
    mask[:, 0] = False  # in place: another number of elements
    return y[mask] * before + y[mask]


def put_to_constants(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Masks of which the data is known."""
    constant = torch.zeros(4, device=x.device)
    mask = torch.tensor([True, False, True, True], device=x.device)
    constant[mask] = 2
    y = y * constant
    y[:, mask] = 3
    return y * constant[mask].sum()


def with_loops(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Edges between rows: loops are taken out and put in again, as graph convolutions do, and some are taken twice."""
    edges = (x.t()[:2] * 3).long().abs() % len(x)
    edges = edges[:, edges[0] != edges[1]]
    edges = torch.cat([edges, torch.arange(len(x), device=x.device).repeat(2, 1)], 1)
    y = torch.zeros_like(y).index_add(0, edges[1], y[edges[0]])
    upward = edges[:, edges[0] < edges[1]]
    return y + torch.zeros_like(y).index_add(0, upward[1], y[upward[0]])


def experts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two layers of experts. Which rows the second one's take follows from the first."""
    for _ in range(2):
        chosen = y.argmax(1)
        result = torch.zeros_like(y)
        for expert in range(3):
            (rows,) = torch.where(chosen == expert)
            result.index_add_(0, rows, y[rows] * (expert + 1))
        y = y + result.roll(1, 1)
    return y


def every_second(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Python makes a mask out of a size."""
    taken = y[x[:, 0] > 0]
    return taken[torch.arange(len(taken), device=x.device) % 2 == 0]


def some_of_range(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of numbers that Python makes out of a size, data decides which are taken."""
    taken = y[x[:, 0] > 0]
    return taken[torch.arange(len(taken), device=x.device) < x.sum()]


def inverses(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    values, inverse, counts = torch.unique((x * 2).long(), return_inverse=True, return_counts=True)
    return (y * counts[inverse]).sum() + values.float().mul(y[0, 0]).sum()


def of_statistics(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mask follows from a call that writes to what it is given."""
    mean, variance = torch.zeros(4, device=x.device), torch.ones(4, device=x.device)
    normal = nn.functional.batch_norm(y, mean, variance, training=True)
    return y[normal > 0] * mean.sum()


def pooled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Rows added by the graph that they belong to. Data says how many there are."""
    graphs = (x[:, 0] * 3).long().abs()
    return y.new_zeros(int(graphs.max()) + 1, 4).index_add(0, graphs, y)


def padded(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    lengths = (x[:, 0] * 2).long().abs() + 1
    steps = torch.arange(lengths.max().item(), device=x.device)
    return y[:, :1] * (steps < lengths[:, None])


def checked(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """It is a question whether the integers are sizes or on the way to an error."""
    lengths = (x[:, 0] * 2).long().abs()
    if (lengths < 0).any():
        raise ValueError(f"{lengths.min().item()} is no length")
    if int(lengths.max()) > 50:
        raise ValueError("too long")
    return y.new_ones(int(lengths.sum()) + 1, 4) * y[0]


def marked_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two tensors and one mask, which is smaller, and a mask that is larger in a dimension."""
    mask = x[:, :1] > 0
    rows = y.masked_select(mask).view(-1, 4) * (x * 3).masked_select(mask).view(-1, 4)
    return rows.sum() + y[:1].masked_select(mask) * y[0].masked_select(x > 0).sum()


FUNCTIONS = [
    marked_rows, lambda x, y: y.masked_select(x[0] > 0), lambda x, y: y.masked_select((x > 0).expand(2, *x.shape)),
    lambda x, y: y[x[:, 0] > 0], lambda x, y: y[x > 0], lambda x, y: y.t().masked_select(x.t() > 0), put, put_and_taken,
    put_to_constants, lambda x, y: y.t()[x.t() > 0], lambda x, y: y.t()[x[0] > 0], lambda x, y: y[:, x[0] > 0],
    lambda x, y: torch.unique((x * 2).long(), dim=1).sum(0) * y[0, 0],
    lambda x, y: y[(x > 0).nonzero(as_tuple=True)], lambda x, y: (x > 0).nonzero().sum(1) * y[0, 0],
    lambda x, y: y[x[:, 0] > 0, 1], lambda x, y: torch.repeat_interleave(y, (x[:, 0] > 0).long() + 1, 0),
    lambda x, y: y[0, 0] * torch.bincount((x[0] > 0).long()), with_loops, experts, every_second, some_of_range,
    inverses, of_statistics, pooled, padded, checked,
    lambda x, y: nn.functional.one_hot((x[0] > 0).long()).sum(1) * y[0, 0], lambda x, y: y[int((x[0] > 0).sum())],
    lambda x, y: y * (x > 0).sum().item(),
]  # fmt: skip


def name_of(function: Any) -> str:
    return str(getattr(function, "__name__", function))


def compare(module: nn.Module, arrays: list[np.ndarray], differentiate: Any = ms.value_and_grad) -> None:
    own = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)

    def loss(x):
        result = net(x)
        return aten.sum(aten.square(result)), result

    step = ms.jit(differentiate(loss, None, ms.ParameterTuple(net.trainable_params()), has_aux=True))
    for array in arrays:
        (_, found), gradients = step(ms.Tensor(array))
        result = own(on_device(array))
        # The gradient of the sum itself would be one number, expanded, which MindSpore has as a whole tensor.
        expected = torch.autograd.grad(result.square().sum(), list(own.parameters()), allow_unused=True)
        np.testing.assert_array_equal(found.asnumpy(), result.detach().cpu().numpy())
        for one, other in zip(gradients, expected, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), 0 if other is None else other.cpu().numpy())
    for name, buffer in own.named_buffers():
        np.testing.assert_array_equal(net.parameters_dict()[name].asnumpy(), buffer.detach().cpu().numpy())


@pytest.mark.parametrize("function", FUNCTIONS, ids=name_of)
def test_sizes_follow_the_data(function: Any) -> None:
    torch.manual_seed(0)
    compare(Scaled(function), ARRAYS)


def if_any(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As a detector asks whether there are boxes."""
    found = y[x[:, 0] > 0]
    if found.shape[0] == 0:
        return y.square().sum()
    return found.tanh().sum()


def if_many(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    found = y[x[:, 0] > 0]
    return (found.tanh() if len(found) > 1 else found).sum()


def in_each_part(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    losses = []
    for part, own in zip(x, y, strict=True):
        found = own[part > 0]
        losses.append(own.exp().sum() if len(found) == 0 else found.sin().sum())
    return torch.stack(losses)


def if_enough(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Only then there is a second size, and with it a third."""
    rows = y[x[:, 0] > 0]
    if len(rows) < 2:
        return y.sum()
    found = rows[rows[:, 0] > 0]
    return rows.sum() + (found[found > 0.1].sin() if len(found) > 0 else found.exp()).sum()


def if_both(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Only some answers lead to a size."""
    if x.sum() > 0 and x[0, 0] < 0:
        return y[y > 0].sin().sum()
    return y.sum()


def for_each_row(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As many for each of the rows."""
    marked = (x.abs() > 0).roll(int((x[0, 0] > 0).item()), 1)
    return y[marked].view(len(x), -1).amax(1)


def of_classes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of those that are there: it would be an error if none were."""
    classes = (x[:, 0] * 2).long().abs() % 3
    losses = []
    for i in range(3):
        if (classes == i).any():
            losses.append(y[classes == i].square().mean())
    return sum(losses) / len(losses) + torch.stack(losses).amax()


def centers(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of the groups that have rows: it would be an error if none had, and the sizes say so."""
    groups = torch.cdist(x, x.new_tensor([[-0.5] * 4, [0.5] * 4, [3.0] * 4])).argmin(1)
    found = [y[groups == i] for i in range(3)]
    return torch.stack([rows.mean(0) for rows in found if len(rows) > 0]).square().sum(0)


def until_close(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        new = y.tanh()
        if torch.allclose(new, y, atol=0.1) or new.allclose(x):
            break
        y = new
    return y


def segments(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As a vocoder takes pieces that begin somewhere."""
    begin = (x[:, 0].abs() * 2).long() % 3
    pieces = torch.zeros(3, 2, 4, device=x.device)
    for i in range(3):
        pieces[i] = y[begin[i] : begin[i] + 2]
    at = begin[0].clone()
    first = y[at : at + 1]
    at += 1
    return pieces.sum(0) + first * y[at:].sum() + y[begin[1] + 3 - 1 : begin[1] + 4].sum()


NOTHING = [*ARRAYS[:3], -np.abs(ARRAYS[0]), *(-array for array in ARRAYS[:3]), np.abs(ARRAYS[1])]


@pytest.mark.parametrize(
    "function",
    [if_any, if_many, in_each_part, if_enough, if_both, for_each_row, of_classes, centers, until_close, segments],
    ids=name_of,
)
def test_branches_follow_sizes(function: Any) -> None:
    torch.manual_seed(0)
    compare(Scaled(function), NOTHING)


def matched(own: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
    least, nearest = torch.cdist(own.detach(), boxes).min(1)
    is_close = least < 2
    return (own[is_close] - boxes[nearest[is_close]]).abs().sum()


def of_images(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As a detector matches boxes: an image without any is left out."""
    total = y.sum()
    for part, own in zip(x.split(2), y.split(2), strict=True):
        boxes = part[part[:, 0] > 0]
        if len(boxes) == 0:
            continue
        total = total + matched(own, boxes)
    return total


def of_images_in_one_line(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    boxes = [part[part[:, 0] > 0] for part in x.split(2)]
    return y.sum() + sum(matched(own, some) for own, some in zip(y.split(2), boxes, strict=True) if len(some))


def of_generator(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    def parts() -> Iterator[torch.Tensor]:
        for row, own in zip(x.split(2), y.split(2), strict=True):
            if row.sum() > 0:
                yield own[own > 0].sum()

    return y.sum() + sum(parts())


def of_recursion(x: torch.Tensor, y: torch.Tensor, depth: int = 2) -> torch.Tensor:
    """As a tree is grown: both halves of each part, but of one that is not parted."""
    marked = x[:, depth] > 0
    if depth == 0 or len(y[marked]) in (0, len(y)):
        return y.square().sum()
    first = of_recursion(x[marked], y[marked], depth - 1)
    return first + of_recursion(x[~marked], y[~marked], depth - 1).tanh()


def until_halted(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As adaptive computation time goes on with those that have not halted: each size follows from the one before."""
    halting = torch.zeros(len(x), device=x.device)
    for _ in range(4):
        goes_on = halting < 1
        y = y.clone()
        y[goes_on] = torch.tanh(y[goes_on] * 2)
        halting[goes_on] += y[goes_on].detach().abs().mean(1)
    return y * halting[:, None]


def by_bytes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Questions of integers."""
    for _ in range(2):
        if (y.detach() > 0.5).byte().any():
            y = y * 0.7
        if not (y.detach() > 0).sum():
            y = y + 0.1
    return y


def of_splines(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As layers of flows transform what lies inside of a box."""
    for bound in (0.5, 0.8):
        inside = y.detach().abs() < bound
        z = torch.zeros_like(y)
        z[~inside] = y[~inside]
        if torch.any(inside):
            z[inside] = y[inside].sin() * x[inside]
        y = z
    return y


def after_a_loop(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of as many rounds as data says."""
    total = y.sum()
    for row in y[x[:, 1] > 0]:
        total = total + row.sin().sum()
    found = y[x[:, 0] > 0]
    return total + found.cos().sum() * len(found)


class Boxes:
    """As detectors keep them."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __getitem__(self, item: torch.Tensor) -> Boxes:
        return Boxes(self.tensor[item])


def of_own_items(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    boxes = Boxes(y)
    for _ in range(2):
        boxes = boxes[boxes.tensor.detach()[:, 0] < 0.5]
    return boxes.tensor.sum() + y.sum()


def of_one_number(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """What follows from a size only if it is a certain one."""
    found = y[x[:, 0] > 0]
    if len(found) == 2:
        found = found * 3
    rest = found[found.detach()[:, 1] > 0]
    return rest.sum() + y.sum()


def with_an_error(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As detectors name the first box that is none."""
    bad = x > 99
    if bad.any():
        first = torch.where(bad.any(1))[0][0]
        raise ValueError(f"row {first} is bad")
    found = y[x > 0]
    return found[found.detach() > 0.1].sum() + y.sum()


def of_answers_that_exclude_each_other(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """It would be an error if all of them were True."""
    is_more, is_less = bool(x.sum() > 0), bool(x.sum() <= 0)
    if is_more and is_less:
        y = y.view(5, 5)
    if is_less:
        return y.sum()
    found = y[x > 0]
    return found[found.detach() > 0].sum()


def of_cells(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As YOLO marks the cells that have objects: two may be in one."""
    marks = torch.zeros(6, 4, device=x.device)
    for i in range(3):
        row, column = (x[i, :2].abs() * 3).clamp(max=3)
        marks[int(row), int(column)] = 1
    is_marked = marks > 0
    return nn.functional.mse_loss(y[is_marked], marks[is_marked])


@pytest.mark.parametrize("function", [until_halted, of_splines], ids=name_of)
def test_sizes_may_follow_from_each_other(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Mock(side_effect=plan.make_count)
    monkeypatch.setattr(plan, "make_count", counts)
    torch.manual_seed(0)
    compare(Scaled(function), NOTHING)
    assert function is of_splines or counts.call_count == 1


class Marks(nn.Module):
    def __init__(self, least: float) -> None:
        super().__init__()
        self.layer, self.least = nn.Linear(4, 4), least

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        found = y[y.detach() > self.least]
        return y * 0.5 + found.sum() * 0.1 * len(found)


def test_parts_of_a_sequence_have_places_of_their_own() -> None:
    torch.manual_seed(0)
    compare(nn.Sequential(Marks(0.0), Marks(0.3), nn.Tanh(), Marks(-0.1)), NOTHING)


class StartsTable(nn.Module):
    """A table that the first call fills, with what has a gradient."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("table", torch.full((3,), -1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).exp()
        if self.table[2] < 0:
            self.table[2] = y.mean()
        return y / self.table[2].detach().clone()


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["MindSpore's", "in one"])
def test_a_buffer_forgets_what_was_written_to_it(differentiate: Any) -> None:
    torch.manual_seed(0)
    compare(StartsTable(), ARRAYS, differentiate)


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["MindSpore's", "in one"])
def test_as_many_cells_as_are_marked(differentiate: Any) -> None:
    torch.manual_seed(0)
    compare(Scaled(of_cells), NOTHING[:5], differentiate)


PLACES = [
    of_images, of_images_in_one_line, of_generator, of_recursion, by_bytes, after_a_loop, of_own_items, of_one_number,
    with_an_error, of_answers_that_exclude_each_other,
]  # fmt: skip


@pytest.mark.parametrize("function", PLACES, ids=name_of)
def test_what_a_loop_leaves_out_is_no_other_size(function: Any) -> None:
    torch.manual_seed(0)
    images = [ARRAYS[0].copy() for _ in range(6)]
    for present, array in zip([(1, 1, 1), (1, 1, 0), (0, 0, 0), (0, 1, 1), (1, 0, 1), (0, 0, 1)], images, strict=True):
        array[:, 0] = np.abs(array[:, 0]) * np.repeat(present, 2) - 0.01
    compare(Scaled(function), images)


def two_ways(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return y if x.sum() > 0 else x * 3


def three_ways(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The last has no gradient."""
    if x.sum() > 3:
        return y.exp()
    elif (x > 0).any():
        return y * 2
    return x


def returns_early(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mask = x[:, 0] > 0
    if mask.sum() == 0:
        return (y * 0).sum()
    return y[mask].mean()


def nested(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    if x[0, 0] > 0:
        y = y.sin()
        if x[0, 1] > 0:
            y = y * y
    return y if x[1, 0] > 0 else -y


def until_small(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    steps = 0
    while y.abs().max() > 0.3 and steps < 9:
        y, steps = y * 0.7, steps + 1
    return y


def some_experts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two layers of those that have rows. Which these are in the second one follows from the first."""
    for _ in range(2):
        chosen, result = y.argmax(1), torch.zeros_like(y)
        for expert in range(2):
            mask = chosen == expert
            if mask.any():
                result[mask] = y[mask] * (expert + 1)
        y = y + result.roll(1, 1)
    return y


def once_more(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """An error is one way of a question, and another question goes both ways."""
    if (y > 1e6).any():
        raise ValueError(f"{y.max()} is too large")
    return y.sqrt() if (y > 0).all() else y.square()


WAYS = [two_ways, three_ways, returns_early, nested, until_small, some_experts, once_more]


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["MindSpore's", "in one"])
@pytest.mark.parametrize("function", WAYS, ids=name_of)
def test_branches_follow_the_data(function: Any, differentiate: Any) -> None:
    torch.manual_seed(0)
    compare(Scaled(function), [*ARRAYS, -ARRAYS[0], np.abs(ARRAYS[1]), ARRAYS[0]], differentiate)


class Normalizes(nn.Module):
    """A branch draws, and has statistics that change."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = nn.BatchNorm1d(4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x[0, 0] > 0:
            x = nn.functional.dropout(self.norm(x), 0.3, self.training)
        return self.layer(x)


def leaves_layers_out(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """As transformers' layers do, whose generator is that of the CPU."""
    for factor in (2, 3, 4):
        if torch.rand([]) < 0.4:
            continue
        y = y + nn.functional.dropout(y.sin() * factor, 0.3)
    return y


def leaves_a_layer_out_on_the_device(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    y = nn.functional.dropout(y, 0.1)
    noise = torch.empty_like(y.t()).normal_(0, 0.1)
    return y.cos() + noise.t() if torch.rand(1, device=x.device) < 0.5 else y * 2


def samples_rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """So many numbers are drawn as data says, and what is drawn decides a size."""
    (rows,) = torch.where(x[:, 1] > 0)
    kept = torch.rand(len(rows), device=x.device) < 0.5
    chosen = rows[torch.randperm(len(rows), device=x.device)[: len(rows) // 2 + 1]]
    y = nn.functional.dropout(y, 0.2)
    return y[rows[kept]].sum() + y[chosen].sum() * 2


def follows_draws_of_data(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """How much is drawn may depend on the data before."""
    counts = torch.poisson(y.detach().abs() * 3)
    if torch.bernoulli(y.detach().sigmoid()).sum() > 11:
        y = y * counts
    return y + nn.functional.dropout(y, 0.5)


def attends_then_samples(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Attention without dropout draws nothing, and neither does rrelu in evaluation mode."""
    mask = torch.ones(len(x), len(x), device=x.device).tril()[None, None] > 0
    y = nn.functional.scaled_dot_product_attention(y[None, None], y[None, None], y[None, None], mask)[0, 0]
    y = nn.functional.rrelu(y, training=False)
    return y[y > 0] * 2


DRAWS = [leaves_layers_out, leaves_a_layer_out_on_the_device, samples_rows, follows_draws_of_data, attends_then_samples]


@pytest.mark.parametrize("function", DRAWS, ids=name_of)
def test_branches_and_sizes_follow_what_is_drawn(function: Any) -> None:
    """What a graph draws for them it draws once, as PyTorch does."""
    torch.manual_seed(0)
    module = Scaled(function)
    own = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    step = ms.jit(ms.value_and_grad(net, None, net.trainable_params()))
    arrays = [*ARRAYS[:3], *ARRAYS[:3]]

    def run(call: Callable[[np.ndarray], Any]) -> tuple[list[Any], torch.Tensor]:
        torch.manual_seed(2)
        found = [call(array) for array in arrays]
        return found, torch.rand(3, device=torch_device())

    def in_pytorch(array: np.ndarray) -> tuple[torch.Tensor, ...]:
        result = own(on_device(array))
        return result, *torch.autograd.grad(result.sum(), list(own.parameters()))

    expected, after_expected = run(in_pytorch)

    def in_graph(array: np.ndarray) -> list[np.ndarray]:
        result, gradients = step(ms.Tensor(array))
        return [result.asnumpy(), *(gradient.asnumpy() for gradient in gradients)]

    found, after_found = run(in_graph)
    for own_results, results in zip(expected, found, strict=True):
        for one, other in zip(results, own_results, strict=True):
            np.testing.assert_array_equal(one, other.detach().cpu().numpy())
    assert torch.equal(after_found, after_expected)


def never(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(40):
        if torch.rand(()) < 0.0 or torch.empty(1).uniform_(0, 3) >= 3.5:
            y = y * float(y.sum())
    return y


def test_a_question_that_all_draws_answer_alike_is_none() -> None:
    """There are more than a graph takes, and the other way is refused."""
    torch.manual_seed(0)
    compare(Scaled(never), ARRAYS[:2])


def test_a_branch_has_state_of_its_own() -> None:
    torch.manual_seed(0)
    module = Normalizes()
    own = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)

    step = ms.jit(ms.value_and_grad(net, None, net.trainable_params()))
    for array in (*ARRAYS, -ARRAYS[0]):
        torch.manual_seed(1)
        found, gradients = step(ms.Tensor(array))
        torch.manual_seed(1)
        result = own(on_device(array))
        expected = torch.autograd.grad(result, list(own.parameters()), torch.ones_like(result), allow_unused=True)
        np.testing.assert_array_equal(found.asnumpy(), result.detach().cpu().numpy())
        for one, other in zip(gradients, expected, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), 0 if other is None else other.cpu().numpy())
        for name, buffer in own.named_buffers():
            np.testing.assert_array_equal(net.parameters_dict()[name].asnumpy(), buffer.cpu().numpy())
    net.set_train(False)
    own.eval()
    np.testing.assert_array_equal(net(ms.Tensor(ARRAYS[0])).asnumpy(), own(on_device(ARRAYS[0])).detach().cpu().numpy())


class CannotBeDifferentiated(nn.Module):
    """PyTorch cannot differentiate one of two ways."""

    def __init__(self, is_first: bool) -> None:
        super().__init__()
        self.scale, self.is_first = nn.Parameter(torch.tensor(2.0)), is_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = (x * self.scale).exp()
        if (x.sum() > 0) == self.is_first:
            y.add_(1)
        return y


@pytest.mark.parametrize("is_first", [False, True])
def test_an_answer_that_has_no_gradient_raises_pytorchs_error(is_first: bool) -> None:
    net = bridge.cell(CannotBeDifferentiated(is_first))
    step = ms.jit(ms.value_and_grad(net, None, net.trainable_params()))
    x = np.abs(ARRAYS[0]) * (-1 if is_first else 1)
    _, (gradient,) = step(ms.Tensor(x))
    own = CannotBeDifferentiated(is_first)
    own(torch.from_numpy(x)).sum().backward()  # type: ignore[no-untyped-call]
    assert own.scale.grad is not None
    np.testing.assert_allclose(gradient.asnumpy(), own.scale.grad.numpy(), rtol=1e-6)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        step(ms.Tensor(-x))[1][0].asnumpy()
        ms.runtime.synchronize()


class SaysWhich(nn.Module):
    """Constants that are equal, and not the same."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (x, True) if x.sum() > 0 else (x, 1)


SLICES = [
    lambda y, n: y[: int(n)], lambda y, n: y[int(n) :], lambda y, n: y[int(n) : int(n) + 2], lambda y, n: y[:n],
    lambda y, n: y[:, : n.item()], lambda y, n: (y[: int(n)], y), lambda y, n: torch.cat([y[int(n) :], y[: int(n)]]),
]  # fmt: skip


@pytest.mark.parametrize("cut", SLICES, ids=range(len(SLICES)))
def test_a_slice_may_be_a_part_or_all(cut: Any) -> None:
    class Sliced(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
            return cut(self.layer(x), n)

    torch.manual_seed(0)
    net = bridge.cell(Sliced())
    own = copy.deepcopy(net.module).to(torch_device())
    x = RNG.standard_normal((5, 4)).astype(np.float32)

    def loss(x, n):
        result = net(x, n)
        return aten.sum(aten.square(result[0])) if isinstance(result, tuple) else aten.sum(aten.square(result))

    step = ms.jit(ms.value_and_grad(loss, None, ms.ParameterTuple(net.trainable_params())))
    for n in (2, 5, 0, 3):
        value, gradients = step(ms.Tensor(x), ms.Tensor(n))
        result = own(on_device(x), torch.tensor(n))
        expected = (result[0] if isinstance(result, tuple) else result).square().sum()
        wanted = torch.autograd.grad(expected, list(own.parameters()))
        assert value.asnumpy() == expected.detach().cpu().numpy()
        for one, other in zip(gradients, wanted, strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.cpu().numpy())


class Normalized(nn.Module):
    """The mask follows from a layer in training mode, and so from what writes to its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        return self.layer(x)[x[:, 0] > 0]


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad])
def test_statistics_are_counted_once(differentiate: Any) -> None:
    compare(Normalized(), ARRAYS[:2], differentiate)


class AttendsToMarked(nn.Module):
    """Marked rows attend to all, as in Longformer. How many there are at most is asked for in several ways, and what is
    taken in one order is put in another one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).view(2, 3, 4)
        is_marked = x[:, 0].view(2, 3) > 0
        if is_marked.any().item():
            counts = is_marked.long().sum(1)
            most: Any = counts.max()
            marked = is_marked.nonzero(as_tuple=True)
            taken = (torch.arange(most, device=x.device) < counts.unsqueeze(1)).nonzero(as_tuple=True)
            keys = y.new_zeros(2, most, 4)
            keys[taken] = y[marked]
            scores = torch.cat([y @ keys.transpose(1, 2), y], -1)
            assert list(keys.size()) == [2, most, 4]
            others = scores.narrow(-1, most, scores.size(-1) - most)
            assert others.size(-1) == 4
            y = others.softmax(-1) + scores.narrow(-1, 0, most) @ keys
            y[marked] = (keys[taken] * 2).view(len(taken[0]), -1)
        return y


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad])
def test_sizes_that_have_to_be_alike(differentiate: Any) -> None:
    torch.manual_seed(0)
    compare(AttendsToMarked(), ARRAYS, differentiate)


class MasksPadding(nn.Module):
    """The mask is as long as the longest, and fits only where there are as many steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            mask = torch.arange(int(lengths.max()), device=x.device) >= lengths[:, None]
            x = layer(x).masked_fill(mask[..., None], 0)
        result, _ = self.attention(x, x, x, key_padding_mask=mask)
        return result


@pytest.mark.parametrize("is_unknown", [False, True])
def test_a_size_is_what_fits(is_unknown: bool) -> None:
    torch.manual_seed(0)
    net = bridge.cell(MasksPadding().eval())
    own = copy.deepcopy(net.module)
    batches = [RNG.standard_normal(shape).astype(np.float32) for shape in [(3, 7, 4), (2, 5, 4)]]
    if is_unknown:
        unknown = [ms.Tensor(shape=[None, None, 4], dtype=ms.float32), ms.Tensor(shape=[None], dtype=ms.int64)]
        net.set_inputs(*unknown)

    @ms.jit
    def call(x, lengths):
        return net(x, lengths)

    for batch in batches:
        lengths = np.arange(len(batch)) + batch.shape[1] - len(batch) + 1
        found = call(ms.Tensor(batch), ms.Tensor(lengths)).asnumpy()
        expected = own.to(torch_device())(on_device(batch), on_device(lengths))
        np.testing.assert_array_equal(found, expected.detach().cpu().numpy())
    with pytest.raises(RuntimeError, match="was taken to be 5, with which the program fits together, and is another"):
        call(ms.Tensor(batch), ms.Tensor(lengths - 1)).asnumpy()


class BeginsByClusters(nn.Module):
    """Its first call takes as many means from the data as there are, and bincount knows how many."""

    means: torch.Tensor
    has_begun: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("means", torch.randn(5, 4))
        self.register_buffer("has_begun", torch.tensor(False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.has_begun:
            counts = torch.bincount(torch.cdist(x, self.means).argmin(-1), minlength=5)
            self.means.copy_(torch.where((counts == 0)[:, None], self.means, self.means / counts.clamp(min=1)[:, None]))
            self.has_begun.fill_(True)
        return x @ self.means.T


def test_a_first_call_has_a_size_that_has_to_fit() -> None:
    torch.manual_seed(0)
    module = BeginsByClusters()
    reference = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    call = compiled(net)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((9, 4)).astype(np.float32)
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), reference(on_device(x)).cpu().numpy())
    np.testing.assert_array_equal(net.parameters_dict()["means"].asnumpy(), reference.means.cpu().numpy())


class LosesMaskedRows(nn.Module):
    def forward(self, x: torch.Tensor, lengths: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        mask = torch.arange(int(lengths.max()), device=x.device) < lengths[:, None]
        return nn.functional.binary_cross_entropy_with_logits(x.masked_fill(~mask, 0.0), labels)


def test_an_error_that_no_size_has_led_to_is_pytorchs() -> None:
    net = bridge.cell(LosesMaskedRows())

    @ms.jit
    def call(x, lengths, labels):
        return net(x, lengths, labels)

    x, lengths = RNG.standard_normal((3, 7)).astype(np.float32), np.array([7, 5, 3])
    labels = np.ones((3, 7), np.int64)
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long") as caught:
        call(ms.Tensor(x), ms.Tensor(lengths), ms.Tensor(labels))
        ms.runtime.synchronize()
    assert "return nn.functional.binary_cross_entropy_with_logits" in str(caught.value)
    assert "taken to be others than the data's" not in str(caught.value)
    labels = labels.astype(np.float32)
    found = call(ms.Tensor(x), ms.Tensor(lengths), ms.Tensor(labels)).asnumpy()
    expected = net.module(on_device(x), on_device(lengths), on_device(labels))
    np.testing.assert_array_equal(found, expected.cpu().numpy())


class Couples(nn.Module):
    """The mask is a buffer, and the layer fits only as many columns as it marks."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([True, False, True, False]))
        self.layer = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, self.mask] = self.layer(x[:, ~self.mask])
        return x


class Cuts(nn.Module):
    """A buffer has the bounds."""

    bounds: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bounds", torch.tensor([1, 4]))
        self.layer = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x[:, self.bounds[0] : self.bounds[1]])


class Splits(nn.Module):
    """Buffers have sizes that fit only together, as the shapes of a detector's levels."""

    shapes: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shapes", torch.tensor([[2, 2], [1, 2]]))
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = self.layer(x).split([height * width for height, width in self.shapes])
        return first.view(int(self.shapes[0, 0]), -1).sum(0) + second.mean()


@pytest.mark.parametrize("module", [Couples, Cuts, Splits])
def test_a_size_is_what_a_buffer_gives(module: Any) -> None:
    torch.manual_seed(0)
    compare(module(), ARRAYS[:2])


class BeginsByData(nn.Module):
    """The first batch decides the scale, as in an activation normalization."""

    initialized: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("initialized", torch.tensor(False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.initialized:
            with torch.no_grad():
                self.scale.copy_(1 / x.std(0))
            self.begin()
        return x * self.scale

    def begin(self) -> None:
        self.initialized.fill_(True)


class BeginsByAssigning(BeginsByData):
    """As nflows' ActNorm does."""

    def begin(self) -> None:
        self.initialized.data = torch.tensor(True, device=self.scale.device)


def compiled(net: Any) -> Any:
    @ms.jit
    def call(x):
        return net(x)

    return call


@pytest.mark.usefixtures("own_programs")
def test_a_first_call_begins_by_data() -> None:
    net, reference = bridge.cell(BeginsByData()), BeginsByData()
    reference.to(next(net.module.parameters()).device)
    for _ in range(2):  # the second takes it from the store
        call = compiled(net)
        for begins in (True, False, False):
            if begins:
                net.parameters_dict()["initialized"].set_data(ms.Tensor(False))
                reference.initialized.fill_(False)
            for array in ARRAYS[:2]:
                expected = reference(torch.from_numpy(array).to(reference.scale.device))
                np.testing.assert_array_equal(call(ms.Tensor(array)).asnumpy(), expected.detach().cpu().numpy())
                assert net.parameters_dict()["initialized"].asnumpy()


@pytest.mark.usefixtures("own_programs")
def test_a_question_is_answered_as_a_buffer_says() -> None:
    net = bridge.cell(BeginsByAssigning())
    x = ms.Tensor(ARRAYS[0])
    with pytest.raises(RuntimeError, match=r"that the same call changes(.|\n)*if not self.initialized:"):
        compiled(net)(x)
    expected = net(x).asnumpy()
    for _ in range(2):  # the second takes it from the store
        call = compiled(net)
        np.testing.assert_array_equal(call(x).asnumpy(), expected)
    net.parameters_dict()["initialized"].set_data(ms.Tensor(False))
    with pytest.raises(RuntimeError, match=r"was taken to be True when the graph was compiled, and is False now"):
        call(x).asnumpy()
    with pytest.raises(RuntimeError, match="that the same call changes"):  # the one in the store is for another buffer
        compiled(net)(x)


class Pools(nn.Module):
    """A row for each group."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
        rows = torch.zeros(int(group.max()) + 1, 4, device=x.device)
        return self.layer(rows.index_add_(0, group, x)).squeeze(1)  # type: ignore[no-any-return]


@pytest.mark.filterwarnings("error:Using a target size")
@pytest.mark.parametrize("loss", ["mse_loss", "binary_cross_entropy_with_logits"])
@pytest.mark.parametrize("value_and_grad", [ms.value_and_grad, bridge.value_and_grad])
def test_a_loss_outside_knows_how_many_there_are(value_and_grad: Any, loss: str) -> None:
    net, reference = bridge.cell(Pools()), Pools().to(torch_device())
    reference.load_state_dict(net.module.state_dict())
    own, of_torch = getattr(bridge.nn.functional, loss), getattr(nn.functional, loss)

    def loss_of(x, group, target):
        return own(net(x, group), target)

    differentiate = value_and_grad(loss_of, None, net.trainable_params())

    @ms.jit
    def step(x, group, target):
        return differentiate(x, group, target)

    group, target = np.array([0, 0, 1, 2, 1, 2]), np.array([0.1, 0.5, 0.9], np.float32)
    value, gradients = step(ms.Tensor(ARRAYS[0]), ms.Tensor(group), ms.Tensor(target))
    expected = of_torch(reference(on_device(ARRAYS[0]), on_device(group)), on_device(target))
    expected.backward()
    assert value.asnumpy() == expected.item()
    for gradient, parameter in zip(gradients, reference.parameters(), strict=True):
        assert parameter.grad is not None and np.array_equal(gradient.asnumpy(), parameter.grad.cpu().numpy())


def test_with_an_unknown_size() -> None:
    net = bridge.cell(Scaled(with_loops))
    net.set_inputs(ms.Tensor(shape=[None, 4], dtype=ms.float32))
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        for array in (ARRAYS[0], ARRAYS[1][:5]):
            expected = net.module(torch.from_numpy(array).to(next(net.module.parameters()).device))
            np.testing.assert_array_equal(net(ms.Tensor(array)).asnumpy(), expected.detach().cpu().numpy())
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)


def periods(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The strongest ones of a series, as NumPy's integers."""
    strongest = torch.fft.rfft(y.flatten()).abs()[1:].topk(2).indices
    lengths = y.numel() // (strongest.detach().cpu().numpy() + 1)
    return sum(y.flatten()[: y.numel() // n * n].view(-1, n).amax(0).sum() for n in lengths)  # type: ignore[return-value]


@pytest.mark.usefixtures("own_programs")
def test_integers_as_an_array() -> None:
    compare(Scaled(periods), ARRAYS[:3])


def shared_out(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """A number that is no integer follows from the size."""
    found = y[x[:, 0] > 0]
    return found * (1 / (len(found) + 1))


class Suppresses(nn.Module):
    """Goes on until nothing is left, which sizes that stand in for the data's never are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.layer(x).squeeze(-1)
        order, kept = scores.detach().argsort(), []
        while order.numel() > 0:
            kept.append(order[0])
            order = order[1:][(scores[order[1:]] - scores[order[0]]).abs() > 0.9]
        return scores[torch.stack(kept)].sum()


class Levels(nn.Module):
    """A loop with as many rounds as data says, each of which has a size of its own: a tree's levels."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        level = (x[:, 0] > 0).long() + (x[:, 0] > 1)
        y = torch.zeros_like(x)
        for i in range(int(level.max()) + 1):
            rows = (level == i).nonzero()[:, 0]
            y = y.index_copy(0, rows, self.layer(x[rows]) + y.sum(0))
        return y.mean()


@pytest.mark.parametrize(
    ("module", "words", "most"),
    [
        (Suppresses, "data decides where a loop ends, or its sizes in each of many rounds", 10),
        (Levels, "how many sizes depend on data follows from a size", 20),
    ],
)
def test_a_loop_that_data_ends_is_refused_after_few_captures(
    module: Any, words: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_sizes, "_MOST_ROUNDS", 20)
    own, captures = capture._captured, Mock()
    captures.side_effect = own
    monkeypatch.setattr(capture, "_captured", captures)
    net = bridge.cell(module())

    @ms.jit
    def call(x):
        return net(x)

    with pytest.raises(RuntimeError, match=words):
        call(ms.Tensor(ARRAYS[0]))
    assert captures.call_count < most, captures.call_count


def test_many_captures_are_told() -> None:
    net = bridge.cell(Scaled(shared_out))

    @ms.jit
    def call(x):
        return net(x)

    rows = np.arange(64, dtype=np.float32)[:, None].repeat(4, 1)
    with pytest.warns(UserWarning, match="captured for 32 combinations of sizes that depend on data"):
        for number in range(34):
            assert len(call(ms.Tensor(rows - number))) == 63 - number


class Averages(nn.Module):
    """Of the rows of each group."""

    def forward(self, x: torch.Tensor, group: torch.Tensor) -> torch.Tensor:
        groups = int(group.max()) + 1
        sums = torch.zeros(groups, x.shape[1], device=x.device).index_add(0, group, x.sin())
        return sums / torch.bincount(group, minlength=groups)[:, None]


@pytest.mark.usefixtures("own_programs")
def test_a_number_of_groups_twice() -> None:
    net = bridge.cell(Averages())

    @ms.jit
    def call(x, group):
        return net(x, group)

    for groups in ([0, 0, 1, 1, 2], [0, 1, 1, 0, 0], [3, 2, 1, 0, 2]):
        x, group = data(5, 3), np.array(groups)
        expected = net.module(on_device(x), on_device(group))
        np.testing.assert_array_equal(call(ms.Tensor(x), ms.Tensor(group)).asnumpy(), expected.cpu().numpy())


class HasOtherRanks(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else x.sum()


class GivesRows(nn.Module):
    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [x[0] * i for i in range(int((x > 0).sum()))]


class AsksTwice(nn.Module):
    """Each of the first answers alone leads to no size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        few, any_below, large = bool(x.sum() < 100), bool((x < -9).any()), bool((x > 9).any())
        return x[x > 0] if few and not any_below and not large else x.flatten()


class GoesOn(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while (x < 9).any():
            x = x + 1
        return x


class Repeats(nn.Module):
    """As often as data says."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(len(x[x[:, 0] > 0]) % 3):
            x = x[x[:, 0] > 0]
        return x


class Negative(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * int(x.long().min() - 1)


class Capped(nn.Module):
    """Whatever the rows are taken to be, there are more than 20; then the second number is three."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[x[:, 0] > 0]
        marked = torch.arange(min(len(rows), 20), device=x.device) < 3 + x.sum() * 0
        return x * len(marked[marked])


class OfSomeSizes(nn.Module):
    """With other sizes than the data's it seems to be on the way to an error."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x > 0).any():
            rows = x[x > 0]
            return x * rows.view(3, -1).sum() * rows[:7].view(7)
        return x


class Parted(nn.Module):
    """Only together its sizes fit, and are what a tensor is split into."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positive = int((x[:, 0] > 0).sum())
        sizes = [positive, int((x[:, 0] <= 0).sum())]
        first, last = x.split_with_sizes(sizes)
        return torch.cat([last * len(first), first])


def test_sizes_that_a_tensor_is_split_into() -> None:
    net = bridge.cell(Parted())

    @ms.jit
    def call(x):
        return net(x)

    for array in ARRAYS:
        np.testing.assert_array_equal(call(ms.Tensor(array)).asnumpy(), Parted()(torch.from_numpy(array)).numpy())


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Repeats, ["how many sizes depend on data follows from a size"]),
        (Capped, ["a size that depends on data follows from another one", "return x * len(marked[marked])"]),
        (Negative, ["a number that depends on data is negative", "return x * int(x.long().min() - 1)"]),
        (OfSomeSizes, ["index.Tensor asks for a shape that depends on data", "rows = x[x > 0]"]),
        (GivesRows, ["which tensors pass through the program", "range(int((x > 0).sum()))"]),
        (AsksTwice, ["what data decides leads to a size that the graph does not count", "return x[x > 0] if few"]),
        (HasOtherRanks, ["asks for a value that depends on data", "return x if x.sum() > 0 else x.sum()"]),
        (SaysWhich, ["asks for a value that depends on data", "if x.sum() > 0"]),
        (GoesOn, ["asks for a value that depends on data", "while (x < 9).any():"]),
    ],
)
def test_refusals(module: Any, words: list[str]) -> None:
    net = bridge.cell(module())

    @ms.jit
    def call(x):
        return net(x)

    with pytest.raises(RuntimeError) as caught:
        call(ms.Tensor(ARRAYS[0])).asnumpy()
    assert all(word in str(caught.value) for word in words), caught.value
    assert "libms_ext" not in str(caught.value)


@pytest.mark.usefixtures("own_programs")
@pytest.mark.parametrize("function", [with_loops, some_experts], ids=name_of)
def test_the_next_process_finds_the_programs(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> Any:
        torch.manual_seed(0)
        net = bridge.cell(Scaled(function))

        @ms.jit
        def call(x):
            return net(x)

        return call(ms.Tensor(ARRAYS[0])).asnumpy()

    def refuse(*_: Any) -> Any:
        raise AssertionError("captured again")

    captured = run()
    monkeypatch.setattr(plan, "make", refuse)
    monkeypatch.setattr(plan, "make_count", refuse)
    np.testing.assert_array_equal(run(), captured)


class KeepsTable(nn.Module):
    """A table that each call would compute again, beside a size that data decides."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[int, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) not in self.tables:
            self.tables[len(x)] = torch.arange(len(x), device=x.device)
        y = x * self.tables[len(x)][:, None]
        return y[y > 0] if (y > 2).any() else y[y > 1]


class MovesTable(nn.Module):
    """Its call brings a table to where its input is, as torchvision's anchors are brought."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = [torch.arange(4.0), torch.ones(4)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.tables = [table.to(x.device, copy=True) for table in self.tables]
        return x * self.tables[0] + self.tables[1] if (x > 2).any() else x * self.tables[0]


@pytest.mark.parametrize("make", [KeepsTable, MovesTable])
def test_a_table_beside_what_data_decides(make: Any) -> None:
    net: Any = bridge.cell(make())
    call = ms.jit(net)
    for array in (*ARRAYS[:2], ARRAYS[0] * 4):
        np.testing.assert_array_equal(call(ms.Tensor(array)).asnumpy(), make()(on_device(array)).cpu().numpy())


class Between(nn.Module):
    """Takes what lies between two sizes."""

    def __init__(self, way: str, is_of_buffer: bool) -> None:
        super().__init__()
        self.way = way
        self.bounds: Any
        if is_of_buffer:
            self.register_buffer("bounds", torch.tensor([2, 6]))

    def forward(self, x: torch.Tensor, bounds: torch.Tensor | None = None) -> torch.Tensor:
        first, last = self.bounds if bounds is None else bounds
        if self.way == "slice":
            return x[int(first) : int(last)] * 2
        if self.way == "last":
            return x[int(last) - 3 : int(last)] * 2
        if self.way == "narrow":
            return x.narrow(0, int(first), int(last) - int(first)) * 2
        return x[torch.arange(int(first), int(last), device=x.device)] * 2


@pytest.mark.parametrize("is_of_buffer", [False, True])
@pytest.mark.parametrize("way", ["slice", "last", "narrow", "arange"])
def test_what_lies_between_two_sizes(way: str, is_of_buffer: bool) -> None:
    module = Between(way, is_of_buffer)
    net, x = bridge.cell(module), data(8, 3)

    @ms.jit
    def call(*arguments):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(*arguments)

    for bounds in (np.array([2, 6]), np.array([3, 8]), np.array([4, 5])):
        given = [x] if is_of_buffer else [x, bounds]
        expected = module(*map(on_device, given))
        assert np.array_equal(call(*map(ms.Tensor, given)).asnumpy(), expected.cpu().numpy())


class OfGraphs(nn.Module):
    """A loss for each of the graphs that a batch has, whose nodes weigh their degrees."""

    def __init__(self, has_degrees: bool) -> None:
        super().__init__()
        self.linear, self.has_degrees = nn.Linear(4, 3), has_degrees

    def forward(self, x: torch.Tensor, batch: torch.Tensor, ends: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        values = self.linear(x)
        if self.has_degrees:
            values = values * torch.bincount(ends, minlength=x.shape[0])[:, None]
        sums = torch.zeros(int(batch.max()) + 1, 3, device=x.device).index_add(0, batch, values)
        return nn.functional.cross_entropy(sums, labels)


class Confuses(nn.Module):
    """A loss, and the matrix of confusion."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values = self.linear(x)
        pairs = torch.bincount(3 * labels + values.argmax(1), minlength=9)
        return nn.functional.cross_entropy(values, labels), pairs.reshape(3, 3)


GROUPS = np.array([0, 0, 1, 1, 1, 2, 2])
CERTAIN: dict[str, tuple[Callable[[], nn.Module], list[tuple[np.ndarray, ...]]]] = {
    "graphs": (
        lambda: OfGraphs(False),
        [(GROUPS, GROUPS, np.array([1, 2, 0])), (GROUPS[::-1].copy(), GROUPS, np.array([0, 2, 0]))],
    ),
    "graphs and degrees": (
        lambda: OfGraphs(True),
        [(GROUPS, GROUPS, np.array([1, 2, 0])), (GROUPS // 2, GROUPS + 3, np.array([1, 2]))],
    ),
    "confusion": (Confuses, [(GROUPS,), (GROUPS[::-1].copy(),)]),
}


@pytest.mark.usefixtures("own_programs")
@pytest.mark.parametrize("value_and_grad", [ms.value_and_grad, bridge.value_and_grad])
@pytest.mark.parametrize("kind", CERTAIN)
def test_sizes_that_only_fit_if_they_are_certain_ones(kind: str, value_and_grad: Any) -> None:
    make, batches = CERTAIN[kind]
    torch.manual_seed(0)
    module = make().to(torch_device())
    net = bridge.cell(copy.deepcopy(module))
    has_aux = kind == "confusion"
    differentiate = value_and_grad(net, None, net.trainable_params(), has_aux=has_aux)

    @ms.jit
    def call(*batch):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(*batch)

    for batch in batches:
        x = data(7, 4)
        found, gradients = call(ms.Tensor(x), *map(ms.Tensor, batch))
        values = module(on_device(x), *map(on_device, batch))
        loss = values[0] if has_aux else values
        expected = torch.autograd.grad(loss, list(module.parameters()))
        for one, other in zip(
            [*(found if has_aux else [found]), *gradients], [*(values if has_aux else [loss]), *expected], strict=True
        ):
            np.testing.assert_array_equal(one.asnumpy(), other.detach().cpu().numpy())


class AddsUntil(nn.Module):
    """A loop that makes at least one step, if the first answer is True: before that the sum is a number.

    Args:
        first: gives what the loop begins with.
    """

    def __init__(self, first: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first = first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        reached, steps = self.first(x), 0
        total: Any = 0
        while steps < 4 and (reached < 0.6).any():
            reached = reached + torch.sigmoid(x[:, 0])
            total = total + x
            steps += 1
        return total.sum()


@pytest.mark.parametrize(
    "first",
    [
        lambda x: x.new_zeros(len(x)),
        lambda x: torch.zeros_like(x[:, 0]),
        lambda x: x.new_full((len(x),), 0.5),
        lambda x: x[:, 0],
    ],
    ids=["new_zeros", "zeros_like", "new_full", "of data"],
)
def test_a_loop_may_fail_without_its_first_step(first: Callable[[torch.Tensor], torch.Tensor]) -> None:
    module = AddsUntil(first)
    net = bridge.cell(module)

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    def check(offset: float) -> None:
        x = data(4, 5) + np.float32(offset)
        x[0, 0] = 0.5
        np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), module(on_device(x)).cpu().numpy())

    for offset in (0, -3, 1):
        check(offset)
    if first(torch.ones(2, 1)).max() == 1:  # the loop may make no step
        with pytest.raises(class_at_sync(AttributeError), match="'int' object has no attribute 'sum'"):
            call(ms.Tensor(np.ones((4, 5), np.float32)))
            ms.runtime.synchronize()
        check(0)


def lifted(x: torch.Tensor) -> torch.Tensor:
    """A loop that tries again until data lets it go on, and gives up after its last round."""
    if not (x < 0).any():
        return x
    for step in range(3):
        x = x + 10.0**step
        if not (x < 0).any():
            return x * 2
    raise ValueError("there are negative numbers after three rounds")


def lifted_once(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return lifted(x) * y


def lifted_twice(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Two such loops: each may go on in each of its rounds."""
    return lifted(x) * lifted(y)


@pytest.mark.parametrize("function", [lifted_once, lifted_twice], ids=name_of)
@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["mindspore", "bridge"])
def test_a_loop_may_give_up_after_its_last_round(function: Any, differentiate: Any) -> None:
    """Each round leads on both ways but the last one, of which one answer raises the module's own error."""
    arrays = [data(6, 4) - np.float32(below) for below in (-9, 0, 5, 50)]
    compare(Scaled(function), arrays, differentiate)
    module = Scaled(function)
    net = bridge.cell(module)

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    for below in (0, 500, 50):
        x = data(6, 4) - np.float32(below)
        if below == 500:
            with pytest.raises(class_at_sync(ValueError), match="there are negative numbers after three rounds"):
                call(ms.Tensor(x))
                ms.runtime.synchronize()
        else:
            np.testing.assert_array_equal(call(ms.Tensor(x)).asnumpy(), module(on_device(x)).detach().cpu().numpy())


class ChosenColumns(nn.Module):
    """The rows of classes that lie column by column, which backward takes from forward after a question for data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x).t()
        chosen = nn.functional.one_hot((y > 0).long(), 2)
        if y.sum() > 5:
            y = y * 2
        return (y[..., None] * chosen).sum(0)


@pytest.mark.parametrize("differentiate", [ms.value_and_grad, bridge.value_and_grad], ids=["mindspore", "bridge"])
def test_one_hot_lays_its_result_out_row_by_row(differentiate: Any) -> None:
    """Whatever the layout of the classes is."""
    torch.manual_seed(0)
    compare(ChosenColumns(), [data(6, 4), data(6, 4) + np.float32(9)], differentiate)


class Tails(nn.Module):
    """As the splines of nflows: what is outside of an interval stays. Each time the opposite of a mask is another mask,
    of which the gradient asks for as many elements."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            first, second = x[:, :1], x[:, 1:]
            scale = layer(first)
            is_inside = second.abs() <= 1
            out = torch.zeros_like(second)
            out[~is_inside] = second[~is_inside]
            if torch.any(is_inside):
                out[is_inside] = second[is_inside] * torch.exp(scale[is_inside])
            x = torch.cat([out, first], 1)
        return x.square().mean()


class Pooled(nn.Module):
    """The means of groups. How many there are, and their number by bincount, are both that of the labels.

    Args:
        says_least: whether bincount is told.
    """

    def __init__(self, says_least: bool) -> None:
        super().__init__()
        self.layer, self.out, self.says_least = nn.Linear(4, 8), nn.Linear(8, 2), says_least

    def forward(self, x: torch.Tensor, group: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        groups = int(group.max()) + 1
        counts = torch.bincount(group, minlength=groups if self.says_least else 0)
        sums = nn.functional.one_hot(group, groups).float().T @ self.layer(x).relu()
        return nn.functional.cross_entropy(self.out(sums / counts[:, None]), labels)


@pytest.mark.parametrize("value_and_grad", [ms.value_and_grad, bridge.value_and_grad], ids=["MindSpore's", "in one"])
@pytest.mark.parametrize("kind", ["tails", "least", "counted"])
def test_sizes_that_follow_from_what_is_written_or_from_each_other(kind: str, value_and_grad: Any) -> None:
    module = (Tails() if kind == "tails" else Pooled(kind == "least")).to(torch_device())
    net = bridge.cell(module)
    differentiate = value_and_grad(net, None, net.trainable_params())

    @ms.jit
    def step(*batch):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return differentiate(*batch)

    for seed in range(3):
        batch = [data(16, 2, seed=seed) * 2]
        if kind != "tails":
            groups = np.random.default_rng(seed).permutation(np.array([0, 1, 2] * 4))
            batch = [data(12, 4, seed=seed), groups, np.array([0, 1, 1])]
        loss, gradients = step(*map(ms.Tensor, batch))
        expected = module(*map(on_device, batch))
        np.testing.assert_array_equal(loss.asnumpy(), expected.detach().cpu().numpy())
        for one, other in zip(gradients, torch.autograd.grad(expected, list(module.parameters())), strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.cpu().numpy())


class Counted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.bincount(x, minlength=9)


@pytest.mark.parametrize("x", [np.ones(3, np.float32), np.ones((2, 3), np.int64)], ids=["floats", "a matrix"])
def test_errors_of_kernels_that_give_sizes(x: np.ndarray) -> None:
    net = bridge.cell(Counted())
    with pytest.raises(Exception) as expected:  # which of them is compared
        Counted()(on_device(x))

    @ms.jit
    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x)

    np.testing.assert_array_equal(call(ms.Tensor([1, 2, 2])).asnumpy()[:4], [0, 1, 2, 0])
    with pytest.raises(expected.type, match=re.escape(str(expected.value).splitlines()[0])):
        call(ms.Tensor(x))


class Split(nn.Module):
    """Where, a tensor says that is an argument, and another one that is a constant."""

    def __init__(self, is_method: bool) -> None:
        super().__init__()
        self.layer, self.is_method = nn.Linear(4, 4), is_method

    def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        split = torch.Tensor.tensor_split if self.is_method else torch.tensor_split
        rows = split(self.layer(x), ends.cpu())
        columns = torch.tensor_split(input=x, tensor_indices_or_sections=torch.tensor([1, 3]), dim=1)
        return torch.stack([part.square().sum() for part in (*rows, *columns)]).sum()


@pytest.mark.parametrize("is_method", [False, True])
def test_tensor_split_where_a_tensor_says(is_method: bool) -> None:
    module = Split(is_method).to(torch_device())
    net = bridge.cell(module)

    @ms.jit
    def call(x, ends):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x, ends)

    for ends in ([1, 3], [2, 4], [0, 6]):
        x = data(5, 4)
        expected = module(on_device(x), on_device(np.array(ends)))
        np.testing.assert_array_equal(call(ms.Tensor(x), ms.Tensor(ends)).asnumpy(), expected.detach().cpu().numpy())


class Segments(nn.Module):
    """The sums of a column, whose elements do not lie one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return torch.segment_reduce(self.layer(x)[:, 0], "sum", lengths=lengths).square().sum()


def test_segments_of_a_column() -> None:
    module = Segments().to(torch_device())
    net = bridge.cell(module)
    step = ms.jit(ms.value_and_grad(net, None, net.trainable_params()))
    for lengths in ([1, 2, 3], [4, 2, 0]):
        loss, gradients = step(ms.Tensor(data(6, 4)), ms.Tensor(lengths))
        expected = module(on_device(data(6, 4)), on_device(np.array(lengths)))
        np.testing.assert_array_equal(loss.asnumpy(), expected.detach().cpu().numpy())
        for one, other in zip(gradients, torch.autograd.grad(expected, list(module.parameters())), strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.cpu().numpy())


class Kept(nn.Module):
    """Keeps rows in a buffer."""

    rows: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 1)
        self.register_buffer("rows", torch.zeros(32, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.rows[torch.arange(len(x), device=x.device) * 2] = x
        return self.layer(self.rows[:8]).sum()


def test_values_of_another_shape_than_where_they_are_put() -> None:
    """Inference takes them, and then a gradient fails in other words."""
    net = bridge.cell(Kept())
    step = ms.jit(ms.value_and_grad(net, None, net.trainable_params()))
    step(ms.Tensor(data(4, 10)))
    with pytest.raises(RuntimeError) as expected:
        Kept().to(torch_device())(on_device(data(4, 9)))
    with pytest.raises(RuntimeError, match=re.escape(str(expected.value).splitlines()[0])):
        step(ms.Tensor(data(4, 9)))
    step(ms.Tensor(data(3, 10)))


class Crops(nn.Module):
    """What lies between integers of data goes through layers that take nothing of size 0.

    Args:
        kind: how it is cropped.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.conv, self.out = kind, nn.Conv2d(2, 3, 3, padding=1), nn.Linear(12, 2)

    def forward(self, x: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        features = self.conv(x)
        return self.out(torch.cat([part.flatten(1) for part in getattr(self, self.kind)(features, boxes)]))

    def rows(self, features: torch.Tensor, boxes: torch.Tensor) -> Any:
        first, last = int(boxes[0, 0]), int(boxes[0, 2])
        yield self.conv(features[:, :2, first:last]).amax((2, 3)).repeat(1, 4)

    def halves(self, features: torch.Tensor, boxes: torch.Tensor) -> Any:
        top, _, bottom, _ = boxes[0].tolist()
        yield nn.functional.max_pool2d(features[:, :, top:bottom], 2, ceil_mode=True).sum(2)[:, :, :4]

    def boxes(self, features: torch.Tensor, boxes: torch.Tensor) -> Any:
        for box in boxes:
            left, top, right, bottom = [int(number) for number in box]
            yield nn.functional.adaptive_max_pool2d(features[:, :, top:bottom, left:right], 2)

    def of_images(self, features: torch.Tensor, boxes: torch.Tensor) -> Any:
        for box in torch.cat([boxes[:, :1] * 0, boxes], 1):
            image, left, top, right, bottom = box.tolist()
            crop = features[image, :, top:bottom, left:right]
            yield nn.functional.interpolate(crop[None], size=(2, 2), mode="bilinear")

    def sized(self, features: torch.Tensor, boxes: torch.Tensor) -> Any:
        for box in boxes:
            top, left, bottom, right = box.tolist()
            crop = features.narrow(2, top, bottom - top).narrow(3, left, right - left)
            yield nn.functional.adaptive_avg_pool2d(crop, 2)


@pytest.mark.parametrize("kind", ["rows", "halves", "boxes", "of_images", "sized"])
def test_crops_by_integers_of_data(kind: str) -> None:
    torch.manual_seed(0)
    module = Crops(kind)
    net = bridge.cell(module)
    own = copy.deepcopy(module).to(torch_device())
    step = ms.jit(ms.value_and_grad(net, None, ms.ParameterTuple(net.trainable_params())))
    x = data(1, 2, 12, 12)
    for boxes in ([[1, 2, 5, 9], [0, 0, 12, 12]], [[3, 1, 10, 4], [5, 6, 7, 9]], [[0, 0, 2, 2], [2, 8, 11, 10]]):
        given = np.array(boxes)
        value, gradients = step(ms.Tensor(x), ms.Tensor(given))
        expected = own(on_device(x), torch.tensor(given))
        wanted = torch.autograd.grad(expected, list(own.parameters()), torch.ones_like(expected))
        for one, other in zip((value, *gradients), (expected, *wanted), strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.detach().cpu().numpy())


def test_a_crop_with_an_error_says_it() -> None:
    """In PyTorch's words, and the next call works."""
    net = bridge.cell(Crops("boxes"))

    @ms.jit
    def call(x, boxes):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x, boxes)

    x, good = ms.Tensor(data(1, 2, 12, 12)), ms.Tensor(np.array([[1, 2, 5, 9]]))
    expected = call(x, good).asnumpy()
    with pytest.raises(RuntimeError, match=r"adaptive_max_pool2d.*(non-zero|non-empty)"):
        call(x, ms.Tensor(np.array([[5, 2, 5, 9]])))
        ms.runtime.synchronize()
    np.testing.assert_array_equal(call(x, good).asnumpy(), expected)


def _from_the_lower(conv: nn.Module, x: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """One more than lies between two integers: never nothing."""
    return conv(x[..., min(first, last) : max(first, last) + 1])  # type: ignore[no-any-return]


def _in_three(conv: nn.Module, x: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """Also what lies before both, and after them."""
    return torch.cat([conv(x[..., :first]), conv(x[..., first:last]), conv(x[..., last:])], -1)


class Divided(nn.Module):
    """Divides a sequence at two integers of data.

    Args:
        part: how.
    """

    def __init__(self, part: Any) -> None:
        super().__init__()
        self.part, self.conv = part, nn.Conv1d(2, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return self.part(self.conv, x, int(places[0]), int(places[1]))  # type: ignore[no-any-return]


@pytest.mark.parametrize("part", [_from_the_lower, _in_three])
def test_sequences_divided_at_integers_of_data(part: Any) -> None:
    torch.manual_seed(0)
    module = Divided(part)
    net = bridge.cell(module)

    @ms.jit
    def call(x, places):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x, places)

    x = data(2, 2, 12)
    for places in ([2, 6], [3, 9], [1, 4]):
        result = call(ms.Tensor(x), ms.Tensor(np.array(places)))
        expected = module(on_device(x), torch.tensor(places))
        np.testing.assert_array_equal(result.asnumpy(), expected.detach().cpu().numpy())
