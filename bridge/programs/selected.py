"""Parts of tensors where an integer that depends on data says so: `x[tags[i]]`, `scores[b, lengths[b] - 1] = 0`.

PyTorch asks a tensor without dimensions for its integer there, and takes the part as a view. While a function is
captured, the part is a copy that one call makes (ms_ext/programs/select_at.cpp): where it lies depends on data. So what
is written to it has to be put back at once, as `x[i] += y` does, and what is written to the tensor ends its use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from bridge.programs.calls import Call, Refusal, in_line
from bridge.programs.drawn_arrays import as_index
from bridge.programs.in_cpp import library
from bridge.programs.marked_copies import MarkedCopies
from bridge.programs.memory import storage_of
from bridge.programs.replaced import Replacement, caller
from bridge.programs.wrong_on_meta import MASK_DTYPES

_ATEN, _OPS = torch.ops.aten, torch.ops.bridge
_GET, _SET = torch.Tensor.__getitem__, torch.Tensor.__setitem__
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64)
_REFUSED = (
    "it writes to a part of a tensor whose place depends on data (`x[i]` where `i` is a tensor), which a graph does "
    "not find again: assign the part (`x[i] = y`, `x[i] += y`), or call the module in PyNative mode"
)


class _ItemMethod(Replacement):
    """One for which tensors do not become sequences."""

    def put(self, value: Any) -> None:
        library().ms_ext_set_item_method(self.holder, self.name.encode(), value)

    def take_away(self) -> None:
        self.put(None)


class _Part(NamedTuple):
    """A copy, and what it is of: the memory, the index that was given, and how many calls had been made."""

    copy: torch.Tensor
    source: int
    index: Any
    calls: int


class Selected:
    """Those of one run.

    Args:
        is_known: whether a tensor has data that is the same in each call.
        is_counting: whether the run is for a program that counts: what it puts has the same calls for all sizes.
        told: the integers that depend on data and that Python has asked for, by their numbers.
        calls: those of the run until now.
        tensors: those of the registers.
    """

    def __init__(
        self,
        is_known: Callable[[torch.Tensor], bool],
        is_counting: bool,
        told: Mapping[Any, int],
        calls: Sequence[Call],
        tensors: Sequence[torch.Tensor],
    ) -> None:
        self._is_known = is_known
        self._is_counting = is_counting
        self._told = told
        self._copies = MarkedCopies(is_known)
        self._calls, self._tensors = calls, tensors
        self._parts: dict[int, _Part] = {}  # by the memory of the copies
        self._put_back: dict[int, int] = {}  # how many calls had been made then
        _register_shapes()

    def replacements(self) -> list[Replacement]:
        """What stands for PyTorch's indexing."""

        def get(tensor: torch.Tensor, index: Any) -> Any:
            index = as_index(index)
            found = self._places(tensor, index)
            if found is None:
                copied = self._copies.take(tensor, index, caller())
                if copied is not None:
                    return copied
                part = _part(tensor, index) if self._told else None
                return _GET(tensor, index) if part is None else part
            dims, indices, others = found
            part = _Selected.apply(tensor, dims, *indices)
            self._parts[storage_of(part)] = _Part(part, storage_of(tensor), index, len(self._calls))
            return _GET(part, others) if others else part

        def put(tensor: torch.Tensor, index: Any, value: Any) -> None:
            index = as_index(index)
            if self._copies.put(tensor, value):
                return None
            found = self._places(tensor, index)
            if found is None:
                if self._told and (part := _part(tensor, index)) is not None:
                    return _SET(part, ..., value)
                if not self._is_counting or not _is_plain_put(tensor, index, value):
                    return _SET(tensor, index, value)
                tensor.index_put_((index,), value)
                return None
            dims, indices, others = found
            if any(not isinstance(item, slice) and item is not Ellipsis for item in others):
                return _SET(tensor, index, value)
            if not isinstance(value, torch.Tensor):
                value = torch.as_tensor(value, dtype=tensor.dtype, device=tensor.device)
            own = self._parts.get(storage_of(value))
            is_put_back = own is not None and own.source == storage_of(tensor) and own.index is index
            items = index if isinstance(index, tuple) else (index,)
            chosen = {id(one) for one in indices}
            place = _GET(tensor, tuple(slice(None) if id(item) in chosen else item for item in items))
            _Put.apply(place, value, dims, *indices)
            if is_put_back:
                self._put_back[storage_of(value)] = len(self._calls)

        return [_ItemMethod(torch.Tensor, "__getitem__", get), _ItemMethod(torch.Tensor, "__setitem__", put)]

    def refuse_writes(self) -> None:
        """Refuse what is written to a part and not put back before the tensor is used again, and parts that are used
        after something else is written to the tensor: PyTorch's are one memory."""
        all_changed = {storage_of(self._tensors[number]) for call in self._calls for number in call.written}
        for memory, part in self._parts.items():
            if all_changed.isdisjoint((memory, part.source)):
                continue
            end = self._put_back.get(memory, 0)
            written = replaced = False
            for i, call in enumerate(self._calls[part.calls :], part.calls):
                given = {storage_of(self._tensors[number]) for number in call.results if number is not None}
                changed = {storage_of(self._tensors[number]) for number in call.written}
                taken = {storage_of(self._tensors[number]) for number in call.operands} - (given - changed)  # no views
                is_putting = i < end and memory in taken and part.source in changed
                if (written and part.source in taken and not is_putting) or (replaced and memory in taken):
                    raise Refusal(_REFUSED + in_line(call.where))
                if is_putting:
                    written = False
                elif part.source in changed:
                    replaced = True
                if memory in changed:
                    written = True
            if written:
                raise Refusal(_REFUSED + in_line(self._calls[-1].where))

    def _places(self, tensor: torch.Tensor, index: Any) -> tuple[list[int], list[torch.Tensor], tuple[Any, ...]] | None:
        """The dimensions in which data that is not known says where, the integers, and the rest of the index; None if
        there are none."""
        items = index if isinstance(index, tuple) else (index,)
        is_place = [self._is_place(item) for item in items]
        if not any(is_place) or torch._C._functorch.peek_interpreter_stack() is not None:
            return None
        taken = [_dimensions(item) for item in items]
        dims, indices, dim = [], [], 0
        for item, number, is_one in zip(items, taken, is_place, strict=True):
            if is_one:
                dims.append(dim)
                indices.append(item)
            dim += tensor.dim() - sum(taken) if item is Ellipsis else number
        if dim > tensor.dim():  # PyTorch has the words for it
            return None
        return dims, indices, tuple(item for item, is_one in zip(items, is_place, strict=True) if not is_one)

    def _is_place(self, item: Any) -> bool:
        return (
            isinstance(item, torch.Tensor) and not item.dim() and item.dtype in _INTEGERS and not self._is_known(item)
        )


def _part(tensor: torch.Tensor, index: Any) -> torch.Tensor | None:
    """What integers and slices take, if there are several and a slice that ends at an integer takes all: PyTorch makes
    no call for that, and one where the integer is less, which may depend on data."""
    if type(index) is not tuple or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    left = tensor.dim() - sum(item is not None and item is not ... for item in index)
    takes_all, dim = False, 0
    calls: list[Callable[[torch.Tensor], torch.Tensor]] = []
    sizes = iter(tensor.shape)
    for item in index:
        if item is ...:
            dim += left
            for _ in range(left):
                next(sizes)
        elif type(item) is int:
            if not -(size := next(sizes, 0)) <= item < size:
                return None
            calls.append(functools.partial(_ATEN.select.int, dim=dim, index=item))
        elif type(item) is slice and item.step is None:
            size = next(sizes, 0)
            start, stop = item.start, item.stop
            if any(type(bound) not in (int, type(None)) for bound in (start, stop)):
                return None
            if (start or 0) != 0 or stop is not None:
                takes_all = takes_all or (not start and stop is not None and stop >= size)
                calls.append(functools.partial(_ATEN.slice.Tensor, dim=dim, start=start or 0, end=stop))
            dim += 1
        else:
            return None
    if left < 0 or not takes_all:
        return None
    for call in calls:
        tensor = call(tensor)
    return tensor


def _is_plain_put(tensor: torch.Tensor, index: Any, value: Any) -> bool:
    """Whether PyTorch puts a value as it is, but for a leading dimension of size 1 that it takes away."""
    return (
        isinstance(index, torch.Tensor)
        and index.dtype in MASK_DTYPES
        and 0 < index.dim() <= tensor.dim()
        and isinstance(value, torch.Tensor)
        and (value.dtype, value.device) == (tensor.dtype, tensor.device)
        and value.dim() <= tensor.dim() - index.dim() + 1
    )


def _dimensions(item: Any) -> int:
    """How many dimensions of the tensor an item of an index is for; 0 of an ellipsis, which takes what is left."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    is_mask = isinstance(item, torch.Tensor) and item.dtype in MASK_DTYPES
    return item.dim() if is_mask else 1


class _Selected(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, dims: list[int], *indices: torch.Tensor) -> torch.Tensor:
        own = [index.clone() for index in indices]  # PyTorch takes the integers of this time
        ctx.save_for_backward(*own)
        ctx.form = dims, tensor.shape
        return _OPS.select_at(tensor, dims, own)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        dims, shape = ctx.form
        found = _SelectedBackward.apply(gradient, dims, shape, *ctx.saved_tensors)
        return found, *[None] * (1 + len(dims))


class _SelectedBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, dims: list[int], shape: Any, *indices: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*indices)
        ctx.dims = dims
        return _OPS.select_at_backward(gradient, shape, dims, indices)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Selected.apply(gradient, ctx.dims, *ctx.saved_tensors), *[None] * (2 + len(ctx.dims))


class _Put(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, place: torch.Tensor, value: torch.Tensor, dims: list[int], *indices: torch.Tensor
    ) -> torch.Tensor:
        own = [index.clone() for index in indices]
        ctx.save_for_backward(*own)
        ctx.form = dims, value.shape, value.dtype, value.device
        ctx.mark_dirty(place)
        _OPS.put_at_(place, value, dims, own)
        return place

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        dims, shape, dtype, device = ctx.form
        of_place, of_value, *_ = ctx.needs_input_grad
        others = _Others.apply(gradient, dims, *ctx.saved_tensors) if of_place else None
        own = _Selected.apply(gradient, dims, *ctx.saved_tensors).sum_to_size(shape) if of_value else None
        return others, None if own is None else own.to(device, dtype), *[None] * (1 + len(dims))


class _Others(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: torch.Tensor, dims: list[int], *indices: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*indices)
        ctx.dims = dims
        return _OPS.without_at(gradient, dims, indices)  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return _Others.apply(gradient, ctx.dims, *ctx.saved_tensors), *[None] * (1 + len(ctx.dims))


@functools.cache
def _register_shapes() -> None:
    """Tell PyTorch the shapes of what the calls give."""

    def part(self: torch.Tensor, dims: list[int], indices: list[torch.Tensor]) -> torch.Tensor:
        for dim in reversed(dims):
            self = self.select(dim, 0)
        return torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device=self.device)

    torch.library.register_fake("bridge::select_at", part)
    torch.library.register_fake("bridge::select_at_backward", lambda gradient, size, *_: gradient.new_empty(size))
    torch.library.register_fake("bridge::put_at_", lambda *_: None)
    torch.library.register_fake("bridge::without_at", lambda self, *_: torch.empty_like(self))
