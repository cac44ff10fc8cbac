"""A PyTorch module as a Cell."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NoReturn

import mindspore as ms
import torch

from bridge.primitive.placement import check_device
from bridge.primitive.tensors import wait_for_pytorch
from bridge.programs.program import Program
from bridge.programs.program_cell import ProgramCell
from bridge.programs.state import pair_by_names


class ModuleCell(ProgramCell):
    """A Cell that runs a PyTorch module. See `cell`."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.run(module)
        self.take_mode(module.training)

    def run(self, module: torch.nn.Module) -> None:
        """Run this module from now on, with its parameters and buffers."""
        self.call_from_now_on(Program(module))

    @property
    def module(self) -> torch.nn.Module:
        """The PyTorch module, whose parameters and buffers share their memory with this Cell's Parameters."""
        module = self.program.function
        assert isinstance(module, torch.nn.Module)
        return module

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.module!r})"

    def __getitem__(self, index: Any) -> Any:
        """Raise a TypeError: there are no items. Python's `for` and `in` come here too."""
        name = type(self).__name__
        if not hasattr(type(self.module), "__getitem__"):
            raise TypeError(f"'{name}' object is not subscriptable")
        raise TypeError(
            f"{name} has no item {index!r}: its `module` does, which is PyTorch's: `.module[{index!r}]`. To compute "
            "with that, make a Cell of it"
        )

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """As a Cell has it. A device of PyTorch's has to be MindSpore's, which has all tensors.

        Raises:
            ValueError: the device is another one.
            TypeError: there is a dtype, which Cells of MindSpore 2.8 and 2.9 do not take.
        """
        to_others: Any = getattr(super(), "to", self._refuse_dtype)
        given = {"device": args[0], **kwargs} if len(args) == 1 and _is_device(args[0]) else kwargs
        if not _is_device(given.get("device")):
            return to_others(*args, **kwargs)
        check_device(f"{type(self).__name__}.to", given["device"])
        others = {name: value for name, value in given.items() if name not in ("device", "non_blocking")}
        return to_others(**others) if others else self

    def apply(self, fn: Callable[[Any], Any]) -> Any:
        """Call a function with each of PyTorch's modules, as PyTorch does, and with this Cell last."""
        self.program.follow_between_calls()
        self.program.follow()
        self.module.apply(fn)
        wait_for_pytorch()
        fn(self)
        return self

    def _refuse_dtype(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError(f"{type(self).__name__}.to takes a device in this MindSpore; to_float takes a dtype")

    def _instead(self, name: str) -> str:
        known = super()._instead(name)
        if known or "program" not in self.__dict__:
            return known
        module = self.module
        if not _is_registered(module, name) and (name.startswith("_") or not hasattr(module, name)):
            return ""
        found = f"its `module` does, which is PyTorch's: `.module.{name}`"
        is_own_code = not hasattr(torch.nn.Module, name) and isinstance(getattr(type(module), name, None), FunctionType)
        return (
            f"{found}. To compute with it, make a Cell of a module whose `forward` calls that" if is_own_code else found
        )

    def _is_of_program(self, name: str) -> bool:
        if "program" not in self.__dict__:
            return False
        if name.startswith("_") or (name != "forward" and hasattr(torch.nn.Module, name)):
            return _is_registered(self.module, name)  # other such names are each framework's own
        return hasattr(self.module, name)

    def _how_to_change(self, name: str) -> str:
        return f"change the module before bridge.cell: `module.{name} = ...`, then `bridge.cell(module)`"

    def _follow_mode(self, is_training: bool) -> None:
        self.module.train(is_training)

    def _follow_dtype(self, dtype: torch.dtype) -> None:
        self.program.precision = dtype

    @classmethod
    def of(cls, module: torch.nn.Module) -> ModuleCell:
        """The Cell of this class for a module, without what a derived class does when one is made."""
        made = cls.__new__(cls)
        ModuleCell.__init__(made, module)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> ModuleCell:
        parameters = self._followed_parameters()
        module = copy.deepcopy(self.module, memo)
        copied_before = {name: memo[id(one)] for name, one in parameters.items() if id(one) in memo}
        copied = _restored(self._class_of_copies(), module, copied_before)
        memo[id(self)] = copied
        memo.update((id(one), copied._params[name]) for name, one in parameters.items())
        copied.__setstate__(copy.deepcopy(self._state(), memo))
        return copied

    def __reduce__(self) -> Any:
        # The Parameters are there for Cells around this one, which may have them too.
        return _restored, (self._class_of_copies(), self.module, self._followed_parameters()), self._state()

    def _class_of_copies(self) -> type[ModuleCell]:
        """The class whose `of` makes them."""
        return type(self)

    def _followed_parameters(self) -> dict[str, ms.Parameter]:
        """The program's Parameters, after the module has what MindSpore has changed in them since the last call."""
        self.program.follow_between_calls()
        self.program.follow()
        return {name: self._params[name] for name in self.program_parameters}


def _is_device(value: Any) -> bool:
    """Whether it is PyTorch's name of one."""
    return isinstance(value, (str, torch.device)) and str(value).partition(":")[0] in ("cpu", "cuda")


def _is_registered(module: torch.nn.Module, name: str) -> bool:
    """Whether it is a part, a parameter or a buffer of the module."""
    return any(name in place for place in (module._modules, module._parameters, module._buffers))


def _restored(kind: type[ModuleCell], module: torch.nn.Module, parameters: Mapping[str, ms.Parameter]) -> ModuleCell:
    """The Cell of a module that is a copy, with those Parameters that are copied already."""
    pair_by_names(module, parameters)
    return kind.of(module)


def cell(module: torch.nn.Module) -> ModuleCell:
    """Make a Cell of a PyTorch module, which computes what the module computes, bit for bit, and trains in MindSpore.

        net = bridge.cell(torchvision.models.resnet18())
        loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
        ms.Model(net, loss, nn.Adam(net.trainable_params())).train(2, dataset)

    The module's parameters and buffers become Parameters under PyTorch's names. They share their memory with the
    module's: what an optimizer or a checkpoint changes in one of them changes in both.

    Args:
        module: any PyTorch module. The Cell runs it as it is, and begins in the mode (training or not) that it is in.

    Raises:
        TypeError: it is not a module, or a part of it is a Cell.
        ValueError: it has parameters without a shape, or without data.
        RuntimeError: the bridge was built for another MindSpore.
    """
    if not isinstance(module, torch.nn.Module):
        given = f"the class {module.__name__}" if isinstance(module, type) else type(module).__name__
        if isinstance(module, ms.nn.Cell):
            given += ", which is a Cell"
        raise TypeError(f"bridge.cell takes a torch.nn.Module, not {given}")
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, ms.nn.Cell):
                where = f"{path}.{name}" if path else name
                raise TypeError(
                    f"bridge.cell takes a module of PyTorch's modules: {where} is a Cell, {type(value).__name__}, "
                    "which PyTorch does not run; a class of bridge.nn.Module has Cells and layers"
                )
    return ModuleCell(module)
