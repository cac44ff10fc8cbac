"""The call of a function: in PyNative mode its own Python runs under PyTorch's autograd, on MindSpore's memory."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from types import MethodType
from typing import Any

import mindspore as ms
import torch
from torch.utils import _pytree as pytree

from bridge import _mindspore
from bridge._start import start_on
from bridge.call import in_program
from bridge.call.int64_hint import give_hint
from bridge.op import devices
from bridge.primitive.kernel import direct, one_at_a_time
from bridge.programs import checkpoints, constant_arguments, leaves, tree
from bridge.programs.configurations import own_changes
from bridge.programs.graph import GraphProgram
from bridge.programs.module_code import differentiates, is_torch_code, sets_attribute
from bridge.programs.named_constants import NamedConstants
from bridge.programs.refusals import no_gradient, refuse_cut_gradients
from bridge.programs.replaced import replaced
from bridge.programs.set_data import follow_set_data
from bridge.programs.state import State, tensors_of
from bridge.programs.written_down import TellsItself

_INSTEAD = "has PyTorch's own modules in it, and calls PyTorch's own functions"
_WITH_GRADIENT = [*constant_arguments.REPLACEMENTS, checkpoints.REPLACEMENT]


class Program(_mindspore.CompiledAsMethod, TellsItself):
    """A function of PyTorch's tensors as one of MindSpore's tensors.

    ms_ext/mindspore/python/module.cpp makes the tensors PyTorch's and back, and records the call for
    MindSpore's gradients.

    Args:
        function: a module, or another callable. Tensors that it finds elsewhere than in its arguments and in its state
            are constants.
        name: what errors call it.
        state: the tensors that it keeps between calls, by name; those of a module are known.
        modules: those that the function runs, whose buffers are in the state.
        cells: the Cells whose code it runs.
        named: what the function finds by name.
        is_differentiable: whether MindSpore may ask for its gradient.

    Attributes:
        function: the function.
        state: what it keeps between calls.
        precision: the dtype that `Cell.to_float` or `mindspore.amp` gave the Cell, for torch.autocast.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        state: Mapping[str, torch.Tensor] | None = None,
        modules: Sequence[torch.nn.Module] = (),
        cells: Sequence[ms.nn.Cell] = (),
        named: NamedConstants | None = None,
        is_differentiable: bool = True,
    ) -> None:
        self.function = function
        self.name = str(name or getattr(function, "__name__", type(function).__name__))
        self._is_named(self.name)
        self.precision: torch.dtype | None = None
        start_on(devices.target())
        self._calls = direct.module(self.name, tree.results_with_data, is_torch_code(function))
        if state is None and isinstance(function, torch.nn.Module):
            state, modules = tensors_of(function), [function]
        self.state = State(state or {}, modules, self._calls, cells, named)
        follow_set_data(self.state)
        self._own_changes = own_changes(self.state.modules)
        self._is_differentiable = is_differentiable
        self._modules = [part for module in modules for part in module.modules()]
        self._replacements = [*_WITH_GRADIENT]
        if any(sets_attribute(module, leaves.NAME) for module in self._modules):
            self._replacements.append(leaves.REPLACEMENT)
        self._differentiates = any(map(differentiates, self._modules))
        self.weights = tuple(self.state.parameters.values())  # two may have one name, as those of two Cells have
        self.graph = GraphProgram(function, self.name, self.state, self._autocast, is_differentiable)
        if self._gpu >= 0:  # a graph goes on with the memory that its Parameters have when it is compiled
            self.follow()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _mindspore.jit_context():  # where MindSpore does not end well after an error
            warnings.warn(
                f'{self.name}: mindspore.jit(capture_mode="trace") takes its results for constants: leave out '
                "capture_mode",
                stacklevel=2,
            )
        if in_program.is_inside() and in_program.has_torch_tensor((args, kwargs)):
            return self._inside(*args, **kwargs)
        self.state.follow_parts()
        run, has_hooks = self._followed if self.state.may_change else self.function, False
        if self._differentiates or self.precision is not None or not self._calls.runs_plainly():
            run, has_hooks = self._run, self._is_recorded_with_hooks()
        tensors: Sequence[ms.Tensor] = args
        if kwargs or not tree.TENSORS.issuperset(map(type, args)):
            given = tree.arguments(args, kwargs)
            if isinstance(given, tree.Tree) and one_at_a_time._is_owned():  # type: ignore[attr-defined]  # in a program
                refuse_cut_gradients(self.name, (*args, *kwargs.values()), _INSTEAD)
            run, tensors = tree.calling(self.name, run, given), given.tensors
        with _mindspore.one_graph_at_a_time, one_at_a_time, self._own_changes:
            try:
                return self._calls(run, tensors, self._gpu, has_hooks)
            except BaseException as error:
                _mindspore.stop_recording()
                give_hint(error)
                raise

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        """The program itself, as Python has it for a function. A Cell makes another one for its copy.

        Raises:
            TypeError: it is of an object's method, and would be the copied object's.
        """
        if isinstance(self.__dict__.get("__wrapped__"), MethodType):
            raise TypeError(
                f"{self.name}: what bridge.fuse or bridge.value_and_grad gives for a method cannot be copied with its "
                "object: make it for the copy, as in `__init__`"
            )
        return self

    def _inside(self, *args: Any, **kwargs: Any) -> Any:
        """A call of the program itself inside a fused one, which has found it where no twins are."""
        if self.state.tensors:
            raise RuntimeError(
                f"bridge.fuse and bridge.value_and_grad: the program has a Cell, {self.name}, from where they do not "
                "look, as the code of a torch.nn.Module, and its parameters would be constants: make it before, and "
                "have it, or what holds it, as a variable or an attribute of a Cell or of an object of your own class"
            )
        return self.on_torch(*args, **kwargs)

    def _followed(self, *args: Any, **kwargs: Any) -> Any:
        """The function on PyTorch's tensors, where MindSpore neither records nor casts."""
        found = self.function(*args, **kwargs)
        self.state.follow()
        return found

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """The function on PyTorch's tensors, whatever MindSpore asks for."""
        if torch.is_grad_enabled():
            with replaced(self._replacements):
                found = self.on_torch(*args, **kwargs)
        elif self._differentiates:
            found = self._differentiating(*args, **kwargs)
        else:
            found = self.on_torch(*args, **kwargs)
        self.state.follow()
        return found

    def _is_recorded_with_hooks(self) -> bool:
        """Whether MindSpore records this call, and a module has hooks for the backward pass."""
        if not _mindspore.is_recording():
            return False
        if not self._is_differentiable:
            _mindspore.stop_recording()
            raise RuntimeError(no_gradient(self.name))
        return any(part._backward_hooks or part._backward_pre_hooks for part in self._modules)

    def told_apart_by(self) -> Any:
        return self.function, self.precision

    def on_torch(self, *args: Any, **kwargs: Any) -> Any:
        """The function on PyTorch's tensors, as a part of another program."""
        if self.precision is None and not direct.has_mixed_precision():  # the usual call
            return self.function(*args, **kwargs)
        with self._autocast(by_lists=True):
            return self.function(*args, **kwargs)

    def _differentiating(self, *args: Any, **kwargs: Any) -> Any:
        """The same for a function that asks for gradients itself, while MindSpore records none."""
        with torch.enable_grad():
            results = self.on_torch(*args, **kwargs)
        return pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, results)

    def follow(self) -> None:
        """Have the module's parameters and buffers be what MindSpore's are now, without a call."""
        with one_at_a_time:
            self._calls(tuple, [], self._gpu, False)
        if self._gpu >= 0:
            _mindspore.wait()  # for copies on MindSpore's stream: whoever reads or writes now is on PyTorch's

    def follow_between_calls(self) -> None:
        """See State."""
        self.state.follow_between_calls()

    def _autocast(self, by_lists: bool) -> Any:
        """What runs the module in the dtype that MindSpore asks for.

        Args:
            by_lists: whether it casts for the operators of a list here.
        """
        if self.precision is not None:
            device = "cpu" if self._gpu < 0 else "cuda"
            return torch.autocast(device, self.precision, enabled=self.precision != torch.float32)
        if by_lists:
            raise RuntimeError(
                f"{self.name}: the lists of mindspore.amp do not reach into a PyTorch module: give "
                "its Cell a dtype of its own, by to_float"
            )
        return contextlib.nullcontext()

    @functools.cached_property
    def _gpu(self) -> int:
        """The GPU that MindSpore's tensors are on; -1 if it has none."""
        if devices.target() != "GPU":
            return -1
        if not devices.has_cuda_set():
            raise RuntimeError("bridge.cell on a GPU needs a bridge that was built with the CUDA operators")
        self.state.move_unshared(devices.torch_name("GPU"))
        return devices.gpu()

    def _call_in_graph(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.graph.call(self.weights, args, kwargs)


_mindspore.have_jit_compile(Program)
