"""Packed sequences of modules in graphs: results and gradients are PyTorch's, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

import bridge
from bridge.nn.utils import rnn
from bridge.op import devices
from bridge.programs.calls import Refusal
from shared import class_at_sync, data, on_device, torch_device

pytestmark = [pytest.mark.usefixtures("own_programs", "graph_mode")]

STEPS = 6
# Of sequences in any order, of sorted ones, of equal ones (for which PyTorch may have another kernel), and the first
# ones again. The longest is shorter than the rows in some.
LENGTHS = {
    False: [[6, 2, 4], [1, 3, 2], [5, 5, 5], [6, 2, 4]],
    True: [[6, 4, 2], [3, 1, 1], [5, 5, 5], [6, 4, 2]],
}


class Tagger(nn.Module):
    """Two recurrent layers, the first one of several of PyTorch's."""

    def __init__(self, layer: nn.RNNBase, is_sorted: bool, total: int | None) -> None:
        super().__init__()
        self.is_sorted, self.total = is_sorted, total
        self.words, self.rnn = nn.Embedding(11, 4), layer
        width = (layer.proj_size or layer.hidden_size) * (1 + layer.bidirectional)
        self.second = nn.GRU(width, 3, batch_first=layer.batch_first)
        self.out = nn.Linear(3, 2)

    def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> Any:
        batch_first = self.rnn.batch_first
        x = self.words(words)
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first, enforce_sorted=self.is_sorted)
        first, last = self.rnn(packed)
        second, _ = self.second(first)
        y, found = pad_packed_sequence(second, batch_first, total_length=self.total)
        z, _ = pad_packed_sequence(first, batch_first, padding_value=0.5)
        return self.out(y).sum() + z.pow(2).sum(), (y, z, found.to(x.device), *last)


def recurrent_layers() -> list[Any]:
    cases = [
        pytest.param(kind, layers, both, 0.4 if layers > 1 else 0.0, {}, id=f"{kind.__name__}-{layers}-{both}")
        for kind in (nn.LSTM, nn.GRU, nn.RNN)
        for layers, both in ((1, False), (2, True))
    ]
    cases.append(pytest.param(nn.LSTM, 2, False, 0.0, {}, id="LSTM-2-without dropout"))
    cases.append(pytest.param(nn.LSTM, 3, True, 0.0, {"proj_size": 3, "bias": False}, id="LSTM-3-projected"))
    cases.append(pytest.param(nn.RNN, 2, True, 1.0, {"nonlinearity": "relu"}, id="RNN-2-all dropped"))
    return cases


@pytest.mark.parametrize("is_sorted, batch_first, total", [(False, True, None), (True, False, STEPS + 1)])
@pytest.mark.parametrize("kind, layers, both, dropout, options", recurrent_layers())
def test_training_is_pytorchs(
    kind: Any, layers: int, both: bool, dropout: float, options: Any, is_sorted: bool, batch_first: bool, total: Any
) -> None:
    if devices.target() == "GPU":
        dropout = 0.0  # a graph takes none of cuDNN's, see below
    torch.manual_seed(1)
    layer = kind(4, 5, layers, bidirectional=both, dropout=dropout, batch_first=batch_first, **options)
    module = Tagger(layer, is_sorted, total)
    reference = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    step = ms.jit(ms.value_and_grad(net, None, net.trainable_params(), has_aux=True))
    for seed, lengths in enumerate(LENGTHS[is_sorted]):
        words = np.random.default_rng(seed).integers(0, 11, (3, STEPS) if batch_first else (STEPS, 3))
        torch.manual_seed(seed)
        loss, others = reference(torch.from_numpy(words).to(torch_device()), torch.tensor(lengths))
        gradients = torch.autograd.grad(loss, list(reference.parameters()))
        torch.manual_seed(seed)
        (own_loss, own_others), own_gradients = step(ms.Tensor(words), ms.Tensor(lengths))
        expected, own = [loss, *others, *gradients], [own_loss, *own_others, *own_gradients]
        for i, (a, b) in enumerate(zip(expected, own, strict=True)):
            np.testing.assert_array_equal(b.asnumpy(), a.detach().cpu().numpy(), str(i))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("casts_once", [True, False])
def test_autocast_is_pytorchs(kind: Any, casts_once: bool) -> None:
    class Casts(Tagger):
        def forward(self, words: torch.Tensor, lengths: torch.Tensor) -> Any:
            with torch.autocast(words.device.type, torch.bfloat16, cache_enabled=casts_once):
                loss, others = super().forward(words, lengths)
            return loss.float(), others[0].float()

    torch.manual_seed(1)
    module = Casts(kind(4, 5, 2, bidirectional=True, batch_first=True), False, None)
    reference = copy.deepcopy(module).to(torch_device())
    net = bridge.cell(module)
    step = ms.jit(ms.value_and_grad(net, None, net.trainable_params(), has_aux=True))
    on_host = devices.target() == "CPU"
    for lengths in LENGTHS[False]:
        if on_host and kind is nn.LSTM and len({*lengths}) == 1:
            continue  # PyTorch gives bfloat16 for these only, and a graph has one dtype
        words = np.random.default_rng(0).integers(0, 11, (3, STEPS))
        loss, y = reference(torch.from_numpy(words).to(torch_device()), torch.tensor(lengths))
        gradients = torch.autograd.grad(loss, list(reference.parameters()))
        (own_loss, own), own_gradients = step(ms.Tensor(words), ms.Tensor(lengths))
        for a, b in zip([loss, y, *gradients], [own_loss, own, *own_gradients], strict=True):
            np.testing.assert_array_equal(b.asnumpy(), a.detach().cpu().numpy())


class Calls(nn.Module):
    """A function of a recurrent layer and the inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.rnn, self.function = nn.LSTM(4, 5), function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(self.rnn, *args)


def _padded(layer: nn.LSTM, x: torch.Tensor, lengths: Any) -> torch.Tensor:
    return pad_packed_sequence(layer(pack_padded_sequence(x, lengths))[0])[0]


def _without_gradients(layer: nn.LSTM, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return _padded(layer, x, [5, 5, 5])


def _given_state(layer: nn.LSTM, x: torch.Tensor) -> torch.Tensor:
    state = x.mean() * torch.ones(1, 3, 5, device=x.device)
    return layer(pack_padded_sequence(x, [4, 2, 1]), (state, state.sin()))[1][1]


def _masked(layer: nn.LSTM, x: torch.Tensor) -> torch.Tensor:
    y, lengths = pad_packed_sequence(layer(pack_padded_sequence(x, [4, 2, 1]))[0])
    return y * (torch.arange(len(y))[:, None] < lengths).to(x.device)[..., None]


def _own(layer: nn.LSTM, x: torch.Tensor) -> torch.Tensor:
    return pad_packed_sequence(layer(PackedSequence(x.reshape(-1, 4)[:6], torch.tensor([3, 2, 1])))[0])[0]


USES = {
    "lengths that are known": lambda layer, x: _padded(layer, x, [5, 3, 1]),
    "equal ones without gradients": _without_gradients,
    "a state": _given_state,
    "a mask of lengths": _masked,
    "PackedSequence": _own,
    "sequences": lambda layer, x: pad_packed_sequence(layer(pack_sequence([x[:4, 0], x[:2, 1]]))[0])[0],
    "rows of several dimensions": lambda layer, x: pad_packed_sequence(
        pack_padded_sequence(x.view(6, 3, 2, 2), [4, 2, 1])
    )[0],
}  # fmt: skip


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_uses_are_pytorchs(use: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    module = Calls(use)
    reference = copy.deepcopy(module).to(torch_device())
    net, x = bridge.cell(module), data(STEPS, 3, 4)
    own, gradient = ms.jit(ms.value_and_grad(net))(ms.Tensor(x))
    given = torch.from_numpy(x).to(torch_device()).requires_grad_()
    expected = reference(given)
    np.testing.assert_array_equal(own.asnumpy(), expected.detach().cpu().numpy())
    found = torch.zeros_like(given)
    if expected.requires_grad:
        (found,) = torch.autograd.grad(expected, given, torch.ones_like(expected))
    np.testing.assert_array_equal(gradient.asnumpy(), found.cpu().numpy())


class Ported(ms.nn.Cell):
    """A network of the bridge's layers."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = bridge.nn.LSTM(4, 5)

    def construct(self, x: ms.Tensor) -> Any:
        packed = rnn.pack_padded_sequence(x, [2, 5, 3], enforce_sorted=False)
        output, (h, _) = self.rnn(packed)
        first, *_ = rnn.unpack_sequence(packed)
        return *rnn.pad_packed_sequence(output), h, first


def test_fused_code_packs() -> None:
    torch.manual_seed(0)
    net, x = Ported(), ms.Tensor(data(STEPS, 3, 4))
    fused = bridge.fuse(net)
    for call in (fused, ms.jit(fused)):
        ms.set_context(mode=ms.PYNATIVE_MODE)
        for expected, own in zip(net(x), call(x), strict=True):
            assert np.array_equal(own.asnumpy(), expected.asnumpy())


REFUSED = {
    "takes the rows": lambda layer, x: pack_padded_sequence(x, [4, 2, 1]).data.relu(),
    "takes the batch sizes": lambda layer, x: x * pack_padded_sequence(x, [4, 2, 1]).batch_sizes.sum(),
    "gives the rows": lambda layer, x: layer(pack_padded_sequence(x, [4, 2, 1]))[0].data,
}


@pytest.mark.parametrize("use", REFUSED.values(), ids=REFUSED)
def test_other_uses_are_refused(use: Callable[..., Any]) -> None:
    with pytest.raises(Refusal, match=r"(?s)a part of a PackedSequence.*test_programs_packed\.py"):
        ms.jit(bridge.cell(Calls(use)))(ms.Tensor(data(STEPS, 3, 4)))


def test_wrong_lengths_are_errors() -> None:
    net = bridge.cell(Calls(lambda layer, x, lengths: _padded(layer, x, lengths.cpu())))
    call, x = ms.jit(net), ms.Tensor(data(STEPS, 3, 4))
    with pytest.raises(RuntimeError, match=r"Expected `len\(lengths\)` to be equal to batch_size, but got 2"):
        call(x, ms.Tensor([3, 2]))
    for lengths, words in [([3, 2, 0], "has to be greater than 0"), ([2, 3, 1], "must be sorted in decreasing order")]:
        with pytest.raises(RuntimeError, match=words):
            call(x, ms.Tensor(lengths))
            ms.runtime.synchronize()
    assert call(x, ms.Tensor([3, 2, 1])).shape == (3, 3, 5)


def test_a_total_length_is_that_of_the_longest_at_least() -> None:
    """Not of the padding, which is longer."""

    def padded(layer: nn.LSTM, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = layer(pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False))[0]
        return pad_packed_sequence(packed, total_length=STEPS - 2)

    module = Calls(padded)
    own = copy.deepcopy(module).to(torch_device())
    net, x = ms.jit(bridge.cell(module)), data(STEPS, 3, 4)
    for lengths in ([3, 1, 2], [2, 4, 4]):
        results, found = net(ms.Tensor(x), ms.Tensor(lengths))
        expected, expected_lengths = own(on_device(x), torch.tensor(lengths))
        np.testing.assert_array_equal(results.asnumpy(), expected.detach().cpu().numpy())
        np.testing.assert_array_equal(found.asnumpy(), expected_lengths.numpy())
    with pytest.raises(class_at_sync(ValueError), match="total_length=4 and max sequence length being 5"):
        net(ms.Tensor(x), ms.Tensor([5, 2, 1]))
        ms.runtime.synchronize()


def test_cudnns_dropout_is_refused() -> None:
    if devices.target() == "CPU":
        pytest.skip("cuDNN is for GPUs")
    net = bridge.cell(Tagger(nn.LSTM(4, 5, 2, dropout=0.5), False, None))
    with pytest.raises(Refusal, match="no recurrent layer of cuDNN's with dropout"):
        ms.jit(net)(ms.Tensor(np.zeros((STEPS, 3), np.int64)), ms.Tensor([3, 2, 1]))
