"""One step of an optimizer: PyTorch's own, on MindSpore's memory, in both modes.

In PyNative mode it runs as a module does (ms_ext/mindspore/python/module.cpp). In a graph it is a primitive whose
kernel calls Python when the graph runs (host_call.py), so that nothing of the optimizer is a constant of the graph:
learning rates, step counters and states are what they are at that step. In both, PyTorch's Python runs until its calls
are known (repeated_step.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.op import devices, dtypes
from bridge.optim.host_call import host_call
from bridge.optim.repeated_step import RepeatedStep
from bridge.primitive import direct
from bridge.primitive.graph_calls import GraphTensor, graph_call
from bridge.primitive.kernel import one_at_a_time
from bridge.primitive.tensors import float_at, torch_view, view_at
from bridge.programs import tree
from bridge.programs.sharing import Sharing


class Step(_mindspore.CompiledAsMethod):
    """Called with the gradients and the learning rates of schedules, as MindSpore's tensors. Gives True.

    Args:
        name: the optimizer's.
        optimizer: PyTorch's.
        sharing: its parameters, and MindSpore's.
        set_rates: is called before each step, with these rates and with what reads the number in a tensor then.
    """

    def __init__(
        self,
        name: str,
        optimizer: torch.optim.Optimizer,
        sharing: Sharing,
        set_rates: Callable[[list[float], Callable[[ms.Tensor], float]], None],
    ) -> None:
        self.name = name
        self.optimizer = optimizer
        self.sharing = sharing
        self.parameters = sharing.parameters  # in a graph, those of an attribute of an attribute are constants
        self.set_rates = set_rates
        self._repeated = RepeatedStep(optimizer, sharing.tensors)
        self._launched: list[_Launched] = []  # one for each graph, which has only its number

    def __call__(self, gradients: Any, rates: Sequence[ms.Tensor]) -> bool:
        gradients = _as_list(gradients)
        self._check(gradients)
        given = [gradient for gradient in gradients if gradient is not None]
        self.set_rates([_number(rate) for rate in rates], _number)

        def run_without_some(tensors: list[torch.Tensor]) -> None:
            found = iter(tensors)
            self._step([None if gradient is None else next(found) for gradient in gradients])

        self.sharing.run(self._step if len(given) == len(gradients) else run_without_some, given)
        return True

    def by_closure(self, closure: Callable[[], tuple[ms.Tensor, Any]]) -> ms.Tensor:
        """PyTorch's `step(closure)`, whose closure gives a loss and the gradients."""
        losses: list[ms.Tensor] = []
        kept: list[Any] = []  # PyTorch has views of their memory

        def evaluate() -> Any:  # a tensor, as PyTorch's closures give
            loss, gradients = closure()
            losses.append(loss)
            kept.append(gradients)
            _mindspore.wait()
            places = [tensor.device for tensor in self.sharing.tensors]  # a tensor of MindSpore's may be on the host
            views = map(torch_view, _as_list(gradients))
            self._set(self._trained([view.to(place) for view, place in zip(views, places, strict=True)]))
            return torch_view(loss).clone()

        with one_at_a_time:
            self.sharing.run(lambda _: self.optimizer.step(evaluate) and None, [])
            self._forget()
        return losses[0]

    def _check(self, gradients: Sequence[Any]) -> None:
        if not tree.TENSORS.issuperset(map(type, gradients)):  # the usual ones
            for gradient in gradients:
                if gradient is not None and not isinstance(gradient, (ms.Tensor, GraphTensor)):
                    raise TypeError(
                        f"{self.name} takes a tuple or list of MindSpore's tensors for gradients, and one is of type "
                        f"{type(gradient).__name__}"
                    )
        if len(gradients) != len(self.sharing.tensors):
            raise ValueError(
                f"{self.name} has {len(self.sharing.tensors)} parameters, and was given {len(gradients)} gradients"
            )

    def _refuse_unlike(self, gradients: Sequence[GraphTensor | None]) -> None:
        """Raise PyTorch's error if a gradient of a graph has not its parameter's shape or dtype."""
        given = [
            None
            if gradient is None or min(gradient.shape, default=0) < 0  # only the run tells
            else torch.empty((), dtype=dtypes.to_torch(gradient.dtype), device=parameter.device).expand(gradient.shape)
            for parameter, gradient in zip(self.sharing.tensors, gradients, strict=True)
        ]
        try:
            self._set(self._trained(given))
        finally:
            self._forget()

    def _trained(self, gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients without those of frozen Parameters, which MindSpore gives too."""
        return _where(self.sharing.are_trained(), gradients)

    def _set(self, gradients: Sequence[torch.Tensor | None]) -> None:
        for parameter, gradient in zip(self.sharing.tensors, gradients, strict=True):
            parameter.grad = gradient

    def _forget(self) -> None:
        for parameter in self.sharing.tensors:
            parameter.grad = None

    def _step(self, gradients: Sequence[torch.Tensor | None]) -> None:
        self.step_with(self._trained(gradients))

    def step_with(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Take a step with the gradients of what is trained."""
        if self._repeated.again(gradients):
            return
        try:
            self._set(gradients)
            self._repeated.first(gradients)
        finally:
            self._forget()  # they are views of memory that MindSpore may take back

    @functools.cached_property
    def call(self) -> Any:
        """What MindSpore's compiler calls."""
        return graph_call(self.name, self._plan_in_graph)

    def _call_in_graph(self, gradients, rates):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.call(gradients, rates, self.parameters)

    def _plan_in_graph(self, gradients: Any, rates: list[GraphTensor], parameters: list[GraphTensor]) -> Any:
        gradients = _as_list(gradients)
        self._check(gradients)
        self._refuse_unlike(gradients)
        self.sharing.state.stay()
        launched = _Launched(self, len(rates), [gradient is not None for gradient in gradients])
        self._launched.append(launched)
        given = [*rates, *(gradient for gradient in gradients if gradient is not None)]
        call, launched.order = host_call(self.name, launched, given, parameters, devices.own_kernels())
        launched.specs = [(tuple(tensor.shape), dtypes.to_torch(tensor.dtype)) for tensor in (*given, *parameters)]
        return call


class _Launched:
    """A step in a graph.

    Args:
        step: the optimizer's.
        rates: how many learning rates of schedules it gets.
        has_gradient: for each parameter whether it gets a gradient, too.
    """

    def __init__(self, step: Step, rates: int, has_gradient: Sequence[bool]) -> None:
        self.step = step
        self.rates = rates
        self.has_gradient = has_gradient
        self.inputs = rates + sum(has_gradient)
        self.trained = step.sharing.are_trained()
        self.names = [parameter.name for parameter in step.parameters]  # MindSpore waits for the graph to give one
        self.order: list[int] = []
        self.specs: list[Any] = []
        self._addresses: list[int | None] = []
        self._views: list[torch.Tensor] = []

    def launch(self, addresses: Sequence[int | None]) -> None:
        """Take a step with the gradients, rates and parameters at these addresses."""
        tensors = self._tensors(addresses)
        self.step.set_rates([float(rate) for rate in tensors[: self.rates]], _number_in_launch)
        given, trained = iter(tensors[self.rates : self.inputs]), self.step.sharing.are_trained()
        gradients = [next(given) if has_gradient else None for has_gradient in self.has_gradient]
        if trained != self.trained:
            self._refuse_zeros_for_gradients(trained, gradients)
        before = self._move(tensors[self.inputs :])
        try:
            self.step.step_with(_where(trained, gradients))
        finally:
            for parameter, data in before:
                parameter.data = data

    def _refuse_zeros_for_gradients(self, trained: Sequence[bool], gradients: Sequence[torch.Tensor | None]) -> None:
        """Raise for what was set free since MindSpore compiled the graph, if the graph has zeros for its gradient: a
        module's operator has no other gradient for what was frozen then."""
        for i, (is_trained, was_trained) in enumerate(zip(trained, self.trained, strict=True)):
            gradient = gradients[i]
            if is_trained and not was_trained and gradient is not None and gradient.numel() and not gradient.any():
                raise RuntimeError(
                    f"{self.names[i]} was frozen when MindSpore compiled this graph, which has zeros for its gradient: "
                    "have another ms.jit compile the step"
                )

    def _tensors(self, addresses: Sequence[int | None]) -> list[torch.Tensor]:
        """PyTorch's views, those of the last launch where the addresses are its."""
        count = len(self.order)
        found: list[int | None] = [None] * count
        for i, position in enumerate(self.order):
            found[position] = addresses[i]
        if found != self._addresses:
            self._views = [
                view_at(address, shape, dtype) for address, (shape, dtype) in zip(found, self.specs, strict=True)
            ]
            self._addresses = found
        return self._views

    def _move(self, views: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Have parameters be where the graph has them. Gives those that were elsewhere, with what they were."""
        before = []
        for parameter, view in zip(self.step.sharing.tensors, views, strict=True):
            if parameter.data_ptr() != view.data_ptr():
                before.append((parameter, parameter.data))
                parameter.data = view
        return before


def _where(are_trained: Sequence[bool], gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    return [gradient if is_trained else None for is_trained, gradient in zip(are_trained, gradients, strict=True)]


def _number(tensor: ms.Tensor) -> float:
    return float(tensor.item())


def _number_in_launch(rate: ms.Tensor) -> float:
    """Waits for a GPU if the number is there, and not for the graph, as `item` would for ever."""
    return float_at(direct.address(rate))


def _as_list(gradients: Any) -> list[Any]:
    return list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
