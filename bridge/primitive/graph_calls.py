"""What a call becomes in graph mode: planned in Python, once, while MindSpore compiles the graph.

MindSpore compiles Python by evaluating every function, and every step of a loop, as a graph of its own, which takes
milliseconds each. So a call has one step to compile, a `graph_call`: MindSpore passes all that is known of the
arguments to a plan, and ms_ext/mindspore/python/graph_call.cpp makes the nodes of the expression that the plan gives.
An expression is an argument or a part of one, a Read of such a part, a Call, an Item of a call's results, a tuple of
expressions, or a constant.
"""

from __future__ import annotations

import functools
import pathlib
import re
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
from mindspore import ops

from bridge import _mindspore
from bridge.call.arguments import NumberMark, TensorMark
from bridge.primitive import direct
from bridge.primitive.launch_errors import Words

_PACKAGE = str(pathlib.Path(__file__).parent.parent)


class Part:
    """An argument, or a part of one.

    Args:
        path: the argument's position, and then positions in tuples and lists and keys of dictionaries.
    """

    def __init__(self, path: tuple[Any, ...]) -> None:
        self.path = path


class GraphTensor(Part, TensorMark):
    """A tensor of a graph that is being compiled.

    Args:
        path: see Part.
        shape: with -1 for an unknown dimension; (-2,) if the rank is unknown.
        dtype: MindSpore's.
        known_as: a number that is the same for two tensors if they are one. It may also be the same for two results of
            calls that are alike.
    """

    def __init__(self, path: tuple[Any, ...], shape: tuple[int, ...], dtype: Any, known_as: int = 0) -> None:
        super().__init__(path)
        self.shape = shape
        self.dtype = dtype
        self.known_as = known_as


class Call:
    """A call in the graph.

    Args:
        function: a primitive, or a function for MindSpore to compile.
        arguments: expressions.
    """

    def __init__(self, function: Any, arguments: Sequence[Any]) -> None:
        self.function = function
        self.arguments = arguments


class Computed(Call, TensorMark):
    """A tensor that the graph makes of something else.

    Args:
        function, arguments: see Call.
        shape, dtype: see GraphTensor.
    """

    def __init__(self, function: Any, arguments: Sequence[Any], shape: tuple[int, ...], dtype: Any) -> None:
        super().__init__(function, arguments)
        self.shape = shape
        self.dtype = dtype


class GraphNumber(Part, NumberMark):
    """A number that is known only when the graph runs; or a tuple, if its length is.

    Args:
        path: see Part.
        type: see NumberMark.
    """

    def __init__(self, path: tuple[Any, ...], type: str) -> None:
        Part.__init__(self, path)
        NumberMark.__init__(self, type)

    def as_tensor(self) -> TensorMark:
        dtype = getattr(ms, "bool_" if self.type == "Bool" else self.type.lower())
        return Computed(ops.scalar_to_tensor, [self, dtype], (), dtype)

    def as_length(self) -> TensorMark:
        return Computed(ops.zeros, [(self, 0), ms.bool_], (-1, 0), ms.bool_)


class Read:
    """A part in a tuple that a primitive takes. Of a Parameter it is the data that it has at this point of the program;
    without this, MindSpore takes the data from whenever the primitive runs."""

    def __init__(self, part: Part) -> None:
        self.part = part


class Item:
    """One of the results of a call that gives several."""

    def __init__(self, of: Call, index: int) -> None:
        self.of = of
        self.index = index


def graph_call(name: str, plan: Callable[..., Any]) -> Any:
    """What MindSpore's compiler can call.

    Args:
        name: for MindSpore's dumps of graphs.
        plan: a method, called with what is known of each argument: Python values, nested as in the program, with a
            GraphTensor or GraphNumber for what has no value yet. It gives an expression. The error that it raises gets
            the user's line.
    """
    method = weakref.WeakMethod(plan)  # its object holds this, and Python's garbage collector does not see that

    def planned(*arguments: Any) -> Any:
        found = method()
        assert found is not None
        try:
            return found(*arguments)
        except Exception as error:
            add_lines(error, users_lines())
            raise

    return direct.graph_call(name, planned)


class PlannedBprop(_mindspore.CompiledAsMethod):
    """A `bprop` that is planned in graph mode.

    Attributes:
        name: of what it differentiates, for MindSpore's dumps of graphs.
    """

    name: str

    def _call_in_graph(self, inputs, out, dout):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return self._graph_call(inputs, out, dout)

    @functools.cached_property
    def _graph_call(self) -> Any:
        return graph_call(f"gradient of {self.name}", self._plan_in_graph)

    def _plan_in_graph(self, inputs: list[Any], out: Any, dout: Any) -> Any:
        """The expression of the gradients of `inputs`, from the results and their gradients."""
        raise NotImplementedError


def add_lines(error: Exception, lines: str) -> None:
    """Have an error say these lines too."""
    said = re.sub(r"('|\bnot )FakeTensor\b", r"\1Tensor", str(error))  # a capture's tensors stand for others
    error.args = (Words(f"{said}{lines}"),)


def lines_of_call(graph: Any, words: str) -> str:
    """Where the user's program has the call whose error says these words; empty if that is not known.

    MindSpore reads a wrapper once in a compilation: all calls of one wrapper have the place of one of them.

    Args:
        graph: what MindSpore has compiled.
        words: what the launch says (ms_ext/launch.cpp): what errors call the operator, and the error's words.
    """
    name, own = words.partition(": ")[0], f"In file {_PACKAGE}"
    calls = direct.places(graph, name.removeprefix("aten."))
    found = [next((place.rstrip() for place in places if not place.startswith(own)), "") for places in calls]
    lines = [*dict.fromkeys(filter(None, found))]
    if lines and len(found) > len(lines):
        lines.append(f"another call of {name}")
    return "\n\nor ".join(lines)


def users_lines() -> str:
    """Where in the user's program MindSpore is, innermost last."""
    frames = re.findall(r"^# \d+ (In file (.+?):.*(?:\n(?!# ).*)*)", direct.graph_location(), re.MULTILINE)
    return "".join(f"\n\n{frame.rstrip()}" for frame, file in frames if not file.startswith(_PACKAGE))
