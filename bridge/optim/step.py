"""One step of an optimizer: PyTorch's own, on MindSpore's memory, in both modes.

In PyNative mode it runs as a module does (ms_ext/mindspore/python/module.cpp). In a graph it is a primitive whose
kernel calls Python when the graph runs (launched.py), so that nothing of the optimizer is a constant of the graph:
learning rates, step counters and states are what they are at that step. In both, PyTorch's Python runs until its calls
are known (repeated_step.py).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.op import devices, dtypes
from bridge.optim.host_call import host_call
from bridge.optim.launched import Launched, of_trained
from bridge.optim.left_out import without_zeros
from bridge.optim.rates import Rates, item_of
from bridge.optim.repeated_step import RepeatedStep, forget_gradients, set_gradients
from bridge.primitive.graph_calls import GraphTensor, graph_call
from bridge.primitive.kernel import one_at_a_time
from bridge.primitive.tensors import torch_view
from bridge.programs import tree
from bridge.programs.modes import is_left_out, note_written
from bridge.programs.sharing import Sharing


class Step(_mindspore.CompiledAsMethod):
    """Called with the gradients and the learning rates of schedules, as MindSpore's tensors. Gives True.

    Args:
        name: the optimizer's.
        optimizer: PyTorch's.
        sharing: its parameters, and MindSpore's.
        rates: its learning rates.
    """

    def __init__(
        self,
        name: str,
        optimizer: torch.optim.Optimizer,
        sharing: Sharing,
        rates: Rates,
    ) -> None:
        self.name = name
        self.optimizer = optimizer
        self.sharing = sharing
        self.parameters = sharing.parameters  # in a graph, those of an attribute of an attribute are constants
        self.rates = rates
        self._repeated = RepeatedStep(optimizer, sharing.tensors)
        self._launched: list[Launched] = []  # one for each graph, which has only its number

    def __call__(self, gradients: Any, rates: Sequence[ms.Tensor]) -> bool:
        gradients = _as_list(gradients)
        self._check(gradients)
        given = [gradient for gradient in gradients if gradient is not None]
        self.rates.set([item_of(rate) for rate in rates], item_of)

        def run_without_some(tensors: list[torch.Tensor]) -> None:
            found = iter(tensors)
            self._step([None if gradient is None else next(found) for gradient in gradients])

        self.sharing.run(self._step if len(given) == len(gradients) else run_without_some, given)
        return True

    def by_closure(self, closure: Callable[[], tuple[ms.Tensor, Any]]) -> ms.Tensor:
        """PyTorch's `step(closure)`, whose closure gives a loss and the gradients."""
        self.rates.follow(item_of)
        losses: list[ms.Tensor] = []
        kept: list[Any] = []  # PyTorch has views of their memory

        def evaluate() -> Any:  # a tensor, as PyTorch's closures give
            found: Any = closure()
            if not isinstance(found, (tuple, list)) or len(found) != 2:
                raise TypeError(
                    f"{self.name}: the closure gives (loss, gradients), as a function of mindspore.value_and_grad does"
                )
            loss, gradients = found
            losses.append(loss)
            kept.append(gradients)
            _mindspore.wait()
            places = [tensor.device for tensor in self.sharing.tensors]  # a tensor of MindSpore's may be on the host
            views = map(torch_view, _as_list(gradients))
            found = [view.to(place) for view, place in zip(views, places, strict=True)]
            set_gradients(self.sharing.tensors, self._received(self._trained(found)))
            return torch_view(loss).clone()

        with _mindspore.one_graph_at_a_time, one_at_a_time:
            self.sharing.run(lambda _: self.optimizer.step(evaluate) and None, [])
            forget_gradients(self.sharing.tensors)
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
            set_gradients(self.sharing.tensors, self._trained(given))
        finally:
            forget_gradients(self.sharing.tensors)

    def _trained(self, gradients: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients without those of frozen Parameters, which MindSpore gives too."""
        return of_trained(self.sharing.state.are_trained(), gradients)

    def _step(self, gradients: Sequence[torch.Tensor | None]) -> None:
        self._repeated.take(self._received(self._trained(gradients)))

    def _received(self, gradients: list[torch.Tensor | None]) -> list[torch.Tensor | None]:
        """The gradients that backward passes have found."""
        left_out = self.sharing.state.take_left_out()
        return without_zeros(gradients, left_out) if left_out else gradients

    @functools.cached_property
    def call(self) -> Any:
        """What MindSpore's compiler calls."""
        return graph_call(self.name, self._plan_in_graph)

    def _call_in_graph(self, gradients, rates):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.call(gradients, rates, self.parameters)

    def _plan_in_graph(self, gradients: Any, rates: list[GraphTensor], parameters: list[GraphTensor]) -> Any:
        if _mindspore.captures_bytecode():  # where MindSpore ends the process if this raises an error
            warnings.warn(
                f'{self.name}: mindspore.jit(capture_mode="bytecode") leaves the step out, unless its result is used: '
                "leave out capture_mode",
                stacklevel=1,
            )
        gradients = _as_list(gradients)
        self._check(gradients)
        self._refuse_unlike(gradients)
        self.sharing.state.stay()
        note_written(self.sharing.tensors)
        has_gradient = [gradient is not None for gradient in gradients]
        # On a GPU it would wait to look for zeros.
        tensors = self.sharing.tensors if devices.own_kernels() == "CPU" else []
        left_out = [i for i, tensor in enumerate(tensors) if is_left_out(tensor)]
        launched = Launched(self._repeated, self.sharing, self.rates, len(rates), has_gradient, left_out)
        self._launched.append(launched)
        given = [*rates, *(gradient for gradient in gradients if gradient is not None)]
        call, launched.order = host_call(self.name, launched, given, parameters, devices.own_kernels())
        launched.specs = [(tuple(tensor.shape), dtypes.to_torch(tensor.dtype)) for tensor in (*given, *parameters)]
        return call


def _as_list(gradients: Any) -> list[Any]:
    return list(gradients) if isinstance(gradients, (tuple, list)) else [gradients]
