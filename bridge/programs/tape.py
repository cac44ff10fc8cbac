"""What PyTorch does, call by call: a mode that writes down each ATen call below autograd, in the order in which eager
PyTorch makes them.

Nothing is rewritten on the way. Views stay views, writes stay writes, a composite chooses its kernels by device, and a
draw stands where the program makes it, so that a replay has PyTorch's own bits.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Iterator, Sequence
from traceback import FrameSummary
from types import FrameType
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from bridge.primitive import direct
from bridge.programs import ctc_loss, cudnn_dropout, drawn_arrays, looks, python_draws, zero_tensors
from bridge.programs.answered import Answered
from bridge.programs.assigned_data import AssignedData
from bridge.programs.calls import (
    DEFAULT,
    AsksForData,
    Call,
    Refusal,
    Register,
    draws,
    in_line,
    no_modes,
    registers,
    results_of,
)
from bridge.programs.counters import refuse_many
from bridge.programs.data_floats import DataFloats
from bridge.programs.data_sizes import MOST_ANSWERS, DataSizes, Place, Sizes, Told, UnknownSize, is_put, put
from bridge.programs.drawn_ranges import answer_of_all, bounds
from bridge.programs.draws import Draws, draws_nothing
from bridge.programs.finiteness import answer_of_finite
from bridge.programs.guards import EQUAL, FOR_MESSAGES, Answer, Guards, checks, is_equal, is_integer, is_question
from bridge.programs.held import TAKEN, Held
from bridge.programs.inner_casts import InnerCasts
from bridge.programs.kept_elsewhere import KeptElsewhere, is_layers, is_own
from bridge.programs.known_integers import known_answer, known_integer
from bridge.programs.memory import Memory, layout, storage_of
from bridge.programs.one_hot import ONE_HOT, OneHot
from bridge.programs.packed import Packed
from bridge.programs.refusals import LEFT, no_single_operator
from bridge.programs.replaced import Replacement
from bridge.programs.run_time_momentum import RunTimeMomentum
from bridge.programs.run_time_settings import RunTimeSettings
from bridge.programs.selected import Selected
from bridge.programs.shares import NoShares, whole_of
from bridge.programs.size_numbers import Path
from bridge.programs.values import Values, copied
from bridge.programs.wrong_on_meta import (
    MASK_DTYPES,
    is_wrong_on_meta,
    masks,
    refuse_by_kernel,
    refuse_dtypes,
    refuse_out_of_range,
    results_on_data,
    with_strides_of_view,
)

# They write to these arguments when they run in training mode, although their schemas do not say so.
_HIDDEN_WRITES = ("running_mean", "running_var")
_TRAINING = ("training", "train", "use_input_stats")

# What their gradients call only where tensors have no data. With data they write in place, which keeps the strides.
_IN_PLACE = {("MaskedSelectBackward0", torch.ops.aten.masked_scatter.default): torch.ops.aten.masked_scatter_.default}

_FRESH = {torch.ops.aten.lift_fresh.default, torch.ops.aten.lift_fresh_copy.default}
# cuDNN's RNN asks so whether its weights lie in one piece of memory. MindSpore's do not.
_WHOLE_STORAGE = torch.ops.aten.set_.source_Storage
# Under autocast it copies them to one piece, and takes parts of that.
_PART_OF_STORAGE = torch.ops.aten.set_.source_Storage_storage_offset
# A call of at most so many elements is made to learn what is wrong with it.
_SMALL = 2**22


class Tape(TorchDispatchMode):
    """Records what runs while it is active.

    Args:
        fake_mode: what gives results without data; it has to be active below.
        guards: answers what only data can.
        sizes: of tensors whose shapes only data can tell.
    """

    supports_higher_order_operators = True  # to refuse them in words of our own

    def __init__(self, fake_mode: FakeTensorMode, guards: Guards, sizes: Sizes) -> None:
        super().__init__()
        self.fake_mode = fake_mode
        self.guards = guards
        self.calls: list[Call] = []
        self.tensors: list[torch.Tensor] = []
        """Each register's tensor. Tensors are told apart by identity, so all of them stay alive."""
        self.path = Path(sys._getframe(1).f_code)
        self.data_sizes = DataSizes(sizes, self.tensors, self.path, guards.may_be_any_size)
        self.constants: dict[int, torch.Tensor] = {}
        """The registers of tensors that the program found: what is neither an input nor a result."""
        self.fresh: set[int] = set()
        """Those of them that the program makes anew in each run, as `torch.tensor` does."""
        self.files: set[str] = set()
        """The files of the code that was running when PyTorch was called."""
        self.namespaces: dict[str, dict[str, Any]] = {}
        """Those of these files that are the program's."""
        self._lines: dict[int, FrameSummary] = {}  # the program's, by the numbers of autograd's nodes
        self._nodes: list[int] = []  # these numbers in order
        self._node = -1
        self.kept = KeptElsewhere(self._is_own, self.data_of)
        self._registers: dict[int, int] = {}
        self._state: dict[Any, int] = {}
        self._aliases: list[torch.Tensor] = []
        self._whole_masks: dict[tuple[int, torch.Size], torch.Tensor] = {}  # by the masks' registers
        self._memory = Memory()
        self._inputs: list[int | None] = []  # the registers that have it; None for one that is copied
        self._values = Values(self.calls, self.tensors, self.constants)
        self.draws = Draws(self._like, self._generator_state, self.data_of, self.calls, self.tensors)
        self.momentum = RunTimeMomentum(self.register)
        self._one_hot = OneHot()
        self.packed = Packed()
        self._finds_looks = sizes.finds_looks
        is_counting = sizes.others is not None
        self.selected = Selected(
            lambda index: self.data_of(index) is not None, is_counting, self.data_sizes.told, self.calls, self.tensors
        )
        self.floats = DataFloats(self.register, self._bounds, self._is_late, sizes.has_integers)
        self.refused: Refusal | None = None
        """The last value of data that it refused."""
        self.asked = 0
        """How often the function has called PyTorch."""
        if sizes.tapes is not None:
            sizes.tapes.append(self)
        self.answered = Answered(self.calls, self.tensors)
        self.held = Held(self._values, self.calls, self.tensors, self.constants)
        self.assigned = AssignedData(self.tensors, self.register, self._stand_in)
        self.inner_casts = InnerCasts(self)
        self.settings = RunTimeSettings(lambda: in_line(self.line()))

    def add(self, tensor: torch.Tensor) -> int:
        """A register for a tensor."""
        self._registers[id(tensor)] = len(self.tensors)
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def take_state(self, tensor: torch.Tensor, register: int, is_copied: bool) -> None:
        """Take a tensor with data for an input, or for a copy of it."""
        self.assigned.add(tensor, register)
        self.held.add(tensor, register)
        self._memory.add(tensor)
        self._inputs.append(None if is_copied else register)
        if is_copied:
            copied = self._like(register)
            clone = torch.ops.aten.clone.default
            self.calls.append(Call(clone, [Register(register), torch.preserve_format], [copied]))
            register = copied
        self._stand_in(tensor, register)

    def _stand_in(self, tensor: torch.Tensor, register: int) -> None:
        """Take a tensor with data for a register, whenever it is met."""
        self._registers[id(tensor)] = register
        self._state[layout(tensor)] = register

    def constant(self, tensor: torch.Tensor) -> int:
        """The register of a tensor with data, which PyTorch made while nothing was recorded."""
        if id(tensor) not in self._registers:
            register = self._state.get(layout(tensor))  # such a thing is `Tensor.data`
            if register is None:
                register = self._view_of_input(tensor)
            if register is not None:
                self._registers[id(tensor)] = register
                self._aliases.append(tensor)
        if id(tensor) not in self._registers:
            fake = self.fake_mode.from_tensor(tensor.detach(), static_shapes=True)
            register = self.add(fake)
            self._registers[id(tensor)] = register
            self.constants[register] = tensor
        return self._registers[id(tensor)]

    def taken(self) -> dict[int, bool]:
        """The storages of the tensors with data that the program has found, and whether it takes these for constant;
        else they are views of its inputs."""
        found = [tensor for number, tensor in self.constants.items() if number not in self.fresh]
        return dict.fromkeys(map(_storage, self._aliases), False) | dict.fromkeys(map(_storage, found), True)

    def _view_of_input(self, tensor: torch.Tensor) -> int | None:
        """The register of a view of an input's memory that was made before the program; None of any other tensor."""
        part = self._memory.part(tensor)
        if part is None:
            return None
        source = self._inputs[part.position]
        if source is None or part.offset is None:
            raise Refusal("a graph does not know a view of a parameter or buffer that was made before it")
        layout = [*tensor.shape], [*tensor.stride()], part.offset
        with no_modes(), torch.no_grad(), self.fake_mode:
            found = self.add(torch.as_strided(self.tensors[source], *layout))
        self.calls.append(Call(torch.ops.aten.as_strided.default, [Register(source), *layout], [found]))
        return found

    def register(self, tensor: torch.Tensor) -> int:
        """The register of a tensor."""
        found = self._registers.get(id(tensor))
        if found is not None:
            return found
        if not isinstance(tensor, FakeTensor):
            return self.constant(tensor)
        return self._alias(tensor)

    def is_constant(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor follows from constants only."""
        register = self._registers.get(id(tensor))
        return register is not None and self._values.of([register]) is not None

    def follows_from(self, sources: Sequence[int], tensor: torch.Tensor) -> bool:
        """Whether a tensor follows from these registers and constants, without draws, and nothing writes to what it
        follows from."""
        register = self._registers.get(id(tensor))
        if register is None:
            return False
        needed, calls = self._values.behind(register)
        made = {number for call in calls for number in call.results}
        written = {storage_of(self.tensors[number]) for call in self.calls for number in call.written}
        return (
            needed <= made | self.constants.keys() | {*sources}
            and written.isdisjoint(storage_of(self.tensors[number]) for number in needed)
            and not any(map(draws, calls))
        )

    def _is_own(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self._registers

    def data_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The data of a tensor that is the same in each call; None if it is not."""
        return self.known(self.register(tensor))

    def data_with(self, frozen: dict[int, torch.Tensor], tensor: torch.Tensor) -> torch.Tensor | None:
        """The data of a tensor of this run that follows from constants and from these inputs, which nobody writes to;
        None of any other."""
        register = self._registers.get(id(tensor))
        known = None if register is None else self.known(register)
        if register is None or known is not None or not self.follows_from([*frozen], tensor):
            return known
        return self._values.with_inputs(register, frozen)

    def known(self, register: int) -> torch.Tensor | None:
        """The data of a register that is the same in each call; None if it is not."""
        known = self._values.of([register])
        with no_modes():
            return None if known is None else copied(known[0])

    def replacements(self) -> list[Replacement]:
        """What stands for PyTorch's functions and classes while this tape records."""
        tape = self

        class Unknown(type):
            def __instancecheck__(cls, tensor: Any) -> bool:
                if not isinstance(tensor, FakeTensor):
                    return False
                asks = sys._getframe(1).f_globals.get("__name__", "")
                return asks.startswith("torch.") or not tape.is_constant(tensor)

        # Others' code that has another way for tensors without data, as transformers' masks have, goes its usual way
        # where the data is known.
        fake = Unknown("FakeTensor", (), {})
        return [
            *self.draws.replacements(),
            *self.inner_casts.replacements(),
            *self.momentum.replacements(),
            *self.packed.replacements(),
            *self.selected.replacements(),
            self.assigned.replacement(),
            *self.floats.replacements(),
            *python_draws.replacements(self.floats),
            *(
                looks.replacements(self.data_sizes.look, self.packed.size)
                if self._finds_looks
                else [Replacement(torch.Tensor, "size", self.packed.size)]
            ),
            Replacement(torch._subclasses, "FakeTensor", fake),
        ]

    def _alias(self, tensor: torch.Tensor) -> int:
        """The register with the same memory and layout: autograd wraps what it has saved anew."""
        wanted = layout(tensor)
        for number in range(len(self.tensors) - 1, -1, -1):
            if layout(self.tensors[number]) == wanted:
                self._registers[id(tensor)] = number
                self._aliases.append(tensor)
                return number
        is_own = isinstance(tensor, FakeTensor) and tensor.fake_mode is self.fake_mode
        raise Refusal("a tensor appears that no call has made" if is_own else LEFT)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.prim.device.default:
            return func(*args, **kwargs)
        if not isinstance(func, torch._ops.OpOverload):
            raise Refusal(no_single_operator(func))
        self.data_sizes.end_if_met()
        self.asked += 1
        refuse_many(self.asked)
        if func is torch.ops.aten.masked_select.default:
            args = args[0], self._whole_mask(*args)
        elif func is zero_tensors.MADE:
            zero_tensors.show_views()
        node = torch._C._current_autograd_node()
        if node is not None:
            func = _IN_PLACE.get((node.name(), func), func)
        self._note_files()
        if func is _PART_OF_STORAGE:
            return self._part(*args)
        if self.inner_casts.has(func, args):
            return self.inner_casts.call(func, args, kwargs)
        if (size := self.packed.first_size(func, args)) is not None:
            with no_modes():
                return self._made_anew(torch.tensor(size))
        self.packed.refuse(func, (args, kwargs))
        _refuse_layouts(func, (args, kwargs))
        arguments = self._arguments(func, args, kwargs)
        self.momentum.put(func, arguments)
        self.floats.put(arguments)
        fake_args, fake_kwargs = tree_map_only(torch.Tensor, self._fake, (args, kwargs))
        refuse_out_of_range(func, fake_args, fake_kwargs)
        refuse_dtypes(func, fake_args, fake_kwargs)
        if is_put(func) and not self.data_sizes.places and not self._masks(func, arguments):
            refuse_by_kernel(func, fake_args, fake_kwargs)  # inference takes values of any shape
        in_least = self._least(func, arguments)
        sized = None if in_least is not None else self._sized_by_data(func, arguments, fake_args, fake_kwargs)
        try:
            if in_least is not None or sized is not None:
                results = sized if in_least is None else in_least
            elif func is ctc_loss.FORWARD:
                results = ctc_loss.results(fake_args[0])
            elif is_wrong_on_meta(func, fake_args, fake_kwargs):
                results = self._results_on_zeros(func, arguments, fake_args, fake_kwargs)
            elif func is _WHOLE_STORAGE:
                return self._row(*fake_args)
            else:
                results = with_strides_of_view(func, fake_args, func(*fake_args, **fake_kwargs))
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            if self._is_known(arguments) or not self._known_masks(func, arguments):
                try:
                    return self._value(func, arguments, args, kwargs, error)
                except Refusal as refusal:
                    self.refused = refusal
                    raise
            results = self._results_on_zeros(func, arguments, fake_args, fake_kwargs)
        except Exception as error:
            if whole := whole_of(func, fake_args, self.data_sizes.told):
                raise NoShares(str(error), whole) from None
            if sum(tensor.numel() for tensor in tree_leaves(fake_args) if isinstance(tensor, torch.Tensor)) >= _SMALL:
                raise
            # Or its error, in the kernel's words.
            results = self._results_on_zeros(func, arguments, fake_args, fake_kwargs)
        _refuse_layouts(func, results)
        if (of_one_hot := self._one_hot.arguments(func, arguments, self.calls)) is not None:
            func, arguments = ONE_HOT, of_one_hot
            (compared,) = results_of(func, results)
            assert compared is not None
            with self.fake_mode:  # the kernel gives rows, where a comparison keeps the layout of the classes
                results = torch.empty(compared.shape, dtype=compared.dtype, device=compared.device)
        if func in _FRESH:
            self.fresh.update(register.number for register in registers(arguments))
        if func is ctc_loss.BACKWARD:
            self._repeat_ctc_loss(arguments)
        elif func is cudnn_dropout.BACKWARD:
            self.calls += cudnn_dropout.kept_state(arguments, self._like)
        found = [None if result is None else self._result(result) for result in results_of(func, results)]
        told: list[Told] = []
        if sized is not None:
            told = self.data_sizes.note(found, self._mask(func, arguments), len(self.calls), self.line())
        if in_least is not None and found[0] is not None:
            told.append(Told(len(in_least), Place(found[0], 0, len(self.calls) + 1, self.line()), True))
        written, without_gradient = list(_written(func, arguments)), not torch.is_grad_enabled()
        self.settings.note(func._schema.name)
        call = Call(func, arguments, found, written, without_gradient, self.line())
        self.data_sizes.forget(call.written)
        self.calls += self.draws.calls(call, self.device(call)) if draws(call) else [call]
        self._check(told)
        return results

    def _whole_mask(self, tensor: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """A mask that has an element for each one that it marks, as masked_select expands it: so many are a size."""
        try:
            shape = torch.broadcast_shapes(tensor.shape, mask.shape)
        except RuntimeError:  # masked_select has words of its own
            return mask
        if mask.shape == shape:
            return mask
        key = self.register(mask), shape
        if key not in self._whole_masks:
            self._whole_masks[key] = self.__torch_dispatch__(torch.ops.aten.expand.default, (), (mask, [*shape]))
        return self._whole_masks[key]

    def _least(self, func: Any, arguments: list[Any]) -> torch.Tensor | None:
        """What torch.bincount gives if there is no number beyond `minlength`; None if that is not to be taken."""
        if func is not torch.ops.aten.bincount.default or not self.data_sizes.takes_least:
            return None
        numbers, weights, least = arguments
        if weights not in (None, DEFAULT) or least in (0, DEFAULT):
            return None
        with self.fake_mode:
            return torch.empty(least, dtype=torch.int64, device=self.tensors[numbers.number].device)

    def _row(self, tensor: torch.Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
        """All elements of a storage, to be measured: no call knows it."""
        with self.fake_mode:
            return torch.empty(storage.nbytes() // tensor.element_size(), dtype=tensor.dtype, device=tensor.device)

    def _part(self, tensor: torch.Tensor, storage: torch.UntypedStorage, *place: Any) -> torch.Tensor:
        """A part of a storage, in the place of a tensor without elements."""
        source = next((i for i, one in enumerate(self.tensors) if storage_of(one) == storage._cdata), None)
        if source is None or tensor.numel():
            raise Refusal("a tensor gets the storage of another one, which a graph does not follow")
        with self.fake_mode:
            self.tensors[self.register(tensor)] = torch.empty_like(tensor)
            _PART_OF_STORAGE(tensor, storage, *place)
        layout = [*tensor.shape], [*tensor.stride()], tensor.storage_offset()
        found = self.add(tensor)
        arguments = [Register(source), *layout]
        self.calls.append(Call(torch.ops.aten.as_strided.default, arguments, [found], [], True, self.line()))
        return tensor

    def _generator_state(self) -> int:
        """A register for a generator's state."""
        with self.fake_mode:
            return self.add(torch.empty(0, dtype=torch.uint8))

    def _like(self, register: int) -> int:
        """A register that no call has made, like another one."""
        with self.fake_mode:
            return self.add(torch.empty_like(self.tensors[register]))

    def device(self, call: Call) -> str:
        """The kind of device whose generator a call draws from, or python_draws.DEVICE."""
        if call.op in (python_draws.DRAW, drawn_arrays.CALL):
            return python_draws.DEVICE
        if call.op is torch.ops.bridge.set_generator_state.default:
            return str(call.arguments[1])
        return next((self.tensors[number].device.type for number in call.results if number is not None), "cpu")

    def _repeat_ctc_loss(self, arguments: list[Any]) -> None:
        """Have its gradient make the loss again."""
        made = [self._like(saved.number) for saved in arguments[ctc_loss.SAVED]]
        self.calls.append(Call(ctc_loss.FORWARD, ctc_loss.arguments_again(arguments), [*made]))
        arguments[ctc_loss.SAVED] = map(Register, made)

    def _note_files(self) -> None:
        frame: FrameType | None = sys._getframe(2)
        own: FrameType | None = None
        layer: FrameType | None = None  # of PyTorch's
        running: list[FrameType] = []  # the function's own
        is_inside = True
        while frame is not None:
            file = frame.f_code.co_filename
            if file not in self.files:
                self.files.add(file)
                if is_own(file):
                    self.namespaces[file] = frame.f_globals
            is_inside = is_inside and not self.path.is_outermost(frame)
            if is_inside and file in self.namespaces:
                own = own or frame
                running.append(frame)
            elif is_inside and layer is None and is_layers(file):
                layer = frame
            frame = frame.f_back
        own = own or layer
        self.path.note(running)
        node = torch._C._current_autograd_node()
        self._node = torch.autograd._get_sequence_nr() - 1 if node is None else node._sequence_nr()
        if node is None and own is not None:
            code = own.f_code
            if self._node not in self._lines:
                bisect.insort(self._nodes, self._node)
            self._lines[self._node] = FrameSummary(code.co_filename, own.f_lineno, code.co_name, lookup_line=False)

    def line(self) -> FrameSummary | None:
        """The program's line that made the last call, or, in backward, the call that is differentiated."""
        # Autograd makes the node of a write to a view after the call.
        before = bisect.bisect_right(self._nodes, self._node)
        return self._lines[self._nodes[before - 1]] if before else None

    def _result(self, tensor: torch.Tensor) -> int:
        found = self._registers.get(id(tensor))  # of a write, its argument
        return self.add(tensor) if found is None else found

    def _fake(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.tensors[self.register(tensor)] if not isinstance(tensor, FakeTensor) else tensor

    def _arguments(self, func: Any, args: Any, kwargs: Any) -> list[Any]:
        def boxed(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return Register(self.register(value))
            if isinstance(value, torch.Generator):
                raise Refusal(f"{func.name()} is given a generator, which a graph does not take: PyNative mode does")
            return [boxed(item) for item in value] if isinstance(value, (list, tuple)) else value

        positional = iter(args)
        found = []
        for argument in func._schema.arguments:
            given = DEFAULT if argument.kwarg_only else next(positional, DEFAULT)
            found.append(boxed(kwargs.get(argument.name, given)))
        return found

    def _is_known(self, arguments: list[Any]) -> bool:
        """Whether a call follows from constants only."""
        return self._values.of([register.number for register in registers(arguments)]) is not None

    def _masks(self, func: Any, arguments: list[Any]) -> list[int]:
        """The registers of the masks that decide how many elements a call takes."""
        indices = [register.number for register in registers(masks(func, arguments))]
        return [number for number in indices if self.tensors[number].dtype in MASK_DTYPES]

    def _mask(self, func: Any, arguments: list[Any]) -> int | None:
        """The one mask that decides that."""
        found = self._masks(func, arguments)
        return found[0] if len(found) == 1 else None

    def _known_masks(self, func: Any, arguments: list[Any]) -> dict[int, torch.Tensor]:
        """The data of masks that follow from constants only, by the ids of the tensors."""
        numbers = self._masks(func, arguments)
        known = self._values.of(numbers) if numbers else None
        return {} if known is None else {id(self.tensors[n]): data for n, data in zip(numbers, known, strict=True)}

    def _results_on_zeros(self, func: Any, arguments: list[Any], args: Any, kwargs: Any) -> Any:
        """What the kernel gives, without its data."""
        known = self._known_masks(func, arguments)
        # Grad mode is what it is when a program runs.
        with no_modes(), torch.enable_grad(), draws_nothing(), direct.in_pool():
            results = results_on_data(func, args, kwargs, known | cudnn_dropout.state_for_trial(func, args))
        return tree_map_only(torch.Tensor, lambda result: self.fake_mode.from_tensor(result), results)

    def _sized_by_data(self, func: Any, arguments: list[Any], args: Any, kwargs: Any) -> Any:
        """What a call gives where data that is not known decides about its shape; else None."""
        if masks(func, arguments) is None:
            if torch.Tag.dynamic_output_shape not in func.tags or func is ctc_loss.FORWARD or self._is_known(arguments):
                return None
        elif not self._masks(func, arguments):
            return None
        elif is_put(func):
            if (mask := self._mask(func, arguments)) is not None:
                self.data_sizes.note_put(mask, *args[:3])
            return put(func, args, self.fake_mode)
        elif self._known_masks(func, arguments):
            return None
        refuse_by_kernel(func, args, kwargs)
        try:
            return self.data_sizes.results(func, args, kwargs, self.fake_mode, self._mask(func, arguments))
        except UnknownSize:
            raise UnknownSize(_unknown_shape(func)) from None
        except (DynamicOutputShapeException, GuardOnDataDependentSymNode, NotImplementedError):
            raise Refusal(_unknown_shape(func)) from None

    def _value(self, func: Any, arguments: list[Any], args: Any, kwargs: Any, error: Exception) -> Any:
        """What a call gives that needs data: only if its data does not depend on the program's inputs."""
        operands = [register.number for register in registers(arguments)]
        known = self._values.of(operands)
        question: tuple[str, int] | None = None
        if known is None and is_question(func, args[0]):
            if func is EQUAL and args[0].shape != args[1].shape:
                return False
            asked = self._equal(*operands) if func is EQUAL else operands[0]
            if (again := self.answered.again(asked)) is not None:
                return again
            if (drawn := answer_of_all(asked, self.calls, self.tensors)) is not None:
                return drawn
            if (compared := known_answer(asked, *self._known_integers())) is not None:
                return compared
            answer = self.guards.answer(lambda: self._of_finite(func, operands[0]), lambda: self.held.answer(asked))
            may_settle = answer.value is None and not (answer.is_of_data and self.guards.of_changed)
            if may_settle and (held := self.held.answer(asked)) is not None:
                answer = self.guards.settle(held, TAKEN)
            if answer.value is not None:
                return self._checked(answer, asked)
            if answer.is_uncounted:
                raise UnknownSize(_UNKNOWN_VALUE)
            question = answer.line
            if answer.is_of_data and (found := self._data_answer(asked)) is not None:
                return found
        if known is None:
            if func is torch.ops.aten._local_scalar_dense.default and self._is_size(args[0]):
                return self._data_size(operands[0])
            number = self.guards.number(args[0].dtype) if func is torch.ops.aten._local_scalar_dense.default else None
            if number is None:
                if isinstance(error, DynamicOutputShapeException):
                    raise Refusal(_unknown_shape(func)) from None
                asks = AsksForData(_TOO_MANY if question and self.data_sizes.has_all_answers else _UNKNOWN_VALUE)
                asks.question = question
                raise asks from None
            return number
        by_register = dict(zip(operands, known, strict=True))
        real = tree_map_only(torch.Tensor, lambda tensor: by_register[self.register(tensor)], (args, kwargs))
        with no_modes():
            results = func(*real[0], **real[1])
        return tree_map_only(torch.Tensor, self._made_anew, results)

    def _made_anew(self, tensor: torch.Tensor) -> torch.Tensor:
        """A constant that the program makes in each run, without its data."""
        number = self.constant(tensor)
        self.fresh.add(number)
        return self.tensors[number]

    def _of_finite(self, func: Any, register: int) -> bool | None:
        """The answer where numbers are finite. A buffer that the call changes may not be finite at first, as the least
        number that an observer has seen."""
        if func is EQUAL or self.held.has_answer(register):
            return None
        return answer_of_finite(register, self.calls, self.tensors)

    def _is_size(self, tensor: torch.Tensor) -> bool:
        """Whether a number that Python asks for may be a size. On the way to an error it is not."""
        return is_integer(tensor.dtype) and self.guards.is_settled()

    def _is_late(self, tensor: torch.Tensor) -> bool:
        """Whether a number that Python asks for is no size until Python needs it."""
        may_be = self.data_sizes.are_late and tensor.numel() == 1 and self._is_size(tensor)
        return may_be and self.data_of(tensor) is None

    def _data_size(self, register: int) -> int:
        """The integer in a tensor, which data decides."""
        known = known_integer(register, *self._known_integers())
        if known is not None:
            return known
        try:
            found, told = self.data_sizes.value(register, len(self.calls), self.line())
        except UnknownSize:
            asked = UnknownSize(_UNKNOWN_VALUE)
            asked.is_integer = True
            raise asked from None
        self._check(told)
        return found

    def _known_integers(self) -> tuple[Any, ...]:
        """What integers follow from (known_integers.py)."""
        return self.calls, self.tensors, self.data_sizes.places, self.data_sizes.told

    def _data_answer(self, register: int) -> bool | None:
        """The bool in a tensor, which data decides; None if the program asks too often."""
        try:
            answer = self.data_sizes.answer(register, len(self.calls), self.line())
        except UnknownSize:
            if self.data_sizes.has_known and not self.guards.of_changed:
                return self.guards.try_both()
            raise UnknownSize(_UNKNOWN_VALUE) from None
        if answer is None:
            return None
        found, told = answer
        if not told and not self.guards.of_changed:
            self.guards.note_given(found)
        self.answered.note(register, found)
        self._check(told)
        return found

    def size(self, register: int, dimension: int | str) -> tuple[list[Call], int]:
        """The calls that give a tensor's size, or with "value" or "answer" what is in it, and the register of what they
        give: a row of one number."""
        aten = torch.ops.aten
        tensor = self.tensors[register]
        with self.fake_mode:
            if not isinstance(dimension, int):
                given = self.add(torch.empty((), dtype=torch.int64, device=tensor.device))
            else:
                given = self.add(torch.empty(tensor.dim(), dtype=torch.int64, device="cpu"))
            number = self.add(torch.empty(1, dtype=torch.int64, device=self.tensors[given].device))
        if not isinstance(dimension, int):
            first = Call(aten._to_copy.default, [Register(register), torch.int64, *[DEFAULT] * 5], [given])
            return [first, Call(aten.view.default, [Register(given), [1]], [number])], number
        first = Call(aten._shape_as_tensor.default, [Register(register)], [given])
        return [first, Call(aten.slice.Tensor, [Register(given), 0, dimension, dimension + 1, 1], [number])], number

    def _check(self, told: Sequence[Told]) -> None:
        """Have the program check sizes that the run is told: what Python makes of another size may lead to others, and
        what fits need not be the data's."""
        for one in told:
            if one.is_guessed:
                self.held.size(one.place)  # which notes what it follows from
            calls, number = self.size(one.place.register, one.place.dimension)
            is_equal = self._like(number)
            message = (_GUESSED.format(one.size) if one.is_guessed else _MISCOUNTED) + in_line(one.place.line)
            self.calls += [
                *calls,
                Call(torch.ops.aten.eq.Scalar, [Register(number), one.size], [is_equal]),
                Call(torch.ops.aten._assert_async.msg, [Register(is_equal), message], []),
            ]

    def _bounds(self, tensor: torch.Tensor) -> tuple[float, ...]:
        return bounds(self.register(tensor), self.calls, self.tensors)

    def _equal(self, a: int, b: int) -> int:
        """The register of whether two are equal."""
        with self.fake_mode:
            each = self.add(torch.empty_like(self.tensors[a], dtype=torch.bool))
            register = self.add(torch.empty((), dtype=torch.bool, device=self.tensors[a].device))
        self.calls += is_equal(a, b, each, register)
        return register

    def _checked(self, answer: Answer, register: int) -> bool | None:
        """The answer to a question, with calls that check it."""
        if answer.error == FOR_MESSAGES:
            return answer.value
        if answer.value is not None:
            self.answered.note(register, answer.value)
        self.calls += checks(answer, register, self._like(register))
        return answer.value


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else 0


def _refuse_layouts(func: Any, tensors: Any) -> None:
    for tensor in tree_leaves(tensors):
        if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided:
            layout = str(tensor.layout).removeprefix("torch.")
            raise Refusal(
                f"{func.name()} has a tensor of the layout {layout}, which a graph does not take: PyNative mode does"
            )


def unknown(what: str) -> str:
    """The words of a refusal of what follows from data."""
    return f"{what} that depends on data, which a graph does not know: PyNative mode does"


def _unknown_shape(func: Any) -> str:
    return unknown(f"{func.name()} asks for a shape")


_MISCOUNTED = (
    "a size that depends on data follows from another one in a way that a graph does not know: PyNative mode does"
)
_GUESSED = (
    "a size that depends on data was taken to be {}, with which the program fits together, and is another one now: "
    "PyNative mode takes it as it is"
)
_TOO_MANY = (
    f"Python asks more than {MOST_ANSWERS} times (`if`, `while` ...) what depends on data, as a loop does, which a "
    "graph does not follow: PyNative mode does"
)
_UNKNOWN_VALUE = unknown("Python (`if`, `int`, `.item()` ...) asks for a value")


def _written(func: Any, arguments: list[Any]) -> Iterator[int]:
    schema = func._schema.arguments
    named = {a.name: value for a, value in zip(schema, arguments, strict=True)}
    trains = "backward" not in func.name() and any(named.get(name) is True for name in _TRAINING)
    for argument, value in zip(schema, arguments, strict=True):
        declared = argument.alias_info is not None and argument.alias_info.is_write
        if declared or (trains and argument.name in _HIDDEN_WRITES):
            yield from (register.number for register in registers(value))
