"""Own code that calls the bridge, as one operator."""

from __future__ import annotations

import copy
import functools
import pathlib
import traceback
from collections.abc import Callable
from typing import Any, TypeGuard

import mindspore as ms
import torch
from torch.utils import _pytree as pytree

from bridge.call import in_program
from bridge.programs import tree
from bridge.programs.named_constants import NamedConstants
from bridge.programs.program import Program
from bridge.programs.program_cell import ProgramCell
from bridge.programs.twin import Twins
from bridge.programs.written_down import TellsItself

_MINDSPORE = f"{pathlib.Path(ms.__file__).parent}/"
_BRIDGE = f"{pathlib.Path(__file__).parent.parent}/"


class Fused(TellsItself):
    """A function or Cell of MindSpore's that calls the bridge, as a function of PyTorch's tensors.

    Attributes:
        target: the function or Cell.
        user: what the user has called with it: the name in errors.
        twins: what it sees.
    """

    def __init__(self, target: Callable[..., Any], user: str) -> None:
        self.target = target
        self.user = user
        self.twins = Twins()
        self.twins.of(target)

    def told_apart_by(self) -> Any:
        return self.target

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with in_program.inside(), self.twins.followed():
                # All that the twin of a Cell with one program comes to is that.
                twin = self.target.on_torch if _is_one_program(self.target) else self.twins.of(self.target)
                result = self._outside(twin(*args, **kwargs))
        except Exception as error:
            where = _mindspores_caller(error)
            if where is None:
                raise
            raise RuntimeError(
                f"{self.user} takes the bridge's operators only, and this is one of MindSpore's: {where}\n{error}"
            ) from error
        if not tree.is_of_torch(result) and any(isinstance(leaf, ms.Tensor) for leaf in pytree.tree_leaves(result)):
            raise RuntimeError(
                f"{self.user}: the function gives a tensor that is MindSpore's: an operator of MindSpore's made it"
            )
        return result

    def _outside(self, result: Any) -> Any:
        """The result with what is no tensor as it is outside."""
        return result if tree.is_of_torch(result) else pytree.tree_map(self._own_of, result)

    def _own_of(self, leaf: Any) -> Any:
        return leaf if isinstance(leaf, torch.Tensor) else self.twins.own_of(leaf)


def _is_one_program(target: Any) -> TypeGuard[ProgramCell]:
    return (
        isinstance(target, ProgramCell)
        and isinstance(target.program, Program)  # which a lazy layer does not have yet
        and type(target).construct is ProgramCell.construct
    )


def _mindspores_caller(error: Exception) -> str | None:
    """The line that called MindSpore, if it is MindSpore that raised the error."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames[-1].filename.startswith(_MINDSPORE):
        return None
    callers = [frame for frame in frames if not frame.filename.startswith((_MINDSPORE, _BRIDGE))]
    return f"{callers[-1].filename}:{callers[-1].lineno}, {callers[-1].line}" if callers else "the function itself"


def _program(target: Callable[..., Any], name: str) -> Program:
    fused = Fused(target, "bridge.fuse")
    twins = fused.twins
    named = NamedConstants(target, twins.cells)
    return Program(fused, name=name, state=twins.tensors, modules=twins.modules, cells=twins.cells, named=named)


class FusedCell(ProgramCell):
    """A Cell whose `construct` is one operator. See `fuse`."""

    _not_copied = ProgramCell._not_copied | {"_block"}

    def __init__(self, block: ms.nn.Cell) -> None:
        super().__init__()
        self._block = [block]  # in a list, so that it is no Cell inside this one
        self.call_from_now_on(_program(block, type(block).__name__))
        self.take_mode(block.training)

    @property
    def block(self) -> ms.nn.Cell:
        """The Cell that it was made of, with the same Parameters."""
        return self._block[0]

    def _follow_mode(self, is_training: bool) -> None:
        self.block.set_train(is_training)

    def _follow_dtype(self, dtype: torch.dtype) -> None:
        raise RuntimeError("bridge.fuse: a fused Cell has no to_float; cast inside, with aten.to")

    def _how_to_change(self, name: str) -> str:
        return "change the Cell before bridge.fuse"

    def __deepcopy__(self, memo: dict[int, Any]) -> FusedCell:
        copied = FusedCell(copy.deepcopy(self.block, memo))
        memo[id(self)] = copied
        copied.__setstate__(copy.deepcopy(self._state(), memo))
        return copied


def refuse_torch_modules(name: str, target: Any) -> None:
    """Raise TypeError for a PyTorch module, whose parameters would be constants."""
    if isinstance(target, torch.nn.Module):
        kind = type(target).__name__
        raise TypeError(f"{name} takes a Cell or a function: bridge.cell makes a Cell of PyTorch's module {kind}")


def fuse(target: Any) -> Any:
    """Make one operator of your own code that calls the bridge: the same bits, in both modes.

        class Block(nn.Cell):
            def construct(self, x):
                return aten.gelu(aten.linear(aten.layer_norm(x, [64], self.scale, self.shift), self.weight))

        fast = bridge.fuse(Block())

        @bridge.fuse
        def normalized(x):
            return aten.div(x, aten.linalg_vector_norm(x))

    Inside, tensors are PyTorch's: the arguments, all results, and the Parameters and tensors of the Cell or of the
    function's closure and module, and of objects there. So their methods and `+` are PyTorch's too. Cells inside, those
    of `bridge.cell` too, run as parts of the operator.

    Args:
        target: a Cell, or a function, method or other callable. It calls the bridge's operators and no operators of
            MindSpore's.

    Returns:
        A Cell that has the Cell's Parameters, or a function.

    Raises:
        TypeError: it is neither.
        RuntimeError: a Cell in it has hooks. When it is called: it calls an operator of MindSpore's; the message has
            the line.
    """
    if isinstance(target, ms.nn.Cell):
        return FusedCell(target)
    refuse_torch_modules("bridge.fuse", target)
    if not callable(target):
        raise TypeError(f"bridge.fuse takes a Cell or a function, not {type(target).__name__}")
    program = _program(target, getattr(target, "__name__", type(target).__name__))
    return functools.update_wrapper(program, target, updated=())
