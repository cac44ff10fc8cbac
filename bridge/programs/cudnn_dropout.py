"""cuDNN's recurrent layers with dropout, on a tape.

They draw from a state that PyTorch keeps on the GPU, and makes when a layer first needs it and after a seed. On a tape
that is a call (ms_ext/programs/cudnn_dropout.cpp). The state itself stays PyTorch's: a layer's gradient, which only has
to be given one, finds what forward was given last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from bridge.programs.calls import Call, Register

_OPS: Any = torch.ops.bridge
_LAYER = torch.ops.aten._cudnn_rnn.default
BACKWARD = torch.ops.aten._cudnn_rnn_backward.default
# The places of the state among the arguments.
_GIVEN, _SAVED = (
    [argument.name for argument in op._schema.arguments].index("dropout_state") for op in (_LAYER, BACKWARD)
)
# cuDNN's names for them are numbers.
_MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")


def layer(own: Callable[..., Any], kind: str, args: Sequence[Any]) -> Any:
    """What a layer gives, of rows that are not packed.

    Args:
        own: PyTorch's function.
        kind: its name.
        args: its arguments.
    """
    input, hx, weights, has_biases, layers, dropout, train, bidirectional, batch_first = args
    if not (train and dropout > 0 and torch.cudnn_is_acceptable(input)):
        return own(*args)
    _register_shapes()
    h, c = hx if kind == "lstm" else (hx, None)
    width, projected = h.shape[2], 0
    if c is not None and c.shape[2] != width:
        width, projected = c.shape[2], width
    each = (4 if has_biases else 2) + (projected > 0)
    state = _OPS.cudnn_dropout_state(input, dropout)
    form = _MODES.index(kind), width, projected, layers, batch_first, dropout, train, bidirectional
    output, h, c, *_ = torch._cudnn_rnn(input, weights, each, None, h, c, *form, [], state)  # type: ignore[attr-defined]
    return (output, h, c) if kind == "lstm" else (output, h)


def is_state(call: Call) -> bool:
    """Whether a call gives the state."""
    return call.op.namespace == "bridge" and call.op is _OPS.cudnn_dropout_state.default


def state_for_trial(func: Any, args: Sequence[Any]) -> dict[int, torch.Tensor]:
    """A state for a kernel that is asked for the shapes of its results, by the id of what stands for it."""
    given = args[_GIVEN] if func is _LAYER else args[_SAVED] if func is BACKWARD else None
    if given is None:
        return {}
    return {id(given): torch._cudnn_init_dropout_state(0.5, True, 0, dtype=torch.uint8, device=given.device)}


def kept_state(arguments: list[Any], like: Callable[[int], int]) -> list[Call]:
    """The call that gives a layer's gradient the state, if it has one.

    Args:
        arguments: those of the gradient, which are changed.
        like: makes a register like another one.
    """
    given = arguments[_SAVED]
    if not isinstance(given, Register):
        return []
    arguments[_SAVED] = Register(like(given.number))
    return [Call(_OPS.kept_cudnn_dropout_state.default, [arguments[0]], [arguments[_SAVED].number])]


@functools.cache
def _register_shapes() -> None:
    """Tell PyTorch the dtype of what the calls give. How large it is depends on the GPU, and nothing asks."""
    torch.library.register_fake("bridge::cudnn_dropout_state", lambda input, dropout: _state(input))
    torch.library.register_fake("bridge::kept_cudnn_dropout_state", _state)


def _state(input: torch.Tensor) -> torch.Tensor:
    return input.new_empty(0, dtype=torch.uint8)
