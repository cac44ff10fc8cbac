"""Classes that derive from layers: what they add and override is in force, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

from bridge import nn as tnn
from bridge import optim
from bridge import torch as T
from bridge.nn import functional as F
from shared import data

X = data(2, 3)


class Scaled(tnn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.scale = tnn.Parameter(T.full((outputs,), 2.0))
        self.register_buffer("shift", T.ones(outputs))
        self.second = tnn.Sequential(tnn.Linear(outputs, outputs), tnn.Tanh())

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.second(F.linear(x, self.weight, self.bias) * self.scale + self.shift)


class TorchScaled(torch.nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.scale = torch.nn.Parameter(torch.full((outputs,), 2.0))
        self.register_buffer("shift", torch.ones(outputs))
        self.second = torch.nn.Sequential(torch.nn.Linear(outputs, outputs), torch.nn.Tanh())


def test_what_is_added_is_part_of_the_layer() -> None:
    T.manual_seed(0)
    net, loaded = Scaled(3, 4), tnn.Sequential(Scaled(3, 4))
    torch.manual_seed(0)
    reference = TorchScaled(3, 4)
    state = net.state_dict()
    assert list(state) == list(reference.state_dict())
    assert all(torch.equal(state[name], value) for name, value in reference.state_dict().items())
    names = [name for name, _ in reference.named_parameters()]
    assert [name for name, _ in net.named_parameters()] == names
    assert [name for name, _ in net.named_modules()] == [name for name, _ in reference.named_modules()]
    assert [name for name, _ in loaded.named_parameters()] == [f"0.{name}" for name in names]
    loaded.load_state_dict({f"0.{name}": value for name, value in state.items()})
    assert np.array_equal(loaded(ms.Tensor(X)).asnumpy(), net(ms.Tensor(X)).asnumpy())
    with pytest.raises(RuntimeError, match=r"second\.0\.bias"):
        net.load_state_dict({name: value for name, value in state.items() if name != "second.0.bias"})
    seen: list[Any] = []
    net.apply(seen.append)
    assert seen == [*net.second.children(), net.second, net]


def test_buffers_are_those_of_layers_too() -> None:
    net = tnn.Sequential(Scaled(3, 4), tnn.BatchNorm1d(4), tnn.BatchNorm1d(4, track_running_stats=False))
    reference = torch.nn.Sequential(
        TorchScaled(3, 4), torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4, track_running_stats=False)
    )
    names = [name for name, _ in reference.named_buffers()]
    assert [name for name, _ in net.named_buffers()] == names and len(names) == 4
    dict(net.named_buffers())["1.running_mean"].set_data(T.full((4,), 3.0))
    assert (net[1].running_mean.asnumpy() == 3).all() and len(list(net.buffers())) == 4


def test_a_tied_weight_leaves_what_is_added() -> None:
    net = Scaled(3, 4)
    net.weight = tnn.Linear(3, 4).weight
    assert [*net.state_dict()] == ["weight", "bias", "scale", "shift", "second.0.weight", "second.0.bias"]
    assert len(optim.SGD(net.trainable_params(), 0.1).parameters) == 5


def shift_bias(of: Any, layer: Any) -> None:
    of.init.normal_(layer.weight)
    of.init.constant_(layer.bias, 0.5)


class OwnInitial(tnn.Linear):
    def reset_parameters(self) -> None:
        shift_bias(tnn, self)


class TorchOwnInitial(torch.nn.Linear):
    def reset_parameters(self) -> None:
        shift_bias(torch.nn, self)


class MoreInitial(tnn.Conv2d):
    def reset_parameters(self) -> None:
        super().reset_parameters()
        tnn.init.zeros_(self.bias)


class TorchMoreInitial(torch.nn.Conv2d):
    def reset_parameters(self) -> None:
        super().reset_parameters()
        assert self.bias is not None
        torch.nn.init.zeros_(self.bias)


class Attention(tnn.MultiheadAttention):
    def _reset_parameters(self) -> None:
        super()._reset_parameters()
        tnn.init.xavier_normal_(self.out_proj.weight)


class TorchAttention(torch.nn.MultiheadAttention):
    def _reset_parameters(self) -> None:
        super()._reset_parameters()
        torch.nn.init.xavier_normal_(self.out_proj.weight)


@pytest.mark.parametrize(
    ("own", "reference", "arguments"),
    [
        (OwnInitial, TorchOwnInitial, (3, 4)),
        (MoreInitial, TorchMoreInitial, (3, 4, 3)),
        (Attention, TorchAttention, (4, 2)),
    ],
)
def test_own_initial_values(own: Any, reference: Any, arguments: tuple[int, ...]) -> None:
    T.manual_seed(3)
    state = own(*arguments).state_dict()
    torch.manual_seed(3)
    wanted = reference(*arguments).state_dict()
    assert list(state) == list(wanted) and all(torch.equal(state[name], wanted[name]) for name in wanted)


class Plain(tnn.TransformerEncoderLayer):
    """Overrides nothing."""


class Silent(tnn.TransformerEncoderLayer):
    def construct(self, src, **_):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self._ff_block(src)

    def _ff_block(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return x * 0


def test_what_would_be_called_is_called() -> None:
    x = ms.Tensor(data(2, 3, 4))
    assert not Silent(4, 2)(x).asnumpy().any() and not tnn.Sequential(Silent(4, 2))(x).asnumpy().any()
    assert tnn.TransformerEncoder(Plain(4, 2), 2)(x).shape == (2, 3, 4)
    normed = tnn.utils.parametrizations.weight_norm(Scaled(3, 4))
    assert normed(ms.Tensor(X)).shape == (2, 4)


def test_a_cast_casts_what_is_registered() -> None:
    net, reference = tnn.Sequential(Scaled(3, 4)).double(), TorchScaled(3, 4).double()
    for name, value in reference.state_dict().items():
        assert net.state_dict()[f"0.{name}"].dtype == value.dtype, name


class Counts(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", T.zeros(1))

    def construct(self, x):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        self.seen = self.seen + 1
        return x


def test_hooks_that_nothing_would_call() -> None:
    encoder = tnn.TransformerEncoder(Plain(4, 2), 1)
    for layer in (encoder.layers[0], encoder.layers[0].linear1):
        for name in ("forward_pre", "forward", "backward_pre", "backward"):
            with pytest.raises(RuntimeError, match="would not call the hook"):
                getattr(layer, f"register_{name}_hook")(lambda *_: None)
    seen = []
    encoder.register_forward_hook(lambda *_: seen.append(1))
    encoder(ms.Tensor(data(2, 3, 4)))
    assert seen == [1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Counts()(ms.Tensor(X)), r"write self.seen = nn\.Buffer\(x\)"),
        (lambda: tnn.TransformerEncoder(Silent(4, 2), 2), "Silent has its own construct"),
        (lambda: setattr(Plain(4, 2), "linear1", Scaled(4, 8)), "Scaled has its own construct"),
        (lambda: type("Own", (tnn.LazyLinear,), {}), "become others at their first call"),
        (
            lambda: type("Own", (tnn.TransformerEncoderLayer,), {"_ff_block": lambda self, x: x}),
            "TransformerEncoderLayer would call its own _ff_block",
        ),
    ],
)
def test_what_nothing_would_call_is_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        call()
