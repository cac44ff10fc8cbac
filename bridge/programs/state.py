"""What a function keeps between calls, as MindSpore's Parameters on the memory of PyTorch's tensors."""

from __future__ import annotations

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.weak import WeakIdKeyDictionary

from bridge import _mindspore
from bridge.op import devices, dtypes
from bridge.primitive import direct
from bridge.primitive.kernel import one_at_a_time
from bridge.primitive.tensors import torch_view, wait_for_pytorch
from bridge.programs import modes
from bridge.programs.calls import Refusal, in_line
from bridge.programs.memory import storage_of
from bridge.programs.module_code import where_set
from bridge.programs.named_constants import NamedConstants
from bridge.programs.settings import note_inputs

# A tensor that several programs have is one Parameter, and a Parameter that they have is one tensor, which it keeps.
_parameters = WeakIdKeyDictionary()
_tensors = WeakIdKeyDictionary()

_states: weakref.WeakSet[State] = weakref.WeakSet()
_in_graphs: weakref.WeakSet[State] = weakref.WeakSet()


@dataclasses.dataclass
class _Buffer:
    """A buffer of a module, which may put another tensor in its place.

    Attributes:
        owner: the module.
        name: the buffer's.
        tensor: what stood there after the last call.
        position: of the Parameter among those that ms_ext/mindspore/python/module.cpp shares.
        is_replaced: whether a graph's module has put another one there.
        is_lent: whether a graph's module gets a copy, because its gradient needs what the buffer was.
        is_apart: whether it has memory of its own, to which graphs write what a module puts in its place.
        place: the module's dictionary of buffers.
    """

    owner: torch.nn.Module
    name: str
    tensor: torch.Tensor
    position: int
    is_replaced: bool = False
    is_lent: bool = False
    is_apart: bool = False
    place: dict[str, Any] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.place = self.owner._buffers

    def where_set(self) -> str:
        """The line that puts another tensor there, for an error."""
        return in_line(where_set(self.owner, self.name))


class State:
    """What a function keeps between calls, shared with MindSpore.

    Args:
        tensors: by name. One that has several names is taken by the first.
        modules: those that the function runs. They may put other tensors in the place of their buffers.
        calls: what shares memory (ms_ext/mindspore/python/module.cpp).
        cells: the Cells whose code the function runs.
        named: what it finds by name.

    Attributes:
        parameters: MindSpore's Parameters by name.
        tensors: PyTorch's tensors, in the same order.
        modules, cells, named: see above.
        may_change: whether the modules may put other tensors in the place of some.
        asked: the positions of the tensors for whose gradients the function differentiates, if it does.
        left_out: those of them for which it has found no gradient last.
        former: the name of a Parameter whose tensor has another one by now; empty if there is none.
        replaced: the positions of the buffers (not of their tensors) that a capture's module has replaced last.
        tied: the buffers that it has put another of its tensors in the place of, or a view of that, and the positions
            of these tensors.
    """

    def __init__(
        self,
        tensors: Mapping[str, torch.Tensor],
        modules: Sequence[torch.nn.Module],
        calls: Any,
        cells: Sequence[ms.nn.Cell] = (),
        named: NamedConstants | None = None,
    ) -> None:
        modes.compile_for_modes()
        self._calls = calls
        self.modules, self.cells, self.named = modules, cells, named
        self.parameters: dict[str, ms.Parameter] = {}
        self.tensors: list[torch.Tensor] = []
        self.asked: Sequence[int] = ()
        self.left_out: list[int] = []
        self.former = ""
        self.replaced: list[int] = []
        self.tied: list[tuple[_Buffer, int]] = []
        positions: dict[int, int] = {}
        _refuse_ties(tensors)
        for name, tensor in tensors.items():
            if id(tensor) not in positions:
                self.parameters[name] = _parameter_of(name, tensor, calls)
                self.tensors.append(tensor)
                positions[id(tensor)] = calls.share(self.parameters[name], tensor)
        self._buffers = [
            _Buffer(owner, key, buffer, positions[id(buffer)])
            for module in modules
            for _, owner, key, buffer in _persistent_buffers(module)
            if isinstance(owner._buffers, dict)  # TorchScript's are C++'s
        ]
        parts = [part for module in modules for part in module.modules()]
        self._scripted = [
            (part, name, buffer)
            for part in parts
            if isinstance(part, torch.jit.ScriptModule)
            for name, buffer in part.named_buffers(recurse=False)
        ]
        self._places = [
            (part._parameters, name, positions[id(parameter)])
            for part in parts
            if isinstance(part._parameters, dict)
            for name, parameter in part._parameters.items()
            if parameter is not None
        ]
        for part in parts:
            persistent = {*part._buffers.keys()} - part._non_persistent_buffers_set
            if isinstance(part._buffers, dict):
                persistent = {name for name in persistent if id(part._buffers[name]) in positions}
            note_inputs(part, persistent)
        self.may_change = bool(self._buffers)
        self._look_at_parts()
        self._look_at_buffers()
        _states.add(self)

    def follow_parts(self) -> None:
        """Share the parameters that somebody has put in the place of others since the last call.

        Raises:
            ValueError: the modules have other parameters than there are Parameters of MindSpore's for.
        """
        self.refuse_former()
        if not self._calls.has_changed():
            return
        now = list(self.tensors)
        for place, name, position in self._places:
            found = place.get(name)
            if isinstance(found, torch.nn.Parameter):
                now[position] = found
        self._refuse_other_parts(now)
        for position, (parameter, tensor) in enumerate(zip(self.parameters.values(), now, strict=True)):
            if tensor is not self.tensors[position]:
                _refuse_without_data(parameter.name, tensor)
                self._calls.replace(position, tensor)
                self.tensors[position] = tensor
                _pair(parameter, tensor)
        self._look_at_parts()

    def take_data(self, parameter: ms.Parameter) -> None:
        """Have what MindSpore has given a Parameter in the memory that both frameworks had before."""
        position = self._position(parameter)
        tensor = self.tensors[position]
        _mindspore.wait()
        if not _is_like(parameter, tensor) or not tensor.numel() or parameter.data_ptr() == tensor.data_ptr():
            return
        with one_at_a_time, torch.no_grad():
            if devices.target() == "GPU":
                ms.runtime.synchronize()  # what MindSpore has launched may read the old data
            data = torch_view(parameter).clone()
            self._calls.take_back(position, devices.gpu())
            self.follow_parts()
            self.tensors[position].copy_(data)
            wait_for_pytorch()

    def take_dtype(self, parameter: ms.Parameter) -> None:
        """Have PyTorch's tensor have the dtype that MindSpore has given a Parameter, and the memory of that."""
        _mindspore.wait()
        with one_at_a_time:
            self._calls.leave_graphs(self._position(parameter))
            self._calls(tuple, [], devices.gpu(), False)
        _mindspore.wait()

    def _position(self, parameter: ms.Parameter) -> int:
        return [*map(id, self.parameters.values())].index(id(parameter))

    def stay(self) -> None:
        """A graph has the Parameters, and goes on with the memory that they have now. What PyTorch puts in the place of
        a tensor or of its data is copied there."""
        self.keep_memory(self.parameters.values())
        modes.note(self)

    def keep_memory(self, parameters: Iterable[ms.Parameter]) -> None:
        """The same for some of them, where MindSpore's own code compiles these, as its optimizers do."""
        wanted = {*map(id, parameters)}
        positions = [i for i, parameter in enumerate(self.parameters.values()) if id(parameter) in wanted]
        self._calls.stay(positions, devices.gpu())
        _in_graphs.add(self)
        _mindspore.before_graphs(direct.is_any_assigned_in, _follow_in_graphs)

    @property
    def mark(self) -> Callable[[], int]:
        """What gives a digest of what `are_trained` and `has_hooks` tell; 0 if `follow_in_graph` may have something to
        follow."""
        return self._calls.mark  # type: ignore[no-any-return]

    def are_trained(self) -> list[bool]:
        """Which parameters and buffers are not frozen, in whichever framework that was said last."""
        return self._calls.are_trained()  # type: ignore[no-any-return]

    def note_gradients(self, positions: Sequence[int], gradients: Sequence[torch.Tensor | None]) -> None:
        """For optimizers: what a backward pass has found for the tensors at these positions. MindSpore gets zeros in
        the place of None."""
        self.left_out = [i for i, gradient in zip(positions, gradients, strict=True) if gradient is None]
        if _get_current_dispatch_mode() is None:  # not a capture
            self._calls.note_gradients([*positions], [*gradients])

    def take_left_out(self) -> list[int]:
        """The positions of the tensors for which backward passes since the last call of this have found nothing."""
        return self._calls.take_left_out()  # type: ignore[no-any-return]

    def has_hooks(self) -> bool:
        """Whether one of them has hooks of PyTorch's for its gradient."""
        return self._calls.has_hooks() and any(  # PyTorch keeps the dictionaries of hooks that were removed
            tensor._backward_hooks or tensor._post_accumulate_grad_hooks for tensor in self.tensors
        )

    def follow_assigned(self) -> None:
        """Have what PyTorch has assigned since the last call be MindSpore's. A capture assigns for itself."""
        if _get_current_dispatch_mode() is not None:
            return
        with one_at_a_time:
            self.follow_parts()
            self.follow()
            self._calls.follow_assigned()
            self._look_at_buffers()

    def follow_in_graph(self) -> None:
        """The same before a call of a graph, if there is something to follow."""
        self.refuse_former()
        if self._calls.is_assigned():
            self.follow_assigned()

    def follow_between_calls(self) -> None:
        """The same, and have what was frozen in one framework be frozen in the other."""
        self.follow_parts()
        self.follow_assigned()
        self._calls.follow_requires_grad()
        wait_for_pytorch()

    def refuse_former(self) -> None:
        """Raise a ValueError if a tensor has another Parameter by now."""
        if self.former:
            raise ValueError(
                f"{self.former}: PyTorch's tensor has another Parameter by now, of a bridge.cell after a change of "
                "dtype or shape: use that Cell, and an optimizer that was made after it"
            )

    def _refuse_other_parts(self, tensors: Sequence[torch.Tensor]) -> None:
        """Raise an error unless these are the tensors for MindSpore's Parameters, and all that the modules have."""
        again = "since bridge.cell was called: call it again after such a change, and make the optimizer after that"
        names: dict[int, list[str]] = {}
        for name, tensor in zip(self.parameters, tensors, strict=True):
            names.setdefault(id(tensor), []).append(name)
        for one in names.values():
            if len(one) > 1:
                raise ValueError(f"{' and '.join(one)}: PyTorch's module has one parameter in these places {again}")
        known = {id(parameter): name for name, parameter in self.parameters.items()}
        for (name, own), tensor in zip(self.parameters.items(), tensors, strict=True):
            parameter = parameter_of(tensor)
            if isinstance(tensor, torch.nn.Parameter) and parameter is not own and id(parameter) in known:
                raise ValueError(
                    f"{name}: PyTorch's module has {known[id(parameter)]} in this place {again}. An optimizer would go "
                    "on with what it keeps for the other one"
                )
        for module in self.modules:
            for name, parameter in module.named_parameters():
                if id(parameter) not in names:
                    raise ValueError(f"{name}: PyTorch's module has this parameter {again}")

    def _look_at_parts(self) -> None:
        parts = [part for module in self.modules for part in module.modules()]
        found = [dictionary for part in parts for dictionary in (part._parameters, part._modules)]
        self._calls.look_at([dictionary for dictionary in found if isinstance(dictionary, dict)])

    def _look_at_buffers(self) -> None:
        self._calls.look_at_buffers([*{id(buffer.place): buffer.place for buffer in self._buffers}.values()])

    def follow(self) -> None:
        """Share the tensors that the modules have put in the place of others."""
        replaced = [*self._replaced()]
        parameters = [*self.parameters.values()] if replaced else []
        for buffer, now in replaced:
            _refuse_without_data(buffer.name, now)
            self._calls.replace(buffer.position, now)
            _parameters.pop(buffer.tensor, None)
            _pair(parameters[buffer.position], now)
            self.tensors[buffer.position] = buffer.tensor = now

    def set_apart(self, replaced: Sequence[int]) -> bool:
        """Give buffers memory of their own. A graph writes there what its module puts in their places, and whoever has
        the former memory keeps that, as in PyTorch. Whether one of them had none yet.

        Args:
            replaced: the positions of the buffers.

        Raises:
            Refusal: a parameter or another buffer has the memory.
        """
        all_replaced = [self._buffers[i] for i in replaced]
        found = [buffer for buffer in all_replaced if not buffer.is_apart]
        for buffer in found:
            for name in self._with_memory_of(buffer, all_replaced):
                raise Refusal(
                    f"the buffer '{buffer.name}' has the memory of '{name}', and in a graph that of what the module "
                    f"puts in its place: register a clone, as `register_buffer('{buffer.name}', tensor.clone())` does"
                    f"{buffer.where_set()}"
                )
        for buffer in found:
            buffer.place[buffer.name] = buffer.tensor.clone()
            buffer.is_apart = True
        self.follow()
        return bool(found)

    def _with_memory_of(self, buffer: _Buffer, replaced: Sequence[_Buffer]) -> Iterator[str]:
        """The names of what has a buffer's memory besides it and those that are replaced too."""
        for other in self._buffers:
            if other.tensor is buffer.tensor and not any(other is one for one in replaced):
                yield other.name
        own, apart = _addresses(buffer.tensor), {one.position for one in replaced}
        for position, (name, tensor) in enumerate(zip(self.parameters, self.tensors, strict=True)):
            found = _addresses(tensor)
            if position not in apart and max(own.start, found.start) < min(own.stop, found.stop):
                yield name

    def lend(self) -> bool:
        """Have modules get copies of those buffers that they replace; whether there is one that they got itself."""
        found = [buffer for buffer in self._buffers if buffer.is_replaced and not buffer.is_lent]
        for buffer in found:
            buffer.is_lent = True
        return bool(found)

    def give_lent(self) -> None:
        """In a graph, put the copies where the modules look for the buffers, and note those of TorchScript's."""
        self._scripted = [(part, name, getattr(part, name)) for part, name, _ in self._scripted]
        for buffer in self._buffers:
            if buffer.is_lent:
                buffer.place[buffer.name] = buffer.tensor.clone()

    def write_back(self) -> None:
        """In a graph, write to a tensor what a module has put in its place."""
        self._give_back_scripted()
        replaced = [*self._replaced()]
        self.replaced = [i for i, buffer in enumerate(self._buffers) if any(buffer is one for one, _ in replaced)]
        for buffer, _ in replaced:
            buffer.is_replaced = True
            buffer.place[buffer.name] = buffer.tensor
        for buffer, now in replaced:
            if (now.shape, now.dtype) != (buffer.tensor.shape, buffer.tensor.dtype):
                raise Refusal(
                    f"the buffer '{buffer.name}' gets another shape or dtype, which a graph does not keep"
                    f"{buffer.where_set()}"
                )
        self.tied = [*self._tied(replaced)]
        with torch.no_grad():
            values = _before_writes([now for _, now in replaced], [buffer.tensor for buffer, _ in replaced])
            for (buffer, _), value in zip(replaced, values, strict=True):
                buffer.tensor.copy_(value)

    def _give_back_scripted(self) -> None:
        """Have TorchScript's modules have their buffers. Raises Refusal if they had others."""
        others = [one for one in self._scripted if isinstance(getattr(one[0], one[1]), FakeTensor)]
        for part, name, buffer in others:
            setattr(part, name, buffer)
        if others:
            raise Refusal(
                f"the TorchScript module puts another tensor in the place of its buffer '{others[0][1]}', which a "
                "graph does not see: write to it (`self.n.copy_(...)`)"
            )

    def _tied(self, replaced: Sequence[tuple[_Buffer, torch.Tensor]]) -> Iterator[tuple[_Buffer, int]]:
        if not replaced:  # what follows is among a capture's calls
            return
        gone = {id(buffer.tensor) for buffer, _ in replaced}
        there = {storage_of(tensor.detach()): i for i, tensor in enumerate(self.tensors) if id(tensor) not in gone}
        for buffer, now in replaced:
            if (position := there.get(storage_of(now.detach()))) is not None:
                yield buffer, position

    def before_write_back(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Tensors that `write_back` will not change: copies of those that share memory with one to which it writes."""
        return _before_writes(tensors, [buffer.tensor for buffer, _ in self._replaced()])

    def _replaced(self) -> Iterator[tuple[_Buffer, torch.Tensor]]:
        for buffer in self._buffers:
            now = buffer.place.get(buffer.name)
            if now is not buffer.tensor and isinstance(now, torch.Tensor):
                yield buffer, now

    def move_unshared(self, device: str) -> None:
        """Bring what only PyTorch has to the device, and tensors without elements, which have no memory to share."""
        for tensor in self.tensors:
            if not tensor.numel():
                tensor.data = tensor.data.to(device)
        for module in self.modules:
            for owner in module.modules():
                for key in owner._non_persistent_buffers_set:
                    buffer = owner._buffers.get(key)
                    if buffer is not None:
                        owner._buffers[key] = buffer.to(device)


def _addresses(tensor: torch.Tensor) -> range:
    """Those of a tensor's memory."""
    first = tensor.untyped_storage().data_ptr()
    return range(first, first + tensor.untyped_storage().nbytes())


def _before_writes(tensors: Sequence[torch.Tensor], written: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copies in place of those tensors that share memory with one that is going to be written to."""
    # A capture has other tensors in their places: those of `detach` have these tensors' memory.
    places = {storage_of(tensor.detach()) for tensor in written}
    return [tensor.clone() if places and storage_of(tensor.detach()) in places else tensor for tensor in tensors]


def tensors_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The parameters and buffers of a module, by their names.

    As in a state_dict, buffers that are not persistent are left out: they stay PyTorch's own.
    """
    buffers = {prefix + key: buffer for prefix, _, key, buffer in _persistent_buffers(module)}
    return {**dict(module.named_parameters()), **buffers}


def _persistent_buffers(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module, str, torch.Tensor]]:
    for path, owner in module.named_modules():
        for key, buffer in owner._buffers.items():
            if buffer is not None and key not in owner._non_persistent_buffers_set:
                yield (f"{path}." if path else ""), owner, key, buffer


def _follow_in_graphs() -> None:
    """Have the graphs' Parameters be what PyTorch has put in the place of their tensors or of these tensors' data."""
    for state in [*_in_graphs]:
        with contextlib.suppress(ValueError):  # a graph that has it raises that when it is called
            state.follow_in_graph()


def _parameter_of(name: str, tensor: torch.Tensor, calls: Any) -> ms.Parameter:
    """The Parameter for a tensor: the one that it has, or a new one."""
    if torch.nn.parameter.is_lazy(tensor):
        raise ValueError(f"{name} has no shape yet: call the PyTorch module once before bridge.cell")
    _refuse_without_data(name, tensor)
    parameter = parameter_of(tensor)
    if parameter is None or not _is_like(parameter, tensor):
        # By position, because MindSpore would copy what keywords hold too.
        _leave(parameter)
        parameter = ms.Parameter(calls.tensor_on(tensor), name, tensor.requires_grad)
        _pair(parameter, tensor)
    else:
        _follow(parameter, tensor)
    return parameter


def _refuse_ties(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise a ValueError for a parameter and another tensor with common elements of which one is not contiguous:
    MindSpore would have two. Buffers alone are constants mostly."""
    for name, tensor in tensors.items():
        if tensor.is_meta or torch.nn.parameter.is_lazy(tensor) or tensor.is_contiguous():
            continue
        for other_name, other in tensors.items():
            if other is tensor or storage_of(other) != storage_of(tensor):
                continue
            is_trained = isinstance(tensor, torch.nn.Parameter) or isinstance(other, torch.nn.Parameter)
            if is_trained and _overlap(tensor, other):
                raise ValueError(
                    f"{name} and {other_name} have the same memory, and {name} is not contiguous there, as a "
                    "transposed weight is. MindSpore's tensors are contiguous, so these would be two, and no longer "
                    "tied: let `forward` make one of the other"
                )


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype:
        return True
    length = one.untyped_storage().nbytes() // one.itemsize
    taken = torch.zeros(length, dtype=torch.bool)
    taken.as_strided(one.shape, one.stride(), one.storage_offset()).fill_(True)
    return bool(taken.as_strided(other.shape, other.stride(), other.storage_offset()).any())


def _leave(former: ms.Parameter | None) -> None:
    """Nobody takes a Parameter for its tensor's any more."""
    if former is None:
        return
    for state in [*_states]:
        if any(own is former for own in state.parameters.values()):
            state.former = former.name
            _in_graphs.discard(state)


def _refuse_without_data(name: str, tensor: torch.Tensor) -> None:
    if tensor.is_meta:
        raise ValueError(
            f"{name} has no data: call the PyTorch module's to_empty and load its state before bridge.cell"
        )


def _pair(parameter: ms.Parameter, tensor: torch.Tensor) -> None:
    _parameters[tensor] = weakref.ref(parameter)
    _tensors[parameter] = tensor


def pair_by_names(module: torch.nn.Module, parameters: Mapping[str, ms.Parameter]) -> None:
    """Have a module that is a copy take these Parameters, which are copies of those of the module that it is one of."""
    tensors = tensors_of(module)
    for name, parameter in parameters.items():
        tensor = tensors[name]
        if parameter_of(tensor) is None and not torch.nn.parameter.is_lazy(tensor):
            _pair(parameter, tensor)


def _is_like(parameter: ms.Parameter, tensor: torch.Tensor) -> bool:
    return tuple(parameter.shape) == tuple(tensor.shape) and dtypes.to_torch(parameter.dtype) == tensor.dtype


def refuse_other(parameter: ms.Parameter, tensor: torch.Tensor) -> None:
    """Raise a ValueError if one has got another shape or dtype, as by `module.half()`."""
    if not _is_like(parameter, tensor):
        raise ValueError(
            f"{parameter.name}: PyTorch's tensor has another shape or dtype now than MindSpore's Parameter: call "
            "bridge.cell again after such a change"
        )


def _follow(parameter: ms.Parameter, tensor: torch.Tensor) -> None:
    """Give PyTorch's tensor what MindSpore has put into the Parameter since they last had the same memory."""
    _mindspore.wait()
    if tensor.numel() and parameter.data_ptr() != tensor.data_ptr() and not direct.is_assigned(parameter, tensor):
        tensor.data = torch_view(parameter).clone()


def tensor_of(parameter: ms.Parameter) -> torch.Tensor:
    """PyTorch's tensor for a Parameter, for a program's state: the one that it has, or a new one with its data."""
    tensor = _tensors.get(parameter)
    if tensor is None:
        _mindspore.wait()
        parameter.init_data()
        data = torch_view(parameter).clone()
        has_gradient = parameter.requires_grad and (data.is_floating_point() or data.is_complex())
        tensor = torch.nn.Parameter(data, requires_grad=has_gradient)
        _pair(parameter, tensor)
    refuse_other(parameter, tensor)
    return tensor


def parameter_of(tensor: torch.Tensor) -> ms.Parameter | None:
    """The Parameter for a tensor, if there is one."""
    known = _parameters.get(tensor)
    return None if known is None else known()
