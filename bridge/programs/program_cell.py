"""A Cell whose call is one program."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import mindspore as ms
import torch

from bridge import _mindspore
from bridge.primitive.tensors import from_torch
from bridge.programs.program import Program
from bridge.programs.set_data import follow

_DTYPES = {"fp16": torch.float16, "fp32": torch.float32, "bf16": torch.bfloat16}
_INSTEAD = {
    "train": "MindSpore's name is set_train",
    "eval": "MindSpore's name is set_train, with False",
    "parameters": "MindSpore's names are trainable_params and get_parameters",
    "named_parameters": "MindSpore's name is parameters_and_names",
    "zero_grad": "mindspore.value_and_grad and bridge.value_and_grad give gradients, which nothing adds up",
    "half": "mixed precision is to_float(mindspore.float16)",
    "bfloat16": "mixed precision is to_float(mindspore.bfloat16)",
    "forward": "call the Cell",
    "cuda": "mindspore.set_device chooses where tensors are",
}


class ProgramCell(ms.nn.Cell):
    """A Cell that calls a program. Its Parameters are what the program keeps between calls.

    Attributes:
        program: what it calls.
        program_parameters: the names of the Parameters that are the program's. A derived class may have others.
    """

    program: Program
    program_parameters: Sequence[str] = ()
    _is_followed = True
    _names_of_attributes: Collection[str] = ()  # those Parameters' names that Cells use for something else
    # What a copy makes anew.
    _not_copied = frozenset(("program", "program_parameters", "_is_followed", "_names_of_attributes"))

    def __init__(self) -> None:
        super().__init__()
        _mindspore.is_one_operator(ProgramCell)

    def take_mode(self, is_training: bool) -> None:
        """Be in the mode of what the program runs, and leave its parts in theirs: some may be frozen."""
        self.__dict__["_is_followed"] = False
        self.set_train(is_training)
        self.__dict__["_is_followed"] = True

    def call_from_now_on(self, program: Program) -> None:
        """Call this program, and have its Parameters instead of those before."""
        self.program = program
        self.have_parameters(program.state.parameters)

    def have_parameters(self, parameters: Mapping[str, ms.Parameter]) -> None:
        """Have these Parameters for the program's, and keep those that a class derived from this one has."""
        for name in self.program_parameters:
            del self._params[name]
        # insert_param_to_cell refuses these names. The attributes stay the Cell's.
        self.__dict__["_names_of_attributes"] = {name for name in parameters if hasattr(self, name)}
        self._params.update(parameters)
        self.__dict__["program_parameters"] = list(parameters)

    def __setattr__(self, name: str, value: Any) -> None:
        if type(value) is bool and type(self.__dict__.get(name)) is bool:  # MindSpore sets four in each recorded call
            return object.__setattr__(self, name, value)
        self._refuse_other(name, value)
        # MindSpore writes to such an attribute, as to `phase`, and takes the name for that of the Parameter.
        above: Any = ms.nn.Cell if name in self._names_of_attributes else ProgramCell
        super(above, self).__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._refuse_other(name, None)
        super().__delattr__(name)

    def insert_param_to_cell(self, param_name: str, param: Any, check_name_contain_dot: bool = True) -> None:
        """As in any Cell, but under a name that the program does not have."""
        self._refuse_other(param_name, param)
        super().insert_param_to_cell(param_name, param, check_name_contain_dot)

    def insert_child_to_cell(self, child_name: str, child_cell: Any) -> None:
        """As in any Cell, but under a name that the program does not have."""
        self._refuse_other(child_name, child_cell)
        super().insert_child_to_cell(child_name, child_cell)

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """As in any Cell, but under a name that the program does not have."""
        self._refuse_other(name, tensor)
        super().register_buffer(name, tensor, persistent)

    def _refuse_other(self, name: str, value: Any) -> None:
        """Raise AttributeError if the program has something of this name, and would not see what the Cell gets."""
        is_own = name in self.__dict__ or hasattr(type(self), name)
        is_parameter = isinstance(value, ms.Parameter)
        if is_own and not is_parameter:
            return  # MindSpore sets several in each call of a graph
        if name in self.program_parameters:
            is_data = isinstance(value, ms.Tensor) and not is_parameter
            if value is not self._params[name] and not is_data:
                raise AttributeError(
                    f"{type(self).__name__}.{name} stays the Parameter that shares its memory with PyTorch's: give it "
                    f"other data by set_data, or {self._how_to_change(name)}"
                )
        elif not is_own and self._is_of_program(name):
            raise AttributeError(
                f"{type(self).__name__} takes no other {name}: its `module` has it, which is PyTorch's; "
                f"{self._how_to_change(name)}"
            )

    def _is_of_program(self, name: str) -> bool:
        """Whether what the program runs has something of this name, besides its Parameters."""
        return False

    def _how_to_change(self, name: str) -> str:
        """What to do in place of an assignment."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError as error:
            instead = self._instead(name)
            if instead:
                error.args = (f"{type(self).__name__} has no {name}: {instead}",)
            raise

    def _instead(self, name: str) -> str:
        """What to write in place of an attribute that it does not have; empty if nothing is known of it."""
        return _INSTEAD.get(name, "")

    def construct(self, *args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self.program(*args, **kwargs)

    def cells_and_names(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, ms.nn.Cell]]:
        """As in any Cell. All of MindSpore's lists of Parameters, `trainable_params` among them, come here first."""
        if "program" in self.__dict__:  # Cell.__init__ may come here too
            self.program.follow_between_calls()
        return super().cells_and_names(*args, **kwargs)  # type: ignore[no-any-return]

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """As in any Cell, from PyTorch's tensors too. MindSpore takes a name with a dot for that of a Cell's part."""
        own = {prefix + name for name in self._params}
        for key in own & state_dict.keys():
            if isinstance(state_dict[key], torch.Tensor):
                state_dict[key] = from_torch(state_dict[key])
        unexpected: list[str] = []
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected, error_msgs)
        unexpected_keys += [key for key in unexpected if key not in own]
        for name, parameter in self._params.items():
            if prefix + name in state_dict:
                follow(parameter)

    def on_torch(self, *args: Any, **kwargs: Any) -> Any:
        """What it calls, on PyTorch's tensors."""
        return self.program.on_torch(*args, **kwargs)

    def add_flags(self, **flags: Any) -> None:
        """Pass on what is set for this Cell or for one around it: the mode (`set_train`) and the dtype (`to_float`)."""
        super().add_flags(**flags)
        if type(self).construct is ProgramCell.construct:
            _mindspore.leave_inputs(self)  # torch.autocast casts for single operators
        if "program" not in self.__dict__:  # Cell.__init__ comes here too
            return
        if "training" in flags and self._is_followed:
            self._follow_mode(flags["training"])
        for flag, dtype in _DTYPES.items():
            if flags.get(flag):
                self._follow_dtype(dtype)

    def _follow_mode(self, is_training: bool) -> None:
        """Put what the program runs in this mode."""
        raise NotImplementedError

    def _follow_dtype(self, dtype: torch.dtype) -> None:
        """Have the program run in this dtype, or refuse it."""
        raise NotImplementedError

    def __setstate__(self, state: Any) -> None:
        """Have what `_state` gave for another Cell."""
        attributes, parameters, names, self.program.precision = state
        _mindspore.give_attributes(self, attributes)
        self._params.update(parameters)
        for parameter, name in zip(self.program_parameters, names, strict=True):
            self._params[parameter].name = name

    def _state(self) -> Any:
        """What a copy has besides the program: attributes, hooks, Cells and Parameters of its own, and all names."""
        attributes = {
            name: value for name, value in _mindspore.attributes_of(self).items() if name not in self._not_copied
        }
        own = {name: value for name, value in self._params.items() if name not in self.program_parameters}
        names = [self._params[name].name for name in self.program_parameters]
        return attributes, own, names, self.program.precision
