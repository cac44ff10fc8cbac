"""Mixed precision: what `Cell.to_float` and `mindspore.amp` have to know of an operator.

`ms_ext/mindspore/python/mixed_precision.h` asks MindSpore what they want of the operator that runs, and casts its
inputs.
"""

from __future__ import annotations

from typing import Any

import mindspore as ms
from mindspore import ops

from bridge.call.arguments import Bound
from bridge.op.encoding import Slot, Text
from bridge.op.overload import Overload
from bridge.primitive.graph_calls import Call, Computed, Part

# The operators in the lists of `auto_mixed_precision` (mindspore.train.amp), with ATen's for the same computation:
# those that run in lower precision, in float32, and in the widest dtype of their inputs.
_LOW = {
    "Conv2D": "conv1d conv2d",
    "Conv3D": "conv3d",
    "Conv2DTranspose": "conv_transpose1d conv_transpose2d",
    "Conv3DTranspose": "conv_transpose3d",
    "Convolution": "convolution _convolution mkldnn_convolution cudnn_convolution conv_tbc",
    "MatMulExt": "matmul mm",
    "BatchMatMulExt": "bmm",
    "PReLU": "prelu _prelu_kernel",
    "Einsum": "einsum",
    "Dense": "linear mkldnn_linear",
    "Addmm": "addmm",
    "Addbmm": "addbmm",
    "Addmv": "addmv",
    "Baddbmm": "baddbmm",
    "Mv": "mv",
}
_FULL = {
    "Pow": "pow float_power",
    "ACos": "acos arccos",
    "Asin": "asin arcsin",
    "Cosh": "cosh",
    "Erfinv": "erfinv special_erfinv",
    "Exp": "exp",
    "Expm1": "expm1 special_expm1",
    "Log": "log",
    "Log10": "log10",
    "Log1p": "log1p special_log1p",
    "Log2": "log2",
    "Reciprocal": "reciprocal",
    "Rsqrt": "rsqrt",
    "Sinh": "sinh",
    "Tan": "tan",
    "SoftplusExt": "softplus",
    "LayerNormExt": "layer_norm native_layer_norm",
    "BatchNormExt": "batch_norm native_batch_norm _native_batch_norm_legit _batch_norm_impl_index "
    "cudnn_batch_norm _batch_norm_with_update _batch_norm_no_update _native_batch_norm_legit_no_training",
    "GroupNorm": "group_norm native_group_norm",
    "Norm": "norm linalg_norm linalg_vector_norm",
    "KLDivLoss": "kl_div",
    "SmoothL1Loss": "smooth_l1_loss",
    "MultilabelMarginLoss": "multilabel_margin_loss multilabel_margin_loss_forward",
    "SoftMarginLoss": "soft_margin_loss",
    "TripletMarginLoss": "triplet_margin_loss",
    "MultiMarginLoss": "multi_margin_loss",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "Pdist": "pdist _pdist_forward",
    "Cdist": "cdist _cdist_forward",
    "Renorm": "renorm",
    "ProdExt": "prod",
    "Softmax": "softmax _softmax special_softmax",
    "LogSoftmaxExt": "log_softmax _log_softmax special_log_softmax",
    "CumProd": "cumprod",
    "CumsumExt": "cumsum",
    "SumExt": "sum",
    "L1LossExt": "l1_loss",
    "MSELossExt": "mse_loss",
    "NLLLoss": "nll_loss nll_loss_nd nll_loss_forward cross_entropy_loss",
    "NLLLoss2d": "nll_loss2d nll_loss2d_forward",
}
_WIDEST = {
    "Addcdiv": "addcdiv",
    "Addcmul": "addcmul",
    "Cross": "cross linalg_cross",
    "Dot": "dot",
    "GridSampler2D": "grid_sampler grid_sampler_2d",
    "GridSampler3D": "grid_sampler_3d",
    "Concat": "cat concat concatenate",
}
_NAMES = {packet: name for name, packets in (_LOW | _FULL | _WIDEST).items() for packet in packets.split()}


# How a call in a graph finds out what `auto` asks for there: the dtype of a product of these.
PRODUCT = ops.MatMul()
ONE = ms.Tensor([[1.0]], ms.float32)


def amp_name(op: Overload) -> str:
    """What `mindspore.amp` calls the operator; "Custom", which is in none of its lists, if it has none like it."""
    return _NAMES.get(op.schema.packet, "Custom")


def kept(op: Overload, text: Text) -> list[int]:
    """The positions of the tensors that mixed precision leaves as they are.

    Where an operator keeps statistics, which it writes to, PyTorch wants all but its input in their own dtype.
    """
    if not any(argument.name == "running_mean" for argument in op.schema.arguments):
        return []
    given = [argument for argument in op.schema.arguments if argument.base not in ("Generator", "Device")]
    values: zip[tuple[Any, Any]] = zip(given, text.values, strict=True)
    return [value.position for argument, value in values if isinstance(value, Slot) and argument is not given[0]]


_FLOATING = (ms.float16, ms.bfloat16, ms.float32, ms.float64)


def _with_product(call, lines, *args):  # type: ignore[no-untyped-def]  # compiled by MindSpore
    return call(*args, PRODUCT(ONE, ONE), lines)


def with_product(graph_call: Any, arguments: int, lines: str) -> Call:
    """The expression of a call again, with two more arguments: a product whose dtype is the level's lower precision, or
    float32; and lines.

    Args:
        arguments: how many it has.
    """
    return Call(_with_product, [graph_call, lines, *(Part((i,)) for i in range(arguments))])


def listed_dtypes(bound: Bound) -> set[Any]:
    """The dtypes of a call's floating inputs, if the level "auto" of `mindspore.amp` may cast them."""
    return {x.dtype for x in bound.tensors if x.dtype in _FLOATING} if amp_name(bound.overload) != "Custom" else set()


def cast_in_graph(bound: Bound, low: Any) -> list[Any]:
    """The tensors of a call in a graph, in the dtypes that the level "auto" asks for.

    Args:
        bound: a call that has `listed_dtypes`.
        low: the level's lower precision, MindSpore's dtype; float32 where the graph has no mixed precision.
    """
    if low == ms.float32:
        return bound.tensors
    name = amp_name(bound.overload)
    dtype = low if name in _LOW else ms.float32 if name in _FULL else _widest(listed_dtypes(bound))
    unchanged = kept(bound.overload, bound.text)
    return [
        x if x.dtype not in _FLOATING or x.dtype == dtype or i in unchanged
        else Computed(ops.cast, [x, dtype], x.shape, dtype)
        for i, x in enumerate(bound.tensors)
    ]  # fmt: skip


def _widest(floating: set[Any]) -> Any:
    if len(floating) == 1:
        return next(iter(floating))
    return ms.float64 if ms.float64 in floating else ms.float32
