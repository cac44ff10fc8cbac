"""A PyTorch module as a Cell in graph mode: results, gradients and buffers are PyTorch's, bit for bit."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import pathlib
import re
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import bridge
from bridge import aten
from bridge.op import devices
from bridge.primitive.tensors import torch_view
from bridge.programs import capture, store
from bridge.programs.state import State
from shared import class_at_sync, data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out, self.norm = nn.Linear(16, 48), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))


class ByHand(nn.Module):
    """Attention with a mask made in `forward`, and values of constants asked for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril()
        if mask.all():
            return x
        scores = x @ x.transpose(-2, -1) / math.sqrt(x.shape[-1])
        return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ x


class Scaled(nn.Module):
    """By a number on the host that PyTorch computes: its kernels for a GPU divide by it as they multiply."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.sqrt(torch.tensor(x.shape[-1], dtype=torch.float) * 3)
        return torch.tanh(x / scale) * torch.exp(scale - 3)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(5, 6, 2, batch_first=True, bidirectional=True), nn.GRU(12, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> Any:
        y, (h, _) = self.lstm(x)
        return self.gru(y)[0], h


class RecurrentCast(Recurrent):
    """On a GPU, autocast copies the weights to parts of one piece of memory."""

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast(x.device.type, torch.bfloat16):
            y, h = super().forward(x)
        return y.float(), h.float()


class CastInside(nn.Module):
    """Operators that call others for which autocast casts."""

    def __init__(self) -> None:
        super().__init__()
        self.both = nn.Bilinear(4, 4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            grid = F.affine_grid(self.both(x, x).view(-1, 2, 3), [len(x), 1, 3, 3], align_corners=False)
        return grid.float()


class Assembled(nn.Module):
    """Tensors that get parts of a storage."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(3, 4)), nn.Parameter(torch.randn(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = torch.zeros(15, device=x.device)
        weight = torch.empty(0, device=x.device).set_(both.untyped_storage(), 3, (3, 4), (4, 1))
        bias = torch.empty(0, device=x.device).set_(both.untyped_storage(), 0, (3,), (1,))
        weight.copy_(self.weight)
        bias.copy_(self.bias)
        return F.linear(x, weight, bias) * both.detach().sum()


class OnTheHost(nn.Module):
    """Calls on the host, whose gradients take there what they have saved. No sum of gradients has more than two terms:
    PyTorch has a thread for each device, and adds more in the order in which they come."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        on_host = y.cpu()
        factors = torch.exp(on_host.double() / 3).to(y)
        return y * factors + torch.tanh(on_host.sum(0)).to(y.device)


class LengthsOnTheHost(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        labels = torch.tensor([[1, 2, 4], [3, 3, 1]], device=x.device)
        found = self.layer(x).log_softmax(-1)
        mean = F.ctc_loss(found, labels, torch.tensor([6, 5]), torch.tensor([3, 2]))
        numbers: Any = (6, 5), [2, 3]
        return mean + F.ctc_loss(found, labels, input_lengths=numbers[0], target_lengths=numbers[1], reduction="sum")


class Factors(nn.Module):
    """Kernels that refuse zeros, of matrices that LAPACK has laid out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(5) + torch.randn(5, 5) / 9)

    def forward(self, x: torch.Tensor) -> Any:
        product = self.weight @ self.weight.mT
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(product))
        return x @ inverse, torch.linalg.slogdet(self.weight)[1], torch.linalg.solve(product, x.mT)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens).tanh())


class Writes(nn.Module):
    """In-place writes to results and through views, and a buffer that is assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6))
        self.steps: torch.Tensor
        self.seen: torch.Tensor
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("seen", torch.zeros(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight
        y[:, 0] = 1.5
        y[:, 1:3].mul_(2).add_(self.seen[1:3])
        self.steps += 1
        with torch.no_grad():
            self.seen.mul_(0.9).add_(x.detach().mean(0))
        return y.relu_()


class Dictionaries(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x: dict[str, torch.Tensor], pairs: Any, scale: float = 1.0, *, flag: bool = False) -> Any:
        y = self.line(x["a"]) * scale + pairs[0][1]
        return {"out": y, "more": (y.sum(-1), [x["b"] * 2, None]), "flag": flag}


class AsksKinds(nn.Module):
    """Gives the kinds of what it is given, under keys that are no strings."""

    def forward(self, x: Any, keyed: Any) -> Any:
        kinds = [type(item).__name__ for item in (x, x[0], x[0]["sizes"], x[1], x[1][0], x[1][0][0], keyed)]
        return {0: keyed[1] + keyed[2, "b"], (1, "a"): kinds, True: [(x[0]["x"] * 2,)]}


@dataclasses.dataclass
class Answer:
    logits: torch.Tensor
    hidden: torch.Tensor | None = None


class GivesDataclass(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Answer:
        return Answer(self.line(x))


class Kept:
    """What no graph can return, as the cache of keys and values that a model of transformers returns."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class GivesObjects(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        x = self.line(x)
        kept = Kept(x.exp())
        return {"x": x, "pair": (kept.tensor, kept), "kept": kept, "inner": {"kept": kept, "twice": x * 2}}


class PooledToAPixel(nn.Module):
    """A tensor of one pixel with the strides of channels last: batch norm gives it others."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.pixel = nn.LayerNorm(8), nn.Sequential(nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.out = nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        pixel = self.pixel(F.adaptive_avg_pool2d(x, 1))
        mode = "nearest" if x.is_cuda else "bilinear"  # whose gradient adds with atomics there
        return self.out(torch.cat([x, F.interpolate(pixel, size=x.shape[2:], mode=mode)], 1))


class MapsInside(nn.Module):
    """torch.vmap over a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(self.layer)(x)


class Curved(nn.Module):
    """The second derivatives at each row, by gradients of forward mode over others."""

    def __init__(self, over: Callable[..., Any]) -> None:
        super().__init__()
        self.layer, self.over = nn.Linear(4, 3), over

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def energy(row: torch.Tensor) -> torch.Tensor:
            return F.silu(self.layer(row)).pow(3).sum()

        return torch.vmap(self.over(energy))(x)  # type: ignore[no-any-return]


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(2, 5, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(x) * torch.view_as_complex(self.weight).conj(), n=x.shape[-1])


class ChannelsLast(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.contiguous(memory_format=torch.channels_last)


class Sounds(nn.Module):
    """torch.istft looks at its window, which is in the state."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = nn.Parameter(torch.randn(9, 1))
        self.window: torch.Tensor
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.istft(torch.complex(x, x * self.phase), 16, 4, window=self.window)


class Constant(nn.Module):
    """A tensor that is neither parameter nor buffer, and one that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.arange(4.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)
        steps += 1
        return x * self.scale.to(x.device) * steps


class Permuted(nn.Module):
    """Kernels that give other strides than their inputs have: they decide what a view and what is saved may be."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.line = nn.BatchNorm1d(6), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x.transpose(1, 2)).exp()
        z = self.norm(x.tanh().transpose(1, 2)).view(x.shape[0], -1).sigmoid()
        return self.line(y * z.view(y.shape)) + F.mse_loss(x.transpose(1, 2), y)


class OneImage(nn.Module):
    """A view with a dimension of size 1, whose strides decide which kernels follow; a draw by no generator."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.line = nn.GroupNorm(2, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.line(x.flatten(2).transpose(1, 2)).transpose(1, 2).view(x.shape)
        return self.norm(y / 2.0) + torch.randn(x.shape, generator=None, device=x.device)


class NotPersistent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps: torch.Tensor
        self.register_buffer("steps", torch.arange(4.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.steps


class Scalars(nn.Module):
    """Tensors without dimensions: a parameter, a result, and what is saved; and buffers that get another tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(()))
        self.mean: torch.Tensor
        self.total: torch.Tensor
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean = 0.5 * self.mean + x.detach().mean(0)
        self.total = self.total + self.mean.sum()
        return (x * self.scale.exp() - self.mean).square().mean().sqrt() + self.total


class OfDistributions(nn.Module):
    """PyTorch checks their parameters, among them a module's own, and an error has their text."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(4))
        self.width: torch.Tensor
        self.register_buffer("width", torch.tensor(1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.width < 0:
            raise ValueError(f"the width is {self.width:.3f}")
        return torch.distributions.Normal(self.mean, self.width).log_prob(x)


class Gaussian(nn.Module):
    """Its check of the covariance asks whether that is symmetric, and returns what it asked for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        covariance = x @ x.mT + torch.eye(len(x), device=x.device)
        return torch.distributions.MultivariateNormal(x[:, 0], covariance).log_prob(x[:, 1])


class Samples(nn.Module):
    """A part runs without gradients, in which PyTorch's LSTM on a CPU rounds otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(4, 4, 2), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        with torch.no_grad():
            drawn = self.lstm(x)[0]
        return self.out(drawn), self.lstm(x)[0]


class Products(nn.Module):
    """Of factors of which none, one or several are zero."""

    def __init__(self, zeros: int) -> None:
        super().__init__()
        self.zeros = zeros

    def forward(self, x: torch.Tensor) -> Any:
        factors = x * (torch.arange(x.numel(), device=x.device) >= self.zeros).view(x.shape)
        return factors.prod(), torch.prod(factors, 1), (factors + 1).prod(dim=0, keepdim=True, dtype=torch.float64)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(72, 5), nn.Dropout(0.2),
    )  # fmt: skip


def frozen() -> nn.Module:
    module = mlp()
    module[0].weight.requires_grad_(False)  # type: ignore[index, union-attr]
    return module


def channels_last() -> nn.Module:
    return nn.Sequential(ChannelsLast(), nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU())


def as_cell(module: nn.Module) -> Any:
    cell: Any = bridge.cell
    return cell(module)


def floats(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.randn(shape)


MODULES: list[Any] = [
    (mlp, [floats(4, 6)]),
    (cnn, [floats(2, 3, 8, 8)]),
    (frozen, [floats(4, 6)]),
    (channels_last, [floats(2, 3, 8, 8)]),
    (Attention, [floats(2, 5, 16)]),
    (ByHand, [floats(2, 5, 16)]),
    (Scaled, [floats(2, 5, 16)]),
    (Factors, [floats(2, 5)]),
    (Tied, [lambda: torch.randint(0, 11, (2, 7))]),
    (Writes, [floats(3, 6)]),
    (GivesDataclass, [floats(3, 4)]),
    (functools.partial(Curved, torch.func.hessian), [floats(5, 4)]),
    (functools.partial(Curved, lambda f: torch.func.jacfwd(torch.func.jacfwd(f))), [floats(5, 4)]),
    (MapsInside, [floats(2, 8)]),
    (PooledToAPixel, [floats(2, 8, 8, 8)]),
    (Complex, [floats(2, 8)]),
    (Sounds, [floats(2, 9, 7)]),
    (Constant, [floats(3, 4)]),
    (Gaussian, [floats(3, 4)]),
    (Samples, [floats(3, 2, 4)]),
    *((functools.partial(Products, zeros), [floats(3, 4)]) for zeros in (0, 1, 2)),
    (NotPersistent, [floats(3, 4)]),
    (Permuted, [floats(2, 8, 6)]),
    (OneImage, [floats(1, 4, 3, 3)]),
    (Scalars, [floats(3, 4)]),
    (OfDistributions, [floats(3, 4)]),
    (lambda: nn.TransformerEncoderLayer(16, 2, 32, 0.1, batch_first=True), [floats(2, 5, 16)]),
    (Recurrent, [floats(3, 4, 5)]),
    (RecurrentCast, [floats(3, 4, 5)]),
    (CastInside, [floats(2, 4)]),
    (Assembled, [floats(2, 4)]),
    (OnTheHost, [floats(4, 8)]),
    (LengthsOnTheHost, [floats(6, 2, 4)]),
]


def to_mindspore(tensor: torch.Tensor) -> ms.Tensor:
    return ms.Tensor(tensor.detach().cpu().numpy().copy())


def leaves(value: Any) -> list[Any]:
    """The tensors of a nested result, in order."""
    if isinstance(value, (torch.Tensor, ms.Tensor)):
        return [value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, (tuple, list)) else []
    return [leaf for item in items for leaf in leaves(item)]


def assert_equal(torch_tensors: Any, tensors: Any) -> None:
    pairs = list(zip(torch_tensors, tensors, strict=True))
    for i, (expected, found) in enumerate(pairs):
        got = found.asnumpy()
        wanted = expected.detach().resolve_conj().cpu().numpy()
        assert got.dtype == wanted.dtype and got.shape == wanted.shape, i
        assert got.tobytes() == wanted.tobytes(), (i, np.abs(got - wanted).max())


def weighted(tensors: Any, weights: Any, add: Any) -> Any:
    """A number that every floating result has a part in."""
    total = 0
    for tensor, weight in zip(tensors, weights, strict=True):
        total = total + add(tensor * weight)
    return total


class Step:
    """A training step's results and gradients, of a Cell."""

    def __init__(self, cell: ms.nn.Cell, weights: list[torch.Tensor], by_inputs: bool) -> None:
        sensitivities = [to_mindspore(weight) for weight in weights]

        def loss(*inputs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            results = cell(*inputs)
            if isinstance(results, dict):
                flat = tuple(results.values())
            elif isinstance(results, (tuple, list)):
                flat = tuple(results)
            else:
                flat = (results,)
            total = 0.0
            for i in range(len(sensitivities)):
                total = total + (flat[i] * sensitivities[i]).sum()
            return total, flat

        parameters = ms.ParameterTuple(cell.trainable_params())
        self._run = ms.value_and_grad(loss, 0 if by_inputs else None, parameters, has_aux=True)
        self.by_inputs = by_inputs

    def __call__(self, *inputs: ms.Tensor) -> tuple[Any, list[Any], Any]:
        (_, results), gradients = self._run(*inputs)
        of_inputs, of_weights = gradients if self.by_inputs else ([], gradients)
        return results, list(of_weights), list(of_inputs) if isinstance(of_inputs, (tuple, list)) else [of_inputs]


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("make, inputs", MODULES)
def test_steps_are_pytorchs(make: Callable[[], nn.Module], inputs: Any, train: bool) -> None:
    """Three training steps of a module in PyTorch and of its Cell have the same bits."""
    if make in (Recurrent, RecurrentCast, Samples) and devices.target() == "GPU" and not train:
        pytest.skip("PyTorch differentiates cuDNN's recurrent layers in training mode only")
    device = devices.torch_name(devices.target())
    torch.manual_seed(0)
    module = make().train(train)
    reference = copy.deepcopy(module).to(device)
    cell = as_cell(module)
    cell.set_train(train)
    step = None
    for seed in range(3):
        arguments = [make_input() for make_input in inputs]
        by_inputs = arguments[0].is_floating_point()
        ours = [to_mindspore(x) for x in arguments]
        torch.manual_seed(seed)
        own = [x.clone().to(device).requires_grad_(x.is_floating_point()) for x in arguments]
        results = leaves(reference(*own))
        if step is None:
            weights = [torch.randn(result.shape, dtype=result.dtype).to(device) for result in results]
            step = Step(cell, weights, by_inputs)
            torch.manual_seed(seed)
            reference.load_state_dict(module.state_dict())
            results = leaves(reference(*own))
        parameters = [p for p in reference.parameters() if p.requires_grad]
        asked = [*parameters, *(x for x in own if x.requires_grad)]
        loss = weighted(results, weights, torch.sum)
        gradients = torch.autograd.grad(loss, asked) if loss.requires_grad else []
        torch.manual_seed(seed)
        found, of_weights, of_inputs = step(*ours)
        assert_equal(results, found)
        assert_equal(gradients, of_weights + of_inputs)
        state = dict((*reference.named_parameters(), *reference.named_buffers()))
        parameters_of = cell.program.state.parameters
        assert_equal([state[name] for name in parameters_of], parameters_of.values())


def test_a_result_of_bfloat16_without_dimensions() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(0.3, dtype=torch.bfloat16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x.to(torch.bfloat16) * self.scale).sum()

    module, x = Loss().to(torch_device()), data(3, 4)
    expected = module(on_device(x))
    (gradient,) = torch.autograd.grad(expected, [module.scale])
    cell = as_cell(module)
    value, gradients = ms.jit(ms.value_and_grad(cell, None, cell.trainable_params()))(ms.Tensor(x))
    for own, other in zip((value, *gradients), (expected, gradient), strict=True):
        assert own.dtype == ms.bfloat16 and own.shape == ()
        assert torch_view(own).item() == other.item()


def test_nested_arguments_and_results() -> None:
    device = devices.torch_name(devices.target())
    module = Dictionaries().to(device)
    a, b, c = torch.randn(3, 4).to(device), torch.randn(2).to(device), torch.randn(4).to(device)
    expected = module({"a": a, "b": b}, ((a, c),), 2.5, flag=True)
    cell = as_cell(module)
    ours = [to_mindspore(x) for x in (a, b, c)]
    found = cell({"a": ours[0], "b": ours[1]}, ((ours[0], ours[2]),), 2.5, flag=True)
    assert list(found) == ["out", "more", "flag"] and found["flag"] is True and found["more"][1][1] is None
    assert_equal(leaves(expected), leaves(found))


def test_what_is_nested_is_of_its_own_kind() -> None:
    x = torch.randn(3)
    cell, own = as_cell(AsksKinds()), to_mindspore(x)
    found = cell([{"x": own, "sizes": [2, 3]}, ([[own]],)], {1: own, (2, "b"): own})
    expected = AsksKinds()([{"x": x, "sizes": [2, 3]}, ([[x]],)], {1: x, (2, "b"): x})
    assert list(found) == list(expected)
    assert tuple(found[1, "a"]) == tuple(expected[1, "a"])
    assert_equal(leaves(expected[0]), leaves(found[0]))
    assert_equal(leaves(expected[True]), leaves(found[True]))


@pytest.mark.parametrize("given", [Kept, lambda x: {x}, lambda x: (x, x.dtype), lambda x: [(x, object())]])
def test_what_a_graph_cannot_return_is_said_with_what_to_return(given: Callable[[torch.Tensor], Any]) -> None:
    class Gives(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return given(x * 2)

    words = r"^Gives: a graph cannot return an object of [\w.]+: return its tensors, numbers, .* and dataclasses\n"
    with pytest.raises(RuntimeError, match=words):
        as_cell(Gives())(ms.Tensor([1.0, 2.0]))


def test_a_dictionary_is_without_what_a_graph_cannot_return() -> None:
    device = devices.torch_name(devices.target())
    module, x = GivesObjects().to(device), torch.randn(3, 4).to(device)
    cell = as_cell(copy.deepcopy(module))
    with pytest.warns(UserWarning, match="GivesObjects: a graph cannot return an object of Kept, so its result has no"):
        found = cell(to_mindspore(x))
    assert list(found) == ["x", "inner"] and list(found["inner"]) == ["twice"]
    expected = module(x)
    assert_equal([expected["x"], expected["inner"]["twice"]], leaves(found))
    expected["inner"]["twice"].sum().backward()

    def loss(x: ms.Tensor) -> ms.Tensor:
        return cell(x)["inner"]["twice"].sum()

    gradients = ms.grad(loss, None, cell.trainable_params())(to_mindspore(x))
    assert_equal([p.grad for p in module.parameters()], gradients)

    @ms.jit
    def kept(x: ms.Tensor) -> ms.Tensor:
        return cell(x)["kept"]

    with pytest.raises(Exception, match="kept"):
        kept(to_mindspore(x))

    @ms.jit
    def as_attribute(x: ms.Tensor) -> ms.Tensor:
        return cell(x).x

    with pytest.raises(AttributeError, match=r"taken by keys, as \[\"x\"\]"):
        as_attribute(to_mindspore(x))


def test_a_tensor_of_pytorchs_is_a_constant_of_a_graph() -> None:
    x, y = floats(3)(), floats(3)()
    with pytest.warns(UserWarning, match=r"a tensor of PyTorch's .* is a constant of that graph"):
        found = as_cell(nn.PairwiseDistance())(to_mindspore(x), y.to(torch_device()))
    assert_equal([nn.PairwiseDistance()(x.to(torch_device()), y.to(torch_device()))], [found])


def test_a_function_follows_the_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    own = copy.deepcopy(module).to(torch_device())
    cell = as_cell(module)
    compiled: list[str] = []

    @ms.jit
    def run(x: ms.Tensor) -> ms.Tensor:
        return cell(x) * 2

    def compare() -> None:
        x = floats(3, 4)()
        torch.manual_seed(1)
        expected = own(x.to(torch_device())) * 2
        bridge.manual_seed(1)
        assert_equal([expected], [run(to_mindspore(x))])

    compare()
    stay = State.stay

    def counted(state: State) -> None:
        compiled.append("")
        stay(state)

    monkeypatch.setattr(State, "stay", counted)
    for change in (lambda net: net.eval(), lambda net: net.train(), lambda net: net[2].eval(), lambda net: net.eval()):
        change(module), change(own)
        compare()
    cell.set_train(True)
    own.train()
    compare()
    assert len(compiled) == 2  # for evaluation, and for a part in it; the others were known
    assert_equal(list(own.buffers()), [cell.parameters_dict()[name] for name, _ in own.named_buffers()])


def test_modes_stay_apart_when_a_function_meets_another_module() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5))
    first, second = as_cell(module), as_cell(nn.Tanh())

    @ms.jit
    def run(x: ms.Tensor) -> ms.Tensor:
        return first(x) if x.shape[0] == 100 else second(first(x))

    def drops(rows: int) -> bool:
        return bool((run(ms.Tensor(np.ones(rows, np.float32))).asnumpy() == 0).any())

    assert drops(100)
    module.eval()
    module[1].train()
    assert drops(100) and drops(101)  # which adds the second module
    module.eval()
    assert not drops(100) and not drops(101)


class AsksColumn(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x ** x[:1, 0].item()


class WritesInput(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.relu_()


class Seeds(nn.Module):
    """It draws the same numbers in each call, and so does what follows it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(7)
        return x * torch.rand_like(x)


class SeedsForItself(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng():
            torch.manual_seed(7)
            return x * torch.rand_like(x)


class DrawsFromItsOwn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator(devices.torch_name(devices.target()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rand(x.shape, generator=self.generator, device=x.device)


class Fails(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ x


class LoopsOnData(nn.Module):
    """It would never end while each answer is True."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while (x < 9).any():
            x = x + 1
        return x


class MakesSparse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        adjacency = torch.sparse_coo_tensor(torch.eye(2, dtype=torch.int64), x[0, :2], (2, 2))
        return torch.sparse.mm(adjacency, x)


class WritesAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen = torch.zeros(3, device=devices.torch_name(devices.target()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return x * self.seen


class HasTeacher(nn.Module):
    """Its teacher trains, and is in a list."""

    def __init__(self) -> None:
        super().__init__()
        teacher = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 3)).to(devices.torch_name(devices.target()))
        self.teachers = [teacher]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - self.teachers[0](x).detach()


class WritesTable(nn.Module):
    """A buffer of its own is no state, either."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        table = torch.zeros(3, device=devices.torch_name(devices.target()))
        self.register_buffer("table", table, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.table += 1
        return x * self.table


class ReadsByNumPy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.sort(x.detach().numpy()))


def largest_or_one(x: torch.Tensor) -> float:
    try:
        return float(x.detach().numpy().max())
    except Exception:
        return 1.0


class ReadsOrGoesOn(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / largest_or_one(x)


class GradientReadsOrGoesOn(nn.Module):
    class Half(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
            return x / 2

        @staticmethod
        def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return gradient / largest_or_one(gradient)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.Half.apply(x)


class WritesToArray(nn.Module):
    """Or to its tensor: both have one memory."""

    def __init__(self, is_written: bool) -> None:
        super().__init__()
        self.is_written = is_written

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        table = torch.arange(3.0, device="cpu")
        array = table.numpy()
        if self.is_written:
            array[0] = 7
            return x * table[0]
        table += 1
        return x * float(array[0])


class ListsParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.tensor([1, 2, self.scale], device=x.device)


class ListsBuffer(nn.Module):
    """In the ways of old, and in an index."""

    one: torch.Tensor

    def __init__(self, use: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("one", torch.tensor(1))
        self.use = use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.use(x, self.one)


def put(x: torch.Tensor, one: torch.Tensor) -> torch.Tensor:
    result = x.clone()
    result[:, [one, 0]] = 7
    return result


LISTS = [
    lambda x, one: x[:, [one, 0]], lambda x, one: x[..., (one, 0)], lambda x, one: x[[[one, 0]]], put,
    lambda x, one: x + torch.Tensor([1, one, 2]).to(x.device), lambda x, one: x + x.new([1, one, 2]),
    lambda x, one: x[:, torch.LongTensor([one, 0]).to(x.device)],
]  # fmt: skip


class ListsInput(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.new_tensor([1, 2, x.sum()])


class Prints(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print(self.scale)
        return x * self.scale


class Chooses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


class Linearizes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, derivative = torch.func.linearize(torch.sin, x)
        return derivative(x)  # type: ignore[no-any-return]


class GoesBack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.inner(x).sum().backward()
        return x * self.inner.weight.grad[0]  # type: ignore[index, no-any-return]


def doubled_if_positive(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x * 2
    return x


class AsksInTorchScript(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scripted = torch.jit.script(doubled_if_positive)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scripted(x)  # type: ignore[no-any-return]


class Misspells(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sinus()  # type: ignore[attr-defined, no-any-return]


REFUSALS = [
    (GoesBack, ["`backward` adds to the `grad` of parameters", "self.inner(x).sum().backward()"]),
    (WritesAttribute, ["writes to a tensor of shape [3] that is neither a parameter nor a persistent buffer"]),
    (
        HasTeacher,
        ["buffer 'num_batches_tracked' of a BatchNorm1d that is not a part", "x - self.teachers[0](x).detach()"],
    ),
    (WritesTable, ["writes to a tensor of shape [3] that is neither a parameter nor a persistent buffer"]),
    (MakesSparse, ["has a tensor of the layout sparse_coo", "torch.sparse_coo_tensor(torch.eye(2"]),
    (LoopsOnData, ["asks for a value that depends on data", "while (x < 9).any():"]),
    (AsksInTorchScript, ["if x.sum() > 0:", "asks for a value that depends on data", "PyNative mode does"]),
    (AsksColumn, ["a float that depends on data is given to pow", "return x ** x[:1, 0].item()"]),
    (ReadsOrGoesOn, ["Tensor.numpy asks for a value that depends on data", "return float(x.detach().numpy().max())"]),
    (GradientReadsOrGoesOn, ["Tensor.numpy asks", "return float(x.detach().numpy().max())"]),
    (ReadsByNumPy, ["Tensor.numpy asks for a value that depends on data", "np.sort(x.detach().numpy())"]),
    (lambda: WritesToArray(True), ["no writes to what Tensor.numpy gave", "array = table.numpy()"]),
    (lambda: WritesToArray(False), ["nor to its tensor", "array = table.numpy()"]),
    (ListsParameter, ["asks for a value that depends on data", "torch.tensor([1, 2, self.scale]"]),
    *((functools.partial(ListsBuffer, use), ["asks for a value that depends on data"]) for use in LISTS),
    (ListsInput, ["asks for a value that depends on data", "x.new_tensor([1, 2, x.sum()])"]),
    (Prints, ["Tensor.__repr__ asks for a value that depends on data", "print(self.scale)"]),
    (Chooses, ["torch's cond is no single operator", "return torch.cond("]),
    (Linearizes, ["torch.func.linearize traces a function", "torch.func.linearize(torch.sin, x)"]),
    (WritesInput, ["writes to a parameter or an input", "return x.relu_()"]),
    (Seeds, ["a graph does not seed PyTorch's generator", "torch.manual_seed(7)"]),
    (DrawsFromItsOwn, ["aten::rand.generator is given a generator", "generator=self.generator"]),
    (SeedsForItself, ["a graph does not seed PyTorch's generator", "torch.manual_seed(7)"]),
    (Fails, ["(2x3 and 2x3)", "return x @ x"]),
]


@pytest.mark.parametrize("make, words", REFUSALS)
def test_what_cannot_be_captured_is_refused_with_its_line(make: Callable[[], nn.Module], words: list[str]) -> None:
    with pytest.raises(RuntimeError) as caught:
        as_cell(make())(ms.Tensor(np.ones((2, 3), np.float32)))
    for word in words:
        assert word in str(caught.value)
    assert_equal([torch.ones(2, 3)], [as_cell(nn.ReLU())(ms.Tensor(np.ones((2, 3), np.float32)))])


def test_a_lazy_module_elsewhere_is_left_alone() -> None:
    class Has(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.others = [nn.LazyLinear(3), nn.LazyLinear(3).weight]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.others[0](x) if x.shape[0] > 9 else x * 2  # type: ignore[no-any-return, operator]

    net, x = as_cell(Has()), ms.Tensor(np.ones((2, 3), np.float32))
    for _ in range(2):
        assert_equal([torch.full((2, 3), 2.0)], [net(x)])


def test_a_call_of_backward_works_in_pynative_mode() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)
    own, reference = GoesBack(), GoesBack().to(torch_device())
    reference.load_state_dict(own.state_dict())
    expected = reference(torch.ones(2, 3, device=torch_device()))
    assert_equal([expected], [bridge.cell(own)(ms.ops.ones((2, 3)))])


def test_a_call_of_backward_on_an_own_leaf_is_captured() -> None:
    class Descends(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            leaf = x.detach().requires_grad_()
            (leaf**3).sum().backward()
            assert leaf.grad is not None
            return x - leaf.grad

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_equal([Descends()(on_device(x))], [as_cell(Descends())(ms.Tensor(x))])


def test_an_evaluation_records_nothing_where_only_training_goes_back() -> None:
    class Trains(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.is_grad_enabled()

        def training_step(self, x: torch.Tensor) -> None:
            self(x).sum().backward()

    ms.set_context(mode=ms.PYNATIVE_MODE)
    assert not bridge.cell(Trains())(ms.ops.zeros((2,))).asnumpy().any()


def gradient(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """As in SIREN's diff_operators.py."""
    return torch.autograd.grad(y, [x], torch.ones_like(y), create_graph=True)[0]


def test_a_function_that_forward_calls_takes_a_gradient() -> None:
    class Slope(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.detach().requires_grad_()
            return gradient(torch.sin(x), x)

    ms.set_context(mode=ms.PYNATIVE_MODE)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_equal([Slope()(on_device(x))], [bridge.cell(Slope())(ms.Tensor(x))])


rounds = 0


def test_a_loop_without_an_end_that_a_graph_knows_is_refused_soon() -> None:
    class Shrinks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            global rounds
            while (x.abs() > 0.5).any():
                rounds += 1
                x = x * 0.9
            return x

    with pytest.raises(RuntimeError, match="asks for a value that depends on data"):
        as_cell(Shrinks())(ms.Tensor(np.ones((2, 3), np.float32)))
    assert rounds < 1000


def test_words_are_of_pytorchs_tensors() -> None:
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'sinus'[^F]*In file"):
        as_cell(Misspells())(ms.Tensor(np.ones((2, 3), np.float32)))


def test_anomaly_mode_is_refused() -> None:
    net, x = as_cell(nn.ReLU()), ms.Tensor(np.ones((2, 3), np.float32))
    net(x)
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="looks for the cause of nan in PyNative"):
        net(x)
    assert_equal([torch.ones(2, 3)], [net(x)])


@dataclasses.dataclass
class Batch:
    x: Any


def test_tensors_in_a_dataclass_are_no_arguments_of_a_graph() -> None:
    class Takes(nn.Module):
        def forward(self, batch: Batch) -> torch.Tensor:
            return batch.x * 2  # type: ignore[no-any-return]

    with pytest.raises(RuntimeError, match="a graph takes no tensors in a dataclass, as Batch"):
        as_cell(Takes())(Batch([ms.Tensor(np.ones((2, 3), np.float32))]))


def test_a_dataclass_of_settings_is_a_constant_of_a_graph() -> None:
    class Scales(nn.Module):
        def forward(self, x: torch.Tensor, batch: Batch) -> torch.Tensor:
            return x * batch.x  # type: ignore[no-any-return]

    net, batch = bridge.cell(Scales()), Batch(3.0)

    @ms.jit
    def call(x):
        return net(x, batch)

    assert (call(ms.Tensor(np.ones((2, 3), np.float32))).asnumpy() == 3).all()


def test_the_line_may_be_that_of_a_package_whose_name_begins_with_torch() -> None:
    found: dict[str, Any] = {}
    path = f"{pathlib.Path(torch.__file__).parent}_geometric/loops.py"
    exec(compile("def forward(self, x):\n    return x ** x.sum().item()\n", path, "exec"), found)
    module = type("Selects", (nn.Module,), found)()
    with pytest.raises(RuntimeError, match=r"In file \S*torch_geometric/loops\.py:2, in forward"):
        as_cell(module)(ms.Tensor(np.ones((2, 3), np.float32)))


def test_another_thread_has_pytorchs_own_functions() -> None:
    """While MindSpore's threads capture for sizes that are new, the user's program goes on."""
    seen: list[Any] = []

    def other() -> None:
        torch.manual_seed(0)
        seen.extend(torch.ones(2, requires_grad=True).tolist())

    class Waits(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            return x * 2

    as_cell(Waits())(ms.Tensor(np.ones((2, 3), np.float32)))
    assert seen and set(seen) == {1.0}


def test_a_missing_key_is_named_with_its_line() -> None:
    class Misses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + {"scale": 1}["weights"]

    with pytest.raises(KeyError) as caught:
        as_cell(Misses())(ms.Tensor(np.ones((2, 3), np.float32)))
    assert str(caught.value).startswith("'weights'\n\nIn file")


def test_hooks_are_refused_by_name() -> None:
    module = mlp()
    module[1].register_forward_hook(lambda *_: None)  # type: ignore[index, union-attr]
    with pytest.raises(RuntimeError, match=r"Sequential\.1 has forward hooks"):
        as_cell(module)(ms.Tensor(np.ones((2, 6), np.float32)))


def test_a_second_gradient_is_refused_by_name() -> None:
    cell = as_cell(nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    x = ms.Tensor(np.ones((2, 3), np.float32))
    first = ms.grad(cell)

    def total(y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return first(y).sum()

    with pytest.raises(RuntimeError, match="Sequential: the gradient of a PyTorch module's gradient is not available"):
        ms.grad(total)(x)


def test_a_program_is_captured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    device = devices.torch_name(devices.target())
    module, x = mlp().to(device), torch.randn(4, 6).to(device)
    expected = module(x)
    assert_equal([expected], [as_cell(copy.deepcopy(module))(to_mindspore(x))])
    kept = sorted(store.place().iterdir())

    def refuse(*_: Any) -> Any:
        raise AssertionError("captured again")

    monkeypatch.setattr("bridge.programs.graph.GraphProgram._capture", refuse)
    assert_equal([expected], [as_cell(module)(to_mindspore(x))])
    assert sorted(store.place().iterdir()) == kept


def test_a_program_is_kept_beside_modules_that_import_when_they_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(types.ModuleType):
        def __getattr__(self, name: str) -> Any:
            raise ImportError(f"what has {name} is not installed")

    monkeypatch.setitem(sys.modules, "lazy", Lazy("lazy"))
    assert as_cell(nn.ReLU())(ms.Tensor(np.ones(2, np.float32))).asnumpy().tolist() == [1, 1]


TABLE = torch.arange(1.0, 4.0)


class ReadsConstants(nn.Module):
    """What it finds, and what it makes of that."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        table = np.sqrt(((1 + TABLE) / 2).numpy()) + np.array(TABLE.detach())
        array = torch.from_numpy(np.ones(3, np.float32))
        array += 1  # which the array does not have while a graph is captured
        return x * torch.from_numpy(table).to(x.device) * array.tolist()[0] * float(TABLE.numpy()[2])


def test_constants_are_read() -> None:
    x = torch.randn(2, 3, device=devices.torch_name(devices.target()))
    assert_equal([ReadsConstants()(x)], [as_cell(ReadsConstants())(to_mindspore(x))])


def test_what_a_file_has_is_a_constant(tmp_path: pathlib.Path) -> None:
    torch.save({"table": torch.randn(3), "layer": nn.Linear(3, 4).state_dict()}, tmp_path / "kept.pt")

    class Loads(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            kept = torch.load(tmp_path / "kept.pt", map_location=x.device)
            layer = nn.Linear(3, 4, device=x.device)
            layer.load_state_dict(kept["layer"])
            return layer(x * kept["table"]).sin().sum()  # type: ignore[no-any-return]

    x = torch.randn(2, 3, device=devices.torch_name(devices.target()), requires_grad=True)
    expected = Loads()(x)
    found, gradient = ms.value_and_grad(as_cell(Loads()))(to_mindspore(x))
    assert_equal([expected, *torch.autograd.grad(expected, x)], [found, gradient])


class ListsConstants(nn.Module):
    """Of several dtypes, which decide that of the tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.tensor([[TABLE[0], 1, True], [2.5, TABLE[2].double(), TABLE.sum().long()]], dtype=None)
        whole = torch.as_tensor((TABLE[1].long(), 3)), torch.tensor([torch.ones(1), TABLE[:1]])
        old = torch.Tensor([TABLE[1], 1, 2]).to(x.device) + x[:, [TABLE[1].long(), 0, 2]]
        return (
            made.to(x.device) * x
            + whole[0].sum().to(x.device)
            + x.new_tensor([TABLE[2], 1, 2])
            + whole[1][0].item()
            + old
        )


def test_constants_are_taken_from_lists() -> None:
    x = torch.randn(2, 3, device=devices.torch_name(devices.target()))
    expected = ListsConstants()(x)
    assert expected.dtype is torch.float64
    assert_equal([expected], [as_cell(ListsConstants())(to_mindspore(x))])


def test_other_settings_are_another_program() -> None:
    x = ms.Tensor(np.full((2, 3), -1, np.float32))
    for slope in (0.5, 0.25):
        assert as_cell(nn.LeakyReLU(slope))(x).asnumpy().max() == -slope


class Shift:
    def __init__(self, by: float) -> None:
        self.by = by

    def __repr__(self) -> str:
        return "a shift"


class Shifts(nn.Module):
    def forward(self, x: torch.Tensor, shift: Shift, table: np.ndarray) -> torch.Tensor:
        return x + shift.by + float(table[1000])


def test_other_arguments_that_print_alike_are_another_program() -> None:
    cell, table = as_cell(Shifts()), np.zeros(2000)
    x = ms.Tensor(np.zeros(2, np.float32))
    for shift, entry in ((1.0, 0), (2.0, 0), (2.0, 3)):
        table[1000] = entry

        def shifted(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
            return cell(x, Shift(shift), table)  # noqa: B023

        assert ms.jit(shifted)(x).asnumpy().tolist() == [shift + entry] * 2


class Checks(torch.nn.Module):
    """Raises an error for some data, and asserts something of others."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if torch.any(x < -9):
            raise ValueError("too small")
        assert (x < 9).all(), "too large"
        return torch.nn.functional.gaussian_nll_loss(x, torch.ones_like(x), x.abs())


def test_what_raises_for_some_data_is_checked_when_the_graph_runs() -> None:
    cell = bridge.cell(Checks())
    x = torch.tensor(data(3, 4), device=devices.torch_name(devices.target()), requires_grad=True)

    def run(array: np.ndarray) -> Any:
        def call(x):
            return cell(x)

        found = ms.jit(ms.value_and_grad(call))(ms.Tensor(array))
        ms.runtime.synchronize()  # on a GPU the error of a launch comes late
        return found

    expected = Checks()(x)
    (given,) = torch.autograd.grad(expected, x)
    value, gradient = run(data(3, 4))
    assert float(value) == float(expected) and np.array_equal(gradient.asnumpy(), given.cpu().numpy())
    for offset, kind, words in ((-20, ValueError, "too small"), (20, AssertionError, "too large")):
        match = rf"was taken to be \w+ when the graph was compiled.*{kind.__name__}: {words}"
        with pytest.raises(class_at_sync(kind), match=match):
            run(data(3, 4) + offset)


class Compares(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if not torch.equal(x, y):
            raise ValueError("they differ")
        return x if torch.equal(x, y[1:]) else x + y


class Windows(nn.Module):
    def forward(self, x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.istft(torch.complex(x, x), 16, 4, window=window)


@pytest.mark.parametrize(
    "module, right, wrong, kind, words",
    [
        (Compares(), np.ones((2, 3)), np.zeros((2, 3)), ValueError, "ValueError: they differ"),
        (Windows(), np.ones(16), np.zeros(16), RuntimeError, "window overlap add min: 1"),
    ],
    ids=["of two tensors", "of a window"],
)
def test_comparisons_are_checked_when_the_graph_runs(
    module: nn.Module, right: np.ndarray, wrong: np.ndarray, kind: type[Exception], words: str
) -> None:
    cell = as_cell(module)
    x = np.ones((2, 9, 7) if isinstance(module, Windows) else right.shape, np.float32)

    @ms.jit
    def run(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return cell(x, y)

    def called(y: np.ndarray) -> ms.Tensor:
        found = run(ms.Tensor(x), ms.Tensor(y.astype(np.float32)))
        ms.runtime.synchronize()  # on a GPU the error of a launch comes late
        return found

    device = devices.torch_name(devices.target())
    expected = module(*(torch.from_numpy(array.astype(np.float32)).to(device) for array in (x, right)))
    assert_equal([expected], [called(right)])
    for _ in range(2):
        match = rf"(?s)was taken to be \w+ when the graph was compiled.*{words}"
        with pytest.raises(class_at_sync(kind), match=match):
            called(wrong)
        assert_equal([expected], [called(right)])


class Nested(nn.Module):
    """Which error it raises depends on data too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (x < 9).all():
            raise ValueError("large" if (x < 99).all() else "huge")
        return x * 2


def test_the_error_of_a_check_may_depend_on_data() -> None:
    x = np.ones((2, 3), np.float32)
    assert_equal([torch.full((2, 3), 2.0)], [as_cell(Nested())(ms.Tensor(x))])


def refuse(x: torch.Tensor) -> None:
    raise ValueError(f"{x.max().item():.3f} is too large")


class SaysNumber(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x > 9).any():
            refuse(x)
        return x * 2


def test_the_words_of_an_error_may_have_numbers() -> None:
    cell, x = as_cell(SaysNumber()), np.ones((2, 3), np.float32)
    assert_equal([torch.full((2, 3), 2.0)], [cell(ms.Tensor(x))])
    with pytest.raises(class_at_sync(ValueError), match=r"was taken to be False .*ValueError: \? is too large"):
        cell(ms.Tensor(x * 99))
        ms.runtime.synchronize()
    assert_equal([torch.full((2, 3), 2.0)], [cell(ms.Tensor(x))])


class ChecksScale(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        prior = torch.distributions.Normal(x, x, validate_args=True)
        return prior.log_prob(x + 1)


def test_the_checks_of_distributions_take_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Mock(side_effect=capture._captured)
    monkeypatch.setattr(capture, "_captured", runs)
    cell, x = as_cell(ChecksScale()), np.ones((2, 3), np.float32)
    expected = ChecksScale()(on_device(x)).cpu()
    assert_equal([expected], [cell(ms.Tensor(x))])
    assert runs.call_count == 1
    with pytest.raises(class_at_sync(ValueError), match=r"was taken to be True .*raise ValueError"):
        cell(ms.Tensor(-x))
        ms.runtime.synchronize()
    assert_equal([expected], [cell(ms.Tensor(x))])


class CatchesCheck(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            prior = torch.distributions.Normal(x, x, validate_args=True)
        except ValueError:
            prior = torch.distributions.Normal(x, 1.0, validate_args=False)
        return prior.log_prob(x + 1)


def test_a_check_whose_error_is_caught_is_a_question() -> None:
    net = as_cell(CatchesCheck())
    for factor in (1, -1, 2):
        x = np.full((2, 3), factor, np.float32)
        expected = CatchesCheck()(on_device(x)).cpu()
        assert_equal([expected], [net(ms.Tensor(x))])


class ScalesByData(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x > 9).any():
            return x ** x.max().item()
        return x


class CountsByData(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if (x > 9).any():
            for _ in range(int(x.max().item())):
                x = x - 1
        return x


@pytest.mark.parametrize("make", [ScalesByData, CountsByData])
def test_numbers_for_anything_else_are_refused(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(RuntimeError, match=r"depends on data(?s:.*)x\.max\(\)\.item\(\)"):
        as_cell(make())(ms.Tensor(np.ones((2, 3), np.float32)))


class AsksUnlessCompiled(nn.Module):
    """Attends to all without a mask that masks nothing, as transformers 4 does unless PyTorch compiles it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling() and torch.all(mask == 1):
            return self.attention(x, x, x)[0]
        return self.attention(x, x, x, key_padding_mask=mask == 0)[0]


def test_what_asks_for_data_may_ask_for_none_where_pytorch_compiles_it() -> None:
    torch.manual_seed(0)
    module, x, mask = AsksUnlessCompiled(), data(2, 3, 4), np.array([[1, 1, 0], [1, 1, 1]])
    reference = copy.deepcopy(module).to(torch_device())
    with pytest.warns(UserWarning, match=r"torch\.compiler\.is_compiling(?s:.*)torch\.all\(mask == 1\)"):
        found = bridge.cell(module)(ms.Tensor(x), ms.Tensor(mask))
    assert np.array_equal(found.asnumpy(), reference(on_device(x), on_device(mask)).detach().cpu().numpy())
    assert not torch.compiler.is_compiling()


class Windowed(nn.Module):
    """What PyTorch keeps of a window's shape would make the second capture look like another function."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.utils.weight_norm(nn.Linear(23, 23))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * torch.hann_window(23, device=x.device)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_what_pytorch_keeps_of_shapes_makes_no_other_function() -> None:
    torch.manual_seed(0)
    module, x = Windowed(), data(2, 23)
    torch.manual_seed(0)
    reference = Windowed().to(torch_device())
    assert_equal([reference(on_device(x))], [as_cell(module)(ms.Tensor(x))])


class Converges(nn.Module):
    """It asks data a question, and then for a number until that is small."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert torch.isfinite(x).all()
        while True:
            x = x * 0.5
            error = x.abs().max().item()
            if error < 1.0:
                return x


def test_a_loop_that_ends_when_data_says_so_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"asks for a value that depends on data(?s:.*)if error < 1\.0"):
        as_cell(Converges())(ms.Tensor(np.ones((2, 3), np.float32)))


class Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return ctx.missing * gradient  # type: ignore[no-any-return]


class HasNoGradient(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Raises.apply(x)  # type: ignore[no-any-return, no-untyped-call]


def test_a_backward_that_fails_is_not_asked_without_a_gradient() -> None:
    cell = as_cell(HasNoGradient())
    x = ms.Tensor(np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(cell(x).asnumpy(), 2 * x.asnumpy())
    with pytest.raises(Exception, match="missing"):
        ms.grad(cell)(x)


class Multiplies(nn.Module):
    """Matrices, by one matrix that requires no gradient, from both sides."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", torch.from_numpy(data(1, 7, 7)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        matrix: Any = self.matrix
        y = x @ matrix + torch.matmul(matrix, x) + x.matmul(matrix) + torch.linalg.matmul(x, matrix)
        return y  # type: ignore[no-any-return]


def test_batches_of_matrices_are_multiplied_as_eager_pytorch_does() -> None:
    """Under a mode of its own PyTorch makes one product of all, which rounds otherwise."""
    module = Multiplies()
    expected = copy.deepcopy(module).to(torch_device())(on_device(data(5, 7, 7, seed=1)))
    found = as_cell(module)(ms.Tensor(data(5, 7, 7, seed=1)))
    np.testing.assert_array_equal(found.asnumpy(), expected.cpu().numpy())
    net = ms.nn.Cell()
    net.matrix = ms.Tensor(data(1, 7, 7))
    fused = bridge.fuse(lambda x: aten.matmul(x, net.matrix))
    found = ms.jit(fused)(ms.Tensor(data(5, 7, 7, seed=1)))
    expected = on_device(data(5, 7, 7, seed=1)) @ on_device(data(1, 7, 7))
    np.testing.assert_array_equal(found.asnumpy(), expected.cpu().numpy())


class ChecksMask(nn.Module):
    """Checks data, and goes on to an error of another kind."""

    def __init__(self, check: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.check = check

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        self.check(mask)
        return self.linear(x)


def raise_unless_all(mask: torch.Tensor) -> None:
    if not mask.all():
        raise ValueError("not all are on")


def assert_all(mask: torch.Tensor) -> None:
    assert mask.all(), "not all are on"


def are_all(mask: torch.Tensor) -> bool:
    return bool(mask.all())


def ask_elsewhere(mask: torch.Tensor) -> None:
    if mask.dim() and not are_all(mask):
        raise ValueError(f"{mask.sum().item()} are on")


def check_twice(mask: torch.Tensor) -> None:
    if not mask.any():
        raise ValueError("none is on")
    elif not mask.all():
        raise ValueError("not all are on")


def check_in_check(mask: torch.Tensor) -> None:
    if not mask.all():
        if mask.any():
            raise ValueError("some are on")
        raise ValueError("none is on")


@pytest.mark.parametrize("check", [raise_unless_all, assert_all, ask_elsewhere, check_twice, check_in_check])
@pytest.mark.parametrize("x", [np.ones((2, 4), np.float32), np.ones((2, 3))], ids=["shape", "dtype"])
def test_an_error_is_not_taken_for_that_of_a_check(check: Callable[[torch.Tensor], object], x: np.ndarray) -> None:
    module, mask, device = ChecksMask(check), np.ones(2, np.bool_), devices.torch_name(devices.target())
    with pytest.raises(RuntimeError) as expected:
        copy.deepcopy(module).to(device)(*(torch.from_numpy(array).to(device) for array in (x, mask)))
    cell = as_cell(module)
    with pytest.raises(type(expected.value), match=re.escape(str(expected.value))) as found:
        cell(ms.Tensor(x), ms.Tensor(mask))
    assert "return self.linear(x)" in str(found.value) and "are on" not in str(found.value)


class GoesWrongBothWays(nn.Module):
    """No answer is a check."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x @ x
        return x.view(5)


def test_the_errors_of_both_answers_are_named() -> None:
    with pytest.raises(RuntimeError) as found:
        as_cell(GoesWrongBothWays())(ms.Tensor(np.ones((2, 3), np.float32)))
    own, _, other = str(found.value).partition("For other data: RuntimeError: ")
    assert "shape '[5]' is invalid" in own and "return x.view(5)" in own
    assert "cannot be multiplied" in other and "return x @ x" in other


note_run = Mock()  # nobody looks into an object of a package whether a second capture differs


class ChecksOften(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        note_run()
        for limit in range(10):
            assert (x < limit + 9).all(), "too large"
        return x * 2


def test_many_checks_of_one_line_take_few_runs() -> None:
    note_run.reset_mock()
    cell: Any = as_cell(ChecksOften())
    cell(ms.Tensor(np.ones((2, 3), np.float32)))
    # One without an error, one with that of each of four checks, which the others are taken to be like, and one that is
    # written down.
    assert note_run.call_count == 1 + 4 + 1
    with pytest.raises(class_at_sync(AssertionError), match=r"(?s)was taken to be True .*is False now: .*too large"):
        cell(ms.Tensor(np.full((2, 3), 12, np.float32)))
        ms.runtime.synchronize()


class OneIsOtherwise(nn.Module):
    """The other answer leads to an error at all rows but one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in range(8):
            small = bool((x[i] < 9).all())
            assert small is (i != 2), f"row {i}"
        return x * 2


def test_checks_of_one_line_may_differ() -> None:
    x = np.ones((8, 3), np.float32)
    x[2] = 10
    np.testing.assert_array_equal(as_cell(OneIsOtherwise())(ms.Tensor(x)).asnumpy(), 2 * x)


class SaysItsNumbers(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.min() >= 0, f"got {x.min().item()}"
        assert x.max() <= 1, f"got {x.max().item()}"
        return x * 2


def test_two_checks_in_a_row_say_their_numbers() -> None:
    cell: Any = as_cell(SaysItsNumbers())
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(cell(ms.Tensor(x)).asnumpy(), 2 * x)
    for wrong in (-x, 2 * x):
        with pytest.raises(class_at_sync(AssertionError), match=r"got \?"):
            cell(ms.Tensor(wrong))
            ms.runtime.synchronize()


class Gated(nn.Module):
    """Buffers answer each question."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("on", torch.arange(8) % 2 == 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        note_run()
        for on in self.on:  # type: ignore[union-attr]
            x = x + 1 if on else x * 2
        return x


def test_what_buffers_answer_takes_one_run() -> None:
    module = Gated()
    cell: Any = as_cell(module)
    x = np.ones((2, 3), np.float32)
    note_run.reset_mock()
    found = cell(ms.Tensor(x)).asnumpy()
    assert note_run.call_count == 1
    np.testing.assert_array_equal(found, module.cpu()(torch.from_numpy(x)).numpy())


class AddsToData(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.data += 1
        return y


def test_data_may_be_assigned_what_it_is() -> None:
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(as_cell(AddsToData())(ms.Tensor(x)).asnumpy(), 2 * x + 1)


class Classifies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.layer(x), classes)


def test_dtypes_are_refused_with_the_line() -> None:
    cell: Any = as_cell(Classifies())
    x = ms.Tensor(np.ones((2, 3), np.float32))
    with pytest.raises(RuntimeError, match=r"(?i)(?s)int.*return F\.cross_entropy\(self\.layer\(x\), classes\)"):
        cell(x, ms.Tensor(np.zeros(2, np.int32)))
    with pytest.raises(RuntimeError, match=r"(?s)(dtype|scalar type).*return F\.cross_entropy\(self\.layer\(x\)"):
        cell(x.astype(ms.float64), ms.Tensor(np.zeros(2, np.int64)))
    assert cell(x, ms.Tensor(np.zeros(2, np.int64))).shape == ()


class Part(ms.nn.Cell):
    """Several of this class have one graph for MindSpore, and programs for inputs of several shapes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.part = as_cell(module)

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.part(x)


def test_each_shape_has_its_own_gradient() -> None:
    torch.manual_seed(0)
    device = devices.torch_name(devices.target())
    modules = [nn.Linear(*widths).to(device) for widths in ((8, 4), (4, 5), (5, 4))]
    x = torch.randn(3, 8).to(device)
    expected = torch.autograd.grad(nn.Sequential(*modules)(x).sum(), [module.weight for module in modules])
    net = ms.nn.SequentialCell(*map(Part, modules))

    def total(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return net(x).sum()

    assert_equal(expected, ms.grad(total, None, net.trainable_params()[::2])(to_mindspore(x)))


@pytest.mark.parametrize("how", [ms.vmap, ms.jacrev], ids=["vmap", "jacrev"])
def test_what_maps_a_module_is_refused(how: Callable[[Any], Any]) -> None:
    if how is ms.jacrev and devices.target() == "GPU":
        pytest.skip("MindSpore's own jacrev fails to compile on a GPU: it does not find its _eye_with_like")
    cell = as_cell(nn.Linear(4, 3))

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return cell(x)

    with pytest.raises(RuntimeError, match=r"Linear: mindspore\.vmap, jacrev and jacfwd map no program of several"):
        how(call)(ms.Tensor(data(2, 4)))


@pytest.mark.parametrize(
    "how", [lambda call, x: ms.jvp(call, x, x), lambda call, x: ms.jacfwd(call)(x)], ids=["jvp", "jacfwd"]
)
def test_forward_mode_of_mindspores_is_refused_by_name(
    how: Callable[[Any, ms.Tensor], Any], request: pytest.FixtureRequest
) -> None:
    if devices.target() == "GPU" and "jacfwd" in request.node.name:
        pytest.skip("MindSpore's jacfwd does not compile on a GPU: it has no _eye_with_like there")
    cell = as_cell(nn.Linear(4, 3))

    def call(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return cell(x)

    with pytest.raises(RuntimeError, match=r"Linear: .*, for which mindspore\.jvp and jacfwd ask, too: "):
        how(call, ms.Tensor(data(4)))


def test_a_graph_says_that_the_module_has_another_dtype() -> None:
    net = bridge.cell(nn.Linear(3, 2))
    x = ms.Tensor(np.ones((4, 3), np.float32))

    @ms.jit
    def call(x):
        return net(x)

    call(x)
    net.module.double()
    with pytest.raises(ValueError, match="weight: PyTorch's tensor has another shape or dtype now"):
        call(x)


def test_pytorchs_warnings_come_once(capfd: pytest.CaptureFixture[str]) -> None:
    class Spread(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.var(0)

    cell: Any = bridge.cell(Spread())

    @ms.jit
    def run(x):
        return cell(x)

    with warnings.catch_warnings(record=True):  # of the capture
        run(ms.Tensor(data(2, 3)))
    for _ in range(3):
        run(ms.Tensor(data(1, 3))).asnumpy()
    assert capfd.readouterr().err.count("degrees of freedom is <= 0") == 1


@pytest.mark.parametrize(
    "layer", [nn.Dropout(0.3), nn.BatchNorm1d(4), nn.Identity()], ids=lambda one: type(one).__name__
)
def test_the_gradient_of_an_input_is_that_of_before_the_optimizers_step(layer: nn.Module) -> None:
    torch.manual_seed(0)
    layers = [nn.Linear(4, 4), nn.Tanh(), layer, *(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(4))]
    module = nn.Sequential(*layers)
    reference = copy.deepcopy(module).to(torch_device())
    cell: Any = bridge.cell(module)
    optimizer = bridge.optim.SGD(cell.trainable_params(), 0.5)
    differentiate = ms.value_and_grad(cell, 0, optimizer.parameters)

    @ms.jit
    def step(x):
        value, (of_input, of_weights) = differentiate(x)
        optimizer(of_weights)
        return value, of_input

    x = data(6, 4)
    given = on_device(x).requires_grad_()
    names, weights = zip(*reference.named_parameters(), strict=True)
    torch.manual_seed(1)
    expected, *gradients = torch.autograd.grad(reference(given).sum(), [given, *weights])
    torch.manual_seed(1)
    _, of_input = step(ms.Tensor(x))
    np.testing.assert_array_equal(of_input.asnumpy(), expected.cpu().numpy())
    for name, weight, gradient in zip(names, weights, gradients, strict=True):
        changed = (weight - 0.5 * gradient).detach().cpu().numpy()
        np.testing.assert_array_equal(cell.parameters_dict()[name].asnumpy(), changed)


class IsOne(nn.Module):
    """Asks whether its arguments are one tensor."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a * 2 if a is b else a + b


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = IsOne()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x)


def test_one_tensor_in_two_arguments_is_warned_of() -> None:
    apart, attention, around = (
        bridge.cell(module) for module in (IsOne(), nn.MultiheadAttention(4, 2, batch_first=True), Around())
    )
    x, y = (ms.Tensor(data(2, 3, 4, seed=seed)) for seed in range(2))

    @ms.jit
    def both(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return apart(x, x)

    @ms.jit
    def attends(x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return attention(x, x, x)

    @ms.jit
    def two(x, y):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return apart(x, y), around(x)

    with pytest.warns(
        UserWarning, match="IsOne: its code asks `a is b`, and in a graph no two arguments are one tensor"
    ):
        both(x)
    with pytest.warns(UserWarning, match="MultiheadAttention: its code asks `.* is (not )?.*`"):
        attends(x)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*one tensor.*")
        assert np.array_equal(two(x, y)[1].asnumpy(), 2 * x.asnumpy())
