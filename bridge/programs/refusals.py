"""What a program in a graph refuses before and after it is captured."""

from __future__ import annotations

import functools
import random
import sys
from collections.abc import Iterable, Sequence
from types import FrameType
from typing import Any

import mindspore as ms
import numpy as np
import torch
from torch._functorch import eager_transforms
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from bridge.programs.calls import Refusal
from bridge.programs.choices import Choices
from bridge.programs.replaced import Replacement

_HOOKS = "_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks"
# Hooks of PyTorch's own that make a weight out of parameters and buffers, and do nothing else.
_MAKES_WEIGHT = (WeightNorm, SpectralNorm, BasePruningMethod)


def refuse_hooks(module: torch.nn.Module) -> None:
    refuse_hooks_of_sums(module.named_parameters())
    owners = [*module.named_modules(), *module.named_parameters()]
    for name, owner in owners:
        for kind in _HOOKS:
            hooks = getattr(owner, kind, None) or {}
            if not all(isinstance(hook, _MAKES_WEIGHT) for hook in hooks.values()):
                where = f"{type(module).__name__}.{name}".rstrip(".")
                raise Refusal(f"{where} has {kind.strip('_').replace('_', ' ')}, which run in PyNative mode only")


def refuse_hooks_of_sums(parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Refuses hooks that run when PyTorch has added to a parameter's `grad`, by the parameters' names."""
    for name, parameter in parameters:
        if parameter._post_accumulate_grad_hooks:
            raise Refusal(
                f"{name} has post accumulate grad hooks, which do not run: gradients are values here, and nothing is "
                "added to `grad`. Change the gradients before the optimizer's call"
            )


def _as_subclass(tensor: torch.Tensor, cls: type[torch.Tensor]) -> torch.Tensor:
    if cls is not torch.Tensor:
        raise Refusal(f"a graph has no tensors of a class of their own, as {cls.__name__}: PyNative mode does")
    return tensor


AS_SUBCLASS = Replacement(torch.Tensor, "as_subclass", _as_subclass)


def refuse_resized(state: Sequence[torch.Tensor], shapes: Sequence[Sequence[int]]) -> None:
    """Refuses that a program has given its parameters and buffers others than these shapes."""
    for tensor, shape in zip(state, shapes, strict=True):
        if tuple(tensor.shape) != tuple(shape):
            raise Refusal(
                f"a parameter or buffer of the shape {tuple(shape)} gets the shape {tuple(tensor.shape)}, which a "
                "graph does not keep: give it that shape before bridge.cell"
            )


def refuse_surroundings(now: Choices, has_modules: bool) -> None:
    """Refuses what PyTorch does around all of its calls, or all modules."""
    if torch.is_anomaly_enabled():
        raise Refusal(
            "torch.autograd.detect_anomaly looks for the cause of nan in PyNative mode only: a graph runs without it"
        )
    if now.modes:
        raise Refusal(f"{now.modes[-1]} is a mode of PyTorch's, which sees its calls in PyNative mode only")
    if has_modules and now.has_hooks:
        raise Refusal("torch.nn.modules.module has hooks of all modules, which run in PyNative mode only")


def refuse_foreign_results(results: Iterable[torch.Tensor], device: str) -> None:
    """
    Args:
        device: PyTorch's name of MindSpore's.
    """
    for result in results:
        if result.device not in (torch.device("cpu"), torch.device(device)):
            raise Refusal(f"a result is on PyTorch's device {result.device}, which is not MindSpore's")
        if result.is_floating_point() and result.itemsize == 1:  # MindSpore has names for them only
            raise Refusal(f"MindSpore has no dtype for PyTorch's {result.dtype}, which a result has")


def _refuse_linearize(*_: Any, **__: Any) -> Any:
    raise Refusal("torch.func.linearize traces a function past what a graph records: it runs in PyNative mode only")


def backward(state: Sequence[torch.Tensor]) -> Replacement:
    """What stands for torch.autograd.backward: it refuses to add to the `grad` of what a module keeps."""
    own = torch.autograd.backward

    @functools.wraps(own)
    def refusing(*args: Any, **kwargs: Any) -> Any:
        before = [tensor.grad for tensor in state]
        for tensor in state:
            tensor.grad = None
        try:
            found = own(*args, **kwargs)
            if any(tensor.grad is not None for tensor in state):
                raise Refusal(
                    "`backward` adds to the `grad` of parameters, which a graph does not: `torch.autograd.grad` gives "
                    "gradients there"
                )
            return found
        finally:
            for tensor, grad in zip(state, before, strict=True):
                tensor.grad = grad

    return Replacement(torch.autograd, "backward", refusing)


def no_single_operator(name: Any) -> str:
    """What an error says of a function of PyTorch's that compiles others."""
    return f"torch's {name} is no single operator, which a graph takes: PyNative mode takes all"


def _refuse_cond(*_: Any, **__: Any) -> None:
    raise Refusal(no_single_operator("cond"))


COND = Replacement(torch, "cond", _refuse_cond)  # it asks for PyTorch's generator before it comes to its operator
LINEARIZE = Replacement(eager_transforms, "lazy_dynamo_disallow", _refuse_linearize)  # linearize only calls it


def refuse_racing_gradients(weights: Iterable[torch.Tensor]) -> None:
    """Refuses a data-parallel graph on GPUs in which MindSpore would reduce the gradients by more than one AllReduce.

    MindSpore gives them a stream of their own then, and the graph does not wait for it: the ranks differ, whoever
    computed the gradients (MindSpore 2.10, two H200s). docs/parallel.md has the measurement.
    """
    context = ms.get_auto_parallel_context
    if context("parallel_mode") != ms.ParallelMode.DATA_PARALLEL:
        return
    mebibytes = sum(weight.nbytes for weight in weights) / 2**20
    fusion = context("comm_fusion").get("allreduce", {})
    if fusion.get("mode") != "size" or fusion["config"] < mebibytes:
        raise Refusal(
            "in a data-parallel graph on GPUs MindSpore does not wait for its AllReduces if it has more than one, and "
            "the ranks differ: make it one, before the first step, by mindspore.set_auto_parallel_context("
            'comm_fusion={"allreduce": {"mode": "size", "config": 2**20}})'
        )


def refuse_cut_gradients(name: str, values: Iterable[Any], instead: str) -> None:
    """Raise TypeError if one of PyTorch's tensors among nested values requires a gradient, or is one of a capture's:
    what computes with MindSpore's tensors would cut it off.

    Args:
        name: of what was given the values.
        instead: what a module of PyTorch's does.
    """
    if _are_differentiated(values):
        raise TypeError(
            f"{name} takes MindSpore's tensors, and was given PyTorch's, whose gradient would end here: a "
            f"torch.nn.Module {instead}"
        )


def _are_differentiated(values: Iterable[Any]) -> bool:
    return any(
        _are_differentiated(value.values() if isinstance(value, dict) else value)
        if isinstance(value, (list, tuple, dict))
        else isinstance(value, torch.Tensor) and (value.requires_grad or isinstance(value, FakeTensor))
        for value in values
    )


def no_gradient(name: str) -> str:
    """What an error says if the gradient of a gradient is asked for."""
    return f"{name}: the gradient of what bridge.value_and_grad gives is not available"


def all_are_differentiated(said: str) -> str:
    """PyTorch's error about a tensor that requires a gradient, where arguments do that only because a graph does not
    know better."""
    first, lines, rest = said.partition("\n")
    return (
        f"{first.rstrip('.')}. In a graph all floating-point arguments count as such that need a gradient. If this is "
        f"about one of them, bridge.value_and_grad asks for the gradients of those in grad_position only{lines}{rest}"
    )


LEFT = (
    "a tensor has no data: a capture for a graph has left it where the bridge does not look, as a default argument, a "
    "variable around a function, or a module in a list. Make what holds it anew, and keep it in a buffer"
)


def keeps_between_calls(attribute: str) -> str:
    """What an error says of an attribute that makes a module's next call another one."""
    return (
        f"{attribute} changes in a call and is used by the next one, which a graph does not see: keep tensors in "
        "persistent buffers (`register_buffer`), or call the module in PyNative mode"
    )


def changed_elsewhere(program: str, name: str) -> str:
    """What an error says of a tensor that a module has from elsewhere, and that the same graph changes before."""
    return (
        f"{program}: the same graph changes {name} before, which belongs to no part of the module: a graph would take "
        "it for what it was. Make its module a part (`self.critic = critic`), or take two graphs"
    )


def replaces_registered(name: str) -> str:
    """What an error says of a parameter, a part or a mode that a module's call replaces."""
    return (
        f"{name} is another one after a call, which a graph does not see: write to a parameter in its place "
        "(`weight.data = ...` or `copy_`), change parts and modes between calls, or call the module in PyNative mode"
    )


def _refuse_seeds(*_: Any, **__: Any) -> Any:
    raise Refusal("a graph does not seed PyTorch's generator, as the program does: PyNative mode does")


SEEDS = [
    Replacement(holder, name, _refuse_seeds)
    for holder in (torch, torch.random, torch.cuda)
    for name in ("manual_seed", "seed", "manual_seed_all", "seed_all")
    if hasattr(holder, name)
]


_DRAWS = (
    "the program draws numbers in Python by a generator of its own, or sets the state of one, which a graph would not "
    "repeat: draw by functions of `random` and `numpy.random`"
)


class PythonDraws(Refusal):
    """The program draws in Python what a graph would not draw again."""


class no_python_draws:
    """Refuses what would be drawn once, while the module is captured, and never again.

    Args:
        but_checks: whether beartype may draw, which a graph does not repeat: it checks the types of some items of a
            list, and draws which. Finding out takes a while.
    """

    def __init__(self, but_checks: bool) -> None:
        self._but_checks = but_checks
        self._checks = 0

    def __enter__(self) -> None:
        self._of_random, self._of_numpy = random.getstate(), np.random.get_state()
        if self._but_checks:
            sys.setprofile(self._note)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._but_checks:
            sys.setprofile(None)
        other = random.Random()
        other.setstate(self._of_random)
        for _ in range(self._checks):
            other.getrandbits(32)
        is_same = random.getstate() == other.getstate() and repr(np.random.get_state()) == repr(self._of_numpy)
        if not is_same or self._checks:
            random.setstate(self._of_random)
            np.random.set_state(self._of_numpy)
        if not is_same and error is None:
            raise PythonDraws(_DRAWS)

    def _note(self, frame: FrameType, event: str, called: Any) -> None:
        is_draw = event == "c_call" and called.__name__ == "getrandbits"
        self._checks += is_draw and frame.f_code.co_filename.startswith("<@beartype(")
