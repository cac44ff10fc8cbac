"""Packed sequences on a tape (torch.nn.utils.rnn). Data decides how many rows PyTorch packs, and a recurrent layer goes
through them step by step.

On a tape, packing, a layer on packed rows, and padding are a call each, of ms_ext/programs/packed.cpp: it calls PyTorch
with the rows that there are. Between these calls a packed tensor has the rows of all steps, with those of the padding,
so its shape follows from that of the padded input. The gradient of a layer runs the layer again, as PyTorch's autograd
differentiates it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_leaves

from bridge.programs import cudnn_dropout
from bridge.programs.calls import Refusal, no_modes
from bridge.programs.casting import Casting
from bridge.programs.memory import storage_of
from bridge.programs.replaced import Replacement, caller

_VF: Any = torch._VF
_OPS: Any = torch.ops.bridge
_LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_OWN = {name: getattr(_VF, name) for name in _LAYERS}
_PAD = torch.nn.utils.rnn.pad_packed_sequence.__code__
_size: Any = torch.Tensor.size
# They give the same rows.
_ALIASES = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}
_NO_CUDNN_DROPOUT = "a graph takes no recurrent layer of cuDNN's with dropout for packed rows: PyNative mode does"


class _Options(NamedTuple):
    """What PyTorch's recurrent layers are told besides tensors, in its order."""

    has_biases: bool
    layers: int
    dropout: float
    train: bool
    bidirectional: bool


class _Form(NamedTuple):
    """A layer's call.

    Args:
        kind, options: see `_LAYERS` and _Options.
        states: how many there are.
        records: whether autograd does.
        cast_to: see Casting.
        cached: whether autocast casts each once, of the data, the states and the weights; empty without autocast.
    """

    kind: str
    options: _Options
    states: int
    records: bool
    cast_to: torch.dtype | None
    cached: list[bool]


class Packed:
    """The packed tensors of a tape."""

    def __init__(self) -> None:
        self._sizes: dict[Any, int] = {}  # the storages of batch sizes: how many sequences there are
        self._rows: set[Any] = set()  # the storages of packed rows

    def replacements(self) -> list[Replacement]:
        """What stands for the functions that PyTorch's layers call."""
        _register_shapes()
        return [
            Replacement(_VF, "_pack_padded_sequence", self._pack),
            Replacement(_VF, "_pad_packed_sequence", self._pad),
            *(Replacement(_VF, name, self._layer(name)) for name in _LAYERS),
        ]

    def first_size(self, func: Any, args: Sequence[Any]) -> int | None:
        """How many sequences the first step has, which are all, if that is what a call asks for."""
        if func is torch.ops.aten.select.int and args[1:] == (0, 0):
            return self._sizes.get(storage_of(args[0]))
        return None

    def refuse(self, func: Any, arguments: Any) -> None:
        """Refuse a call that takes packed tensors for PyTorch's own."""
        if (self._rows or self._sizes) and func.namespace != "bridge" and func not in _ALIASES:
            self.refuse_all(arguments, f"{func.name()} takes")

    def refuse_all(self, values: Any, what: str) -> None:
        """Refuse packed tensors among these."""
        for leaf in tree_leaves(values):
            if isinstance(leaf, torch.Tensor) and (storage_of(leaf) in self._rows or storage_of(leaf) in self._sizes):
                raise Refusal(
                    f"{what} a part of a PackedSequence, which a graph gives to recurrent layers and "
                    "pad_packed_sequence only: pad it first. PyNative mode takes it"
                )

    def _pack(self, input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
        batch, steps = input.shape[:2] if batch_first else (input.shape[1], input.shape[0])
        if lengths.dim() != 1 or lengths.device.type != "cpu" or lengths.dtype is not torch.int64:
            dtype = str(lengths.dtype).removeprefix("torch.")
            raise RuntimeError(
                "'lengths' argument should be a 1D CPU int64 tensor, "
                f"but got {lengths.dim()}D {lengths.device} {dtype} tensor"
            )
        if len(lengths) != batch:
            raise RuntimeError(
                f"Expected `len(lengths)` to be equal to batch_size, but got {len(lengths)} (batch_size={batch})"
            )
        sizes = _OPS.batch_sizes(lengths, batch, steps)
        self._sizes[storage_of(sizes)] = batch
        return self._marked(_Pack.apply(input, lengths, sizes, batch_first)), sizes  # type: ignore[no-untyped-call]

    def _pad(
        self, data: torch.Tensor, sizes: torch.Tensor, batch_first: bool, value: float, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # PyTorch's Python says how many batch sizes there are if it is not told a length.
        asks = caller()
        if asks.f_code is _PAD and asks.f_locals["total_length"] is None:
            length = int(_OPS.longest(sizes))
        batch = self._sizes.get(storage_of(sizes)) or int(sizes[0])
        return _Pad.apply(data, sizes, batch, batch_first, value, length)  # type: ignore[no-untyped-call,no-any-return]

    def size(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """In place of Tensor.size, also inside another stand-in: pad_packed_sequence compares with the length that it
        is told, before any data says what is the longest sequence. The kernel compares that."""
        found = _size(tensor, *args, **kwargs)
        if self._sizes and storage_of(tensor) in self._sizes:
            asks: FrameType | None = caller()
            if asks is not None and asks.f_code is not _PAD:
                asks = asks.f_back  # from inside another stand-in
            if asks is not None and asks.f_code is _PAD and asks.f_locals["total_length"] is not None:
                return min(found, asks.f_locals["total_length"])
        return found

    def _layer(self, kind: str) -> Callable[..., Any]:
        def layer(*args: Any) -> Any:
            if not isinstance(args[3], (list, tuple)):  # the weights of a layer that takes packed rows
                return cudnn_dropout.layer(_OWN[kind], kind, args)
            data, sizes, hx, weights, *options = args
            states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
            return tuple(self._run(kind, data, sizes, states, weights, _Options(*options)))

        return layer

    def _run(
        self,
        kind: str,
        data: torch.Tensor,
        sizes: torch.Tensor,
        states: list[torch.Tensor],
        weights: Sequence[torch.Tensor],
        options: _Options,
    ) -> list[torch.Tensor]:
        """What all layers give: the rows, and the last states."""
        layers, drops = options.layers, options.train and options.dropout > 0 and options.layers > 1
        if drops and data.device.type != "cpu":
            raise Refusal(_NO_CUDNN_DROPOUT)
        if drops:
            options = options._replace(layers=1)
        # Whether autograd records is not known in the functions, nor what is a leaf.
        casting, records = Casting.now(data.device.type), torch.is_grad_enabled()

        def form(*tensors: torch.Tensor) -> _Form:
            cached = [casting.caches and tensor.is_leaf and tensor.requires_grad for tensor in tensors]
            return _Form(kind, options, len(states), records, casting.to, cached if casting.to else [])

        if not drops:
            own = [data, *states, *weights]
            output, *last = _Layer.apply(form(*own), sizes, *own)  # type: ignore[no-untyped-call]
            return [self._marked(output), *last]
        directions, each = 1 + options.bidirectional, len(weights) // layers
        found = []
        for i in range(layers):
            if i > 0:
                data = self._marked(_Dropout.apply(data, sizes, options.dropout))  # type: ignore[no-untyped-call]
            states_here = [state[i * directions : (i + 1) * directions] for state in states]
            own = [data, *states_here, *weights[i * each : (i + 1) * each]]
            data, *last = _Layer.apply(form(*own), sizes, *own)  # type: ignore[no-untyped-call]
            found.append(last)
        return [self._marked(data), *(torch.cat(last) for last in zip(*found, strict=True))]

    def _marked(self, rows: torch.Tensor) -> torch.Tensor:
        self._rows.add(storage_of(rows))
        return rows


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, input: torch.Tensor, lengths: torch.Tensor, sizes: torch.Tensor, batch_first: bool
    ) -> torch.Tensor:
        ctx.save_for_backward(sizes)
        ctx.form = input.shape, batch_first
        return _OPS.pack(input, lengths, batch_first)  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        shape, batch_first = ctx.form
        return _OPS.pack_backward(gradient, list(shape), *ctx.saved_tensors, batch_first), None, None, None


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, data: torch.Tensor, sizes: torch.Tensor, batch: int, batch_first: bool, value: float, length: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.save_for_backward(data, sizes)
        ctx.form = batch_first, length
        padded, lengths = _OPS.pad(data, sizes, batch, batch_first, value, length)
        ctx.mark_non_differentiable(lengths)
        return padded, lengths

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:
        return _OPS.pad_backward(gradient, *ctx.saved_tensors, *ctx.form), *[None] * 5


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, form: _Form, sizes: torch.Tensor, data: torch.Tensor, *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(sizes, data, *tensors)
        ctx.form = form
        wanted, given = ctx.needs_input_grad[2:], (tensors[: form.states], tensors[form.states :])
        gives = None if form.cast_to is None else _dtype_under_autocast(form, wanted, data, *given)
        casts = form.cast_to, form.cached, gives
        return tuple(_OPS.rnn(wanted, form.records, form.kind, *casts, data, sizes, *given, *form.options))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        sizes, data, *tensors = ctx.saved_tensors
        form: _Form = ctx.form
        wanted, given = ctx.needs_input_grad[2:], (tensors[: form.states], tensors[form.states :])
        call = wanted, form.kind, form.cast_to, form.cached, data, sizes, *given, *form.options
        found = iter(_OPS.rnn_backward(gradients, *call))
        return None, None, *(next(found) if asked else None for asked in wanted)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, data: torch.Tensor, sizes: torch.Tensor, p: float) -> torch.Tensor:
        dropped, factors = _OPS.dropout(data, sizes, p)
        ctx.save_for_backward(factors)
        return dropped  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (factors,) = ctx.saved_tensors
        return gradient * factors, None, None


@functools.cache
def _register_shapes() -> None:
    """Tell PyTorch the shapes of what the calls give."""
    for shapes in (_batch_sizes, _pack, _pack_backward, _longest, _pad, _pad_backward, _rnn, _rnn_backward, _dropout):
        torch.library.register_fake(f"bridge::{shapes.__name__[1:]}", shapes)


def _dtype_under_autocast(
    form: _Form, wanted: Any, data: torch.Tensor, hx: Sequence[torch.Tensor], params: Sequence[torch.Tensor]
) -> torch.dtype:
    """The dtype of the results, as the kernels have it for zeros. The rows are not all equally long: other kernels take
    these, and may give another dtype."""
    batch = hx[0].shape[1]
    steps = [batch, max(batch - 1, 1)]
    shapes = (sum(steps), data.shape[1]), *(one.shape for one in (*hx, *params))
    with no_modes():
        like = zip(shapes, (data, *hx, *params), strict=True)
        rows, *others = (torch.zeros(shape, dtype=one.dtype, device=one.device) for shape, one in like)
        given = others[: len(hx)], others[len(hx) :]
        casts = form.cast_to, form.cached, None
        tried = _OPS.rnn(wanted, form.records, form.kind, *casts, rows, torch.tensor(steps), *given, *form.options)
    return tried[0].dtype  # type: ignore[no-any-return]


def _batch_sizes(lengths: torch.Tensor, batch: int, steps: int) -> torch.Tensor:
    return lengths.new_empty(steps)


def _pack(input: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> torch.Tensor:
    return input.new_empty(input.shape[0] * input.shape[1], *input.shape[2:])


def _pack_backward(
    gradient: torch.Tensor, size: list[int], batch_sizes: torch.Tensor, batch_first: bool
) -> torch.Tensor:
    return _steps_first(gradient.new_empty, size[0], size[1], size[2:], batch_first)


def _steps_first(new: Callable[..., torch.Tensor], a: int, b: int, rest: Sequence[int], batch_first: bool) -> Any:
    """As PyTorch lays it out: step by step, also where the batch is the first dimension."""
    return new((b, a, *rest)).transpose(0, 1) if batch_first else new((a, b, *rest))


def _longest(batch_sizes: torch.Tensor) -> torch.Tensor:
    return batch_sizes.new_empty(())


def _pad(
    data: torch.Tensor, batch_sizes: torch.Tensor, batch: int, batch_first: bool, value: float, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = (batch, length) if batch_first else (length, batch)
    return _steps_first(data.new_empty, a, b, data.shape[1:], batch_first), batch_sizes.new_empty(batch)


def _pad_backward(
    gradient: torch.Tensor, data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, length: int
) -> torch.Tensor:
    return torch.empty_like(data)


def _rnn(
    wanted: list[bool],
    enables_gradients: bool,
    kind: str,
    cast_to: torch.dtype | None,
    cached: list[bool],
    gives: torch.dtype | None,
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    hx: list[torch.Tensor],
    params: list[torch.Tensor],
    *options: Any,
) -> list[torch.Tensor]:
    width = hx[0].shape[-1] * (1 + _Options(*options).bidirectional)
    dtype = gives or data.dtype
    return [data.new_empty(len(data), width, dtype=dtype), *(state.new_empty(state.shape, dtype=gives) for state in hx)]


def _rnn_backward(
    gradients: Any,
    wanted: list[bool],
    kind: str,
    cast_to: torch.dtype | None,
    cached: list[bool],
    data: torch.Tensor,
    batch_sizes: torch.Tensor,
    hx: list[torch.Tensor],
    params: list[torch.Tensor],
    *_: Any,
) -> list[torch.Tensor]:
    asked = zip([data, *hx, *params], wanted, strict=True)
    return [tensor.new_empty(tensor.shape) for tensor, is_wanted in asked if is_wanted]


def _dropout(data: torch.Tensor, batch_sizes: torch.Tensor, p: float) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(data), torch.empty_like(data)
