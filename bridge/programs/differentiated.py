"""The value and the gradients of own code as one operator: PyTorch runs forward and backward in one call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import mindspore as ms
import torch

from bridge.call import in_program
from bridge.programs import checkpoints, tree
from bridge.programs.added_gradients import gradients_of
from bridge.programs.fuse import Fused, refuse_torch_modules
from bridge.programs.named_constants import NamedConstants
from bridge.programs.parameter_lists import no_parameters, refuse_no_parameter
from bridge.programs.program import Program
from bridge.programs.refusals import refuse_hooks_of_sums
from bridge.programs.replaced import replaced
from bridge.programs.sizes import is_inferring
from bridge.programs.state import State
from bridge.programs.written_down import TellsItself


class _Differentiated(TellsItself):
    """A function of PyTorch's tensors that gives what another one gives, and the gradients of that.

    Args:
        function: the other one.
        positions: of the arguments whose gradients are asked for.
        weights: the tensors whose gradients are asked for too.
            A single one has a gradient, and several have a tuple.
        has_aux: whether only the first of its results is differentiated.
        ids: what to give each gradient with, or None.
    """

    def __init__(
        self,
        function: Fused,
        positions: tuple[int, ...],
        weights: torch.Tensor | Sequence[torch.Tensor] | None,
        has_aux: bool,
        ids: Sequence[int | str] | None,
    ) -> None:
        self.function = function
        self.positions = positions
        self.has_weights = weights is not None
        self.is_one_weight = isinstance(weights, torch.Tensor)
        self._tensors = [weights] if isinstance(weights, torch.Tensor) else list(weights or ())
        self._places: Sequence[int] = range(len(self._tensors))
        self.has_aux = has_aux
        self.ids = ids

    def follow(self, state: State) -> None:
        """Ask for the gradients of what is in the state at a call: a module may have other parameters by then."""
        positions = {id(tensor): position for position, tensor in enumerate(state.tensors)}
        self._places = [positions[id(tensor)] for tensor in self._tensors]
        self._state, self._tensors = state, state.tensors
        state.asked = self._places
        self._names, self._parameters = [*state.parameters], [*state.parameters.values()]

    def told_apart_by(self) -> Any:
        """What it is, but for the state, whose tensors it has."""
        return {name: value for name, value in vars(self).items() if name != "_state"}

    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        is_inside = in_program.is_inside() and torch.is_grad_enabled()  # another one differentiates this
        given = list(args)
        for position in self.positions:
            given[position] = _leaf(args, position, is_inside)
        refuse_hooks_of_sums((self._names[place], self._tensors[place]) for place in self._places)
        if not is_inferring():
            self._refuse_mindspores_hooks()
        with torch.enable_grad(), replaced([checkpoints.REPLACEMENT]):
            value = self.function(*given, **kwargs)
        found = tree.results(value, lambda leaf: leaf)
        if not found.tensors:
            raise TypeError(f"bridge.value_and_grad: the function gives no Tensor, but a {type(value).__name__}")
        asked = [*(given[position] for position in self.positions), *(self._tensors[place] for place in self._places)]
        roots = self._differentiated(value, found.tensors)
        received = gradients_of(roots, asked, create_graph=is_inside)
        if not is_inside:
            self._state.note_gradients(self._places, received[len(self.positions) :])
        gradients: Sequence[Any] = [  # zero for what the results do not depend on, as MindSpore has it
            torch.zeros_like(tensor) if gradient is None else gradient
            for tensor, gradient in zip(asked, received, strict=True)
        ]
        if self.ids is not None:
            gradients = list(zip(self.ids, gradients, strict=True))
        results = found.tensors if is_inside else [tensor.detach() for tensor in found.tensors]
        return found.with_tensors(results), self._arranged(gradients)

    def _refuse_mindspores_hooks(self) -> None:
        for place in self._places:
            if self._parameters[place].hooks():
                raise RuntimeError(
                    f"bridge.value_and_grad: the Parameter {self._names[place]} has hooks of MindSpore's, which do not "
                    "run there: change the gradients before the optimizer's call"
                )

    def _differentiated(self, value: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if not self.has_aux:
            return tensors
        if not isinstance(value, (tuple, list)) or not value:
            raise TypeError(
                "bridge.value_and_grad: with has_aux the function gives a tuple, whose first result is differentiated, "
                f"and this one gives one result, of type {type(value).__name__}"
            )
        first = value[0]
        found = tree.results(first, lambda leaf: leaf).tensors
        if not found:
            raise TypeError(
                "bridge.value_and_grad: with has_aux the function gives several results and the first is "
                f"differentiated, which is no Tensor here, but of type {type(first).__name__}"
            )
        return found

    def _arranged(self, gradients: Sequence[Any]) -> Any:
        """As mindspore.value_and_grad has them: a position or weight that is asked for alone is no tuple."""
        count = len(self.positions)
        of_arguments = gradients[0] if count == 1 else tuple(gradients[:count])
        if not self.has_weights:
            return of_arguments
        of_weights = gradients[count] if self.is_one_weight else tuple(gradients[count:])
        return (of_arguments, of_weights) if count else of_weights


def _leaf(args: Sequence[Any], position: int, is_inside: bool) -> torch.Tensor:
    """The argument there, as what gradients are found at. Inside another program it stays what it follows from."""
    if position >= len(args):
        raise ValueError(f"bridge.value_and_grad: grad_position has {position}, and there are {len(args)} arguments")
    if not isinstance(args[position], torch.Tensor):
        kind = type(args[position]).__name__
        raise TypeError(
            f"bridge.value_and_grad: grad_position has {position}, and that argument is no Tensor but of type {kind}"
        )
    own: torch.Tensor = args[position]
    return own.view_as(own) if is_inside and own.requires_grad else own.detach().requires_grad_()


def value_and_grad(
    fn: Callable[..., Any],
    grad_position: int | tuple[int, ...] | None = 0,
    weights: ms.Parameter | Iterable[ms.Parameter] | None = None,
    has_aux: bool = False,
    return_ids: bool = False,
) -> Callable[..., Any]:
    """Make a function that gives the value of own code that calls the bridge, and its gradients.

        net = bridge.cell(module)
        optimizer = bridge.optim.SGD(net.trainable_params(), 0.1)
        loss_and_gradients = bridge.value_and_grad(
            lambda x, labels: F.cross_entropy(net(x), labels), None, optimizer.parameters
        )

        loss, gradients = loss_and_gradients(x, labels)
        optimizer(gradients)

    It takes and gives what `mindspore.value_and_grad` does, with the same bits. Forward and backward run as one
    operator (see `fuse`), so MindSpore records nothing. That saves time where tensors are small.

    Args:
        fn: a Cell, or a function. It calls the bridge's operators and no operators of MindSpore's.
        grad_position: the arguments whose gradients are asked for; None for none of them.
        weights: the Parameters whose gradients are asked for.
        has_aux: whether only the first of several results is differentiated.
        return_ids: whether each gradient is a tuple of the argument's position or the Parameter's name, and the
            gradient.

    Returns:
        A function of the arguments, for both modes. It gives the value and the gradients: those of the arguments, of
        the weights, or a tuple of both. It has no gradient itself.

    Raises:
        TypeError: `fn` is neither, `weights` are no Parameters, or `grad_position` is no int. When it is called: an
            argument of `grad_position` is not a Tensor, or the function gives none.
        ValueError: neither arguments nor weights are asked for, or a position twice. When it is called: there are fewer
            arguments.
        RuntimeError: see `fuse`. When it is called: its own gradient is asked for.
    """
    refuse_torch_modules("bridge.value_and_grad", fn)
    if not callable(fn):
        raise TypeError(f"bridge.value_and_grad takes a Cell or a function, not {type(fn).__name__}")
    if grad_position is None and weights is None:
        raise ValueError("bridge.value_and_grad: grad_position and weights cannot both be None")
    positions = _positions(grad_position)
    parameters = _listed(weights)
    ids = [*positions, *(parameter.name for parameter in parameters)] if return_ids else None
    fused = Fused(fn, "bridge.value_and_grad")
    asked = fused.twins.of(weights if weights is None or isinstance(weights, ms.Parameter) else parameters)
    function = _Differentiated(fused, positions, asked, has_aux, ids)
    name = getattr(fn, "__name__", type(fn).__name__)
    twins = fused.twins
    program = Program(
        function, name=name, state=twins.tensors, modules=twins.modules, cells=twins.cells,
        named=NamedConstants(fn, twins.cells), is_differentiable=False,
    )  # fmt: skip
    function.follow(program.state)
    return program if isinstance(fn, ms.nn.Cell) else functools.update_wrapper(program, fn, updated=())


def _positions(grad_position: Any) -> tuple[int, ...]:
    if grad_position is None:
        return ()
    positions = grad_position if isinstance(grad_position, tuple) else (grad_position,)
    if not all(type(position) is int for position in positions):
        raise TypeError(
            f"bridge.value_and_grad: grad_position is an int, a tuple of ints or None, not {grad_position!r}"
        )
    if not positions or min(positions) < 0 or len({*positions}) < len(positions):
        raise ValueError(
            f"bridge.value_and_grad: grad_position has positions from 0, each once, and is {grad_position!r}"
        )
    return positions


def _listed(weights: Any) -> list[ms.Parameter]:
    """The Parameters that `weights` are."""
    if weights is None or isinstance(weights, ms.Parameter):
        return [] if weights is None else [weights]
    single = (ms.Tensor, torch.Tensor, ms.nn.Cell, torch.nn.Module, Mapping)
    if isinstance(weights, single) or not isinstance(weights, Iterable):
        raise TypeError(f"bridge.value_and_grad takes a list of Parameters for weights, not {no_parameters(weights)}")
    found = list(weights)
    for parameter in found:
        refuse_no_parameter("bridge.value_and_grad", parameter)
    return found
