"""A function in graph mode: captured for the shapes, dtypes and constants at hand, one operator forward and one
backward."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from mindspore.ops.functional import depend

from bridge.op import devices, dtypes
from bridge.primitive.graph_calls import Call, GraphNumber, GraphTensor, graph_call
from bridge.programs import plan, result_tree, store
from bridge.programs.capture import Spec
from bridge.programs.kernel import forward_kernel, program_call, program_result
from bridge.programs.state import State
from bridge.programs.tape import Refusal
from bridge.programs.tree import to_torch_leaf

_HOOKS = (
    "_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks", "_post_accumulate_grad_hooks"
)  # fmt: skip


class GraphProgram:
    """What MindSpore's compiler calls for a program.

    Args:
        function, name, state: see Program.
        autocast: gives the context for the dtype that MindSpore asks for.
    """

    def __init__(self, function: Callable[..., Any], name: str, state: State, autocast: Callable[[], Any]) -> None:
        self.function = function
        self.name = name
        self.state = state
        self.autocast = autocast

    @functools.cached_property
    def call(self) -> Any:
        """Called with the Parameters of the state, the arguments and the keyword arguments."""
        return graph_call(self.name, self._plan_in_graph)

    def _plan_in_graph(self, weights: list[GraphTensor], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """The expression of a call (bridge/primitive/graph_calls.py)."""
        _refuse_gpu(self.name)
        _refuse_hooks(self.function)
        arguments = _Arguments(args, kwargs)
        specs = [_spec(w, own.requires_grad) for w, own in zip(weights, self.state.parameters.values(), strict=True)]
        inputs = arguments.specs()
        device = "CPU"  # a GPU is refused
        torch_device = devices.torch_name(device)
        with self.autocast():
            precision = torch.is_autocast_enabled(torch_device), torch.get_autocast_dtype(torch_device)
        name = store.key(self.function, self.state.tensors, (specs, inputs, arguments.form, precision), torch_device)
        found = store.plan(name, lambda: self._capture(arguments, specs + inputs, torch_device))
        kernel = forward_kernel(self.name, found, device)
        call = program_call(kernel, found.forward, [*weights, *arguments.tensors])
        results = [program_result(call, found.forward, i) for i in range(found.results)]
        value = result_tree.expression(found.tree, results)
        return value if result_tree.has_tensors(found.tree) else Call(depend, [value, results[0]])

    def _capture(self, arguments: _Arguments, specs: list[Spec], device: str) -> tuple[plan.Plan, plan.Origin]:
        form: Any = None

        def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
            nonlocal form
            args, kwargs = arguments.with_tensors(tensors)
            results: list[torch.Tensor] = []
            try:
                with self.autocast():
                    returned = self.function(*args, **kwargs)
            finally:
                self.state.write_back()
            form = result_tree.flatten(returned, results)
            return results or [torch.zeros(())]  # MindSpore runs an operator for its results

        try:
            with _no_python_draws():
                found, origin = plan.make(run, self.state.tensors, specs, device, store.place())
        except RuntimeError as error:
            if "a leaf Variable that requires grad" not in str(error):
                raise
            raise Refusal(f"{self.name} writes to a parameter or an input, which a graph must not: {error}") from None
        first = len(self.state.tensors)
        written = next((position for position in found.written if position >= first), None)
        if written is not None:
            which = arguments.path(written - first)
            raise Refusal(f"{self.name} writes to its input {which}, which a graph must not: give it a copy")
        found.tree = form
        return found, origin


def _spec(tensor: GraphTensor, requires_grad: bool) -> Spec:
    dtype = dtypes.to_torch(tensor.dtype)
    return Spec(tuple(tensor.shape), dtype, requires_grad and (dtype.is_floating_point or dtype.is_complex))


class _Arguments:
    """The arguments of a call in a graph, which holds its tensors apart."""

    def __init__(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.tensors: list[GraphTensor] = []
        self._known = self._described(args), self._described(kwargs)
        self.form = repr(self._known)

    def _described(self, value: Any) -> Any:
        if isinstance(value, GraphTensor):
            self.tensors.append(value)
            return _Place(len(self.tensors) - 1)
        if isinstance(value, GraphNumber):
            raise Refusal("a program in a graph takes numbers that are constants: this one is known only when it runs")
        if isinstance(value, list):
            return [self._described(item) for item in value]
        if isinstance(value, dict):
            return {key: self._described(item) for key, item in value.items()}
        return to_torch_leaf(value)

    def specs(self) -> list[Spec]:
        found: list[Spec] = []
        for tensor in self.tensors:
            if any(size < 0 for size in tensor.shape):
                raise Refusal(
                    f"a program in a graph needs known shapes, and {self.path(len(found))} has {tensor.shape}"
                )
            found.append(_spec(tensor, True))
        return found

    def path(self, tensor: int) -> str:
        """Where in the call a tensor stands."""
        path = self.tensors[tensor].path[1:]
        return ".".join(str(part if isinstance(part, str) or part >= 0 else -1 - part) for part in path)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        """Positional and keyword arguments with these tensors."""

        def filled(value: Any) -> Any:
            if isinstance(value, _Place):
                return tensors[value.number]
            if isinstance(value, list):
                is_list = any(part.path[-1] < 0 for part in self._parts(value))
                return [filled(item) for item in value] if is_list else tuple(filled(item) for item in value)
            if isinstance(value, dict):
                return {key: filled(item) for key, item in value.items()}
            return value

        args, kwargs = self._known
        return tuple(filled(item) for item in args), {key: filled(item) for key, item in kwargs.items()}

    def _parts(self, items: list[Any]) -> Iterator[GraphTensor]:
        return (self.tensors[item.number] for item in items if isinstance(item, _Place))


class _Place:
    """Stands for a tensor among the arguments."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __repr__(self) -> str:
        return f"tensor {self.number}"


def _refuse_gpu(name: str) -> None:
    # On a GPU buffers that a forward changes kept their old values in a trial, and constants stayed on the host.
    if devices.target() == "GPU":
        raise RuntimeError(f"{name}: on a GPU a program works in PyNative mode only")


def _refuse_hooks(function: Callable[..., Any]) -> None:
    if not isinstance(function, torch.nn.Module):
        return
    owners = [*function.named_modules(), *function.named_parameters()]
    for name, owner in owners:
        for kind in _HOOKS:
            if getattr(owner, kind, None):
                where = f"{type(function).__name__}.{name}".rstrip(".")
                raise Refusal(f"{where} has {kind.strip('_').replace('_', ' ')}, which run in PyNative mode only")


class _no_python_draws:
    """Refuses what would be drawn once, while the module is captured, and never again."""

    def __enter__(self) -> None:
        self._before = self._states()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None and self._states() != self._before:
            raise Refusal("the program draws numbers in Python (`random`, `numpy.random`), which a graph would repeat")

    def _states(self) -> Any:
        return random.getstate(), repr(np.random.get_state())
