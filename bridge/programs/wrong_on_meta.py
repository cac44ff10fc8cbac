"""Calls whose results without data are not like those with data."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._prims_common import compute_required_storage_length, make_contiguous_strides_for
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from bridge.infer.dimensions import ask, out_of_range, small
from bridge.programs.calls import no_modes

# Results that hold what only the kernel knows the size of: a workspace. Or their meta kernel gives a wrong size.
_SIZES = {
    "aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::cudnn_batch_norm", "aten::multilabel_margin_loss_forward",
}  # fmt: skip
# Of an input and weights of two dtypes, as under autocast, their meta kernels give the statistics the input's.
_STATISTICS = {
    "aten::native_layer_norm", "aten::native_group_norm", "aten::native_batch_norm", "aten::_native_batch_norm_legit",
}  # fmt: skip
# The results of these are contiguous, whatever the inputs' strides are: PyTorch decides that before the kernel runs.
_CONTIGUOUS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::segment_reduce"}
# Of calls that may ask for data, as index.Tensor does of a mask.
_ASK_FOR_DATA = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
# Their meta kernels let dtypes pass that the kernels refuse.
_TAKE_ANY_DTYPES = {
    "aten::nll_loss_forward", "aten::nll_loss2d_forward", "aten::multi_margin_loss",
    "aten::multilabel_margin_loss_forward",
    "aten::binary_cross_entropy", "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution",
    "aten::native_layer_norm", "aten::native_group_norm", "aten::native_batch_norm", "aten::grid_sampler_2d",
    "aten::grid_sampler_3d", "aten::_cdist_forward", "aten::index_put", "aten::index_put_",
}  # fmt: skip
_OF_DTYPES = re.compile("dtype|scalar type|same type|not implemented for")
# The second argument's data alone decides how many elements they take.
MASK_DTYPES = (torch.bool, torch.uint8)
_MASKED = {
    torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default,
    torch.ops.aten._index_put_impl_.default, torch.ops.aten.masked_select.default,
}  # fmt: skip


def masks(func: Any, arguments: Sequence[Any]) -> Any:
    """The argument whose data decides how many elements a call takes, where no other argument's does."""
    return arguments[1] if func in _MASKED else None


def is_wrong_on_meta(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call has to be made to learn the form of its results. Raises PyTorch's error if only data can tell."""
    name = func._schema.name
    if name in _STATISTICS and len({value.dtype for value in args if isinstance(value, torch.Tensor)}) > 1:
        return True
    if name in _CONTIGUOUS or (name not in _SIZES and not _is_free_in_strides(func, args)):
        return False
    if not _ASK_FOR_DATA.isdisjoint(func.tags):
        func(*args, **kwargs)
    return True


def refuse_out_of_range(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise what the kernel says of a dimension that is out of range, which inference may let pass: that of softmax."""
    tensors = (value for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor))
    rank = max((tensor.dim() for tensor in tensors), default=0)
    names = (argument.name for argument in func._schema.arguments)
    missing = out_of_range([*zip(names, args, strict=False), *kwargs.items()], rank)
    if missing:
        with no_modes():
            like = tree_map_only(torch.Tensor, lambda x: torch.zeros(small(x.shape), dtype=x.dtype), (args, kwargs))
            ask(missing, lambda: func(*like[0], **like[1]))


def refuse_dtypes(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise what the kernel says of tensors of several dtypes, which inference may let pass: of a linear layer's, or of
    classes that are not int64."""
    if func._schema.name not in _TAKE_ANY_DTYPES:
        return
    dtypes = {value.dtype for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)}
    numbers = {dtype for dtype in dtypes if dtype.is_floating_point or dtype.is_complex}
    if not numbers or len(dtypes - {torch.bool, torch.int64}) < 2:
        return

    def like(tensor: torch.Tensor) -> torch.Tensor:
        return torch.zeros(small(tensor.shape), dtype=tensor.dtype, device=tensor.device)

    with no_modes():
        given = tree_map_only(torch.Tensor, like, (args, kwargs))
        try:
            func(*given[0], **given[1])
        except Exception as error:
            if _OF_DTYPES.search(str(error)):
                raise


def refuse_by_kernel(func: Any, args: Any, kwargs: Any) -> None:
    """Raise what the kernel says of shapes and dtypes, which inference may let pass, or say in other words: of what
    torch.bincount counts, of values that are put. A loop makes the same call many times: it is asked once."""
    form = form_of_call(func, args, kwargs)
    if func.namespace != "aten" or form in _taken:
        return
    with no_modes(), torch.enable_grad():
        results_on_data(func, args, kwargs, {})
    if len(_taken) == _MOST_TAKEN:
        _taken.clear()
    _taken.add(form)


_taken: set[Any] = set()
_MOST_TAKEN = 256


def form_of_call(func: Any, args: Any, kwargs: Any) -> Any:
    """What the form of a call's results follows from, but for data."""

    def form(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return tuple(value.shape), value.stride(), value.dtype, value.device
        return type(value), value

    leaves, tree = tree_flatten((args, kwargs))
    return func, str(tree), tuple(map(form, leaves))


def _is_free_in_strides(func: Any, args: Sequence[Any]) -> bool:
    """Whether a kernel chooses the strides of its results, of an input that has others than a contiguous tensor's, even
    if only in dimensions of size 1. A view has those that it must have, and what works on each element for itself those
    of a rule, but for dimensions of size 1."""
    if any(argument.alias_info for argument in func._schema.arguments):
        return False
    is_ruled = torch.Tag.pointwise in func.tags
    tensors = [value for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
    return any(
        tensor.stride() != make_contiguous_strides_for(tensor.shape) and (1 in tensor.shape or not is_ruled)
        for tensor in tensors
    )


def with_strides_of_view(func: Any, args: Sequence[Any], view: Any) -> Any:
    """A result, which has the strides that PyTorch's C++ gives a view with dimensions of size 1. Its Python chooses
    others."""
    if func is not torch.ops.aten.view.default or 1 not in args[0].shape:
        return view
    tensor = args[0]
    with no_modes():
        strides = torch.empty_strided(tensor.shape, tensor.stride(), device="meta").view(args[1]).stride()
    return view if view.stride() == strides else tensor.as_strided(view.shape, strides, view.storage_offset())


def results_on_data(func: Any, args: Any, kwargs: Any, known: Mapping[int, torch.Tensor]) -> Any:
    """What the kernel gives for zeros, or for regular data where zeros are an error. Raises the error of zeros. Tensors
    whose ids are known have their own data."""

    def results(like: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        def filled(tensor: torch.Tensor) -> torch.Tensor:
            return known[id(tensor)] if id(tensor) in known else like(tensor)

        given = tree_map_only(torch.Tensor, filled, (args, kwargs))
        return func(*given[0], **given[1])

    try:
        return results(_zeros_like)
    except Exception as error:
        with contextlib.suppress(Exception):
            return results(_regular_like)
        raise error


def _zeros_like(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with data and the same strides, which may overlap."""
    length = compute_required_storage_length(tensor.shape, tensor.stride(), 0)
    made = torch.zeros(length, dtype=tensor.dtype, device=tensor.device)
    return made.as_strided(tensor.shape, tensor.stride())


def _regular_like(tensor: torch.Tensor) -> torch.Tensor:
    """Identity matrices, which have an inverse, and ones, which are pivots."""
    made = _zeros_like(tensor)
    is_matrix = made.dim() > 1 and (made.is_floating_point() or made.is_complex())
    (made.diagonal(dim1=-2, dim2=-1) if is_matrix else made).fill_(1)
    return made
