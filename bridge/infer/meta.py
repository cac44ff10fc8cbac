"""Shapes and dtypes of results: the same ATen operator, run on tensors of the `meta` device, which hold no data."""

from __future__ import annotations

import functools

import torch

from bridge.call.torch_call import renamed
from bridge.infer.dimensions import refuse_out_of_range
from bridge.infer.kernel_words import ask_kernel, has_no_data, may_ask_kernel
from bridge.infer.trial import Refusal, Spec, run, run_packed_rnn
from bridge.op import devices
from bridge.op.encoding import Text
from bridge.op.overload import Overload, overload
from bridge.op.table import Device, Fact


@functools.lru_cache(maxsize=65536)
def infer(name: str, text: Text, device: Device, inputs: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """Shape and dtype of each result of the overload, which runs on `device` ("CPU" or "GPU").

    Raises what PyTorch raises, with the operator's name in front.
    """
    op = overload(name)
    with torch.no_grad():
        try:
            if not op.schema.is_aten:
                return run(op, text, inputs, "meta")
            return _infer_aten(op, text, inputs, devices.torch_name(device))
        except Exception as error:
            raise renamed(error, name) from None


def _infer_aten(op: Overload, text: Text, inputs: tuple[Spec, ...], real: str) -> tuple[Spec, ...]:
    """What an ATen overload gives, on `real`, PyTorch's name of a device."""
    if Fact.READS_VALUES in op.facts:
        return run(op, text, inputs, real)
    if Fact.PACKED_RNN in op.facts:
        return run_packed_rnn(op, text, inputs, real)
    try:
        found = run(op, text, inputs, "meta")
    except NotImplementedError:  # no meta kernel
        return run(op, text, inputs, real)
    except Exception as error:
        if "data is not allocated yet" in str(error):  # a composite that reads values
            return run(op, text, inputs, real)
        if isinstance(error, Refusal) or not may_ask_kernel(op, text, inputs, error):
            raise
        return ask_kernel(op, text, inputs, real)
    refuse_out_of_range(op, text, inputs)
    public = "backward" not in op.name and not op.schema.packet.startswith("_")  # others check too little to be tried
    if _is_wrong_on_meta(op, inputs) or (public and has_no_data(inputs, found)):
        return run(op, text, inputs, real)
    return found


def _is_wrong_on_meta(op: Overload, inputs: tuple[Spec, ...]) -> bool:
    mixed = len({dtype for _, dtype in inputs}) > 1
    return Fact.WRONG_ON_META in op.facts or (mixed and Fact.WRONG_ON_META_IF_MIXED in op.facts)
