"""Every private name of MindSpore that the package uses: what it does, and in which releases it was seen.

A new release of MindSpore is met here and in ms_ext/mindspore/; no other file names what is private there. All names
were seen in 2.8, 2.9 and 2.10.
"""

from __future__ import annotations

import functools
import gc
import importlib
import inspect
import os
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple, cast

import mindspore
from mindspore import Parameter, Tensor, context, nn
from mindspore._c_expression import Cell_, MixedPrecisionType, typing
from mindspore.ops import primitive as _primitive
from mindspore.ops.composite import base as _composite
from mindspore.ops.composite.multitype_ops import getitem_impl
from mindspore.ops.function.grad import grad_func as _grad_func
from mindspore.train import amp

# A tensor's type, as inference returns it.
TensorType = typing.TensorType
# The class that every Parameter has: mindspore.Parameter and Tensor together.
ParameterTensor: type[Parameter] = Parameter._get_base_class(Tensor)
# What a graph that is being traced holds, or None.
jit_context = _primitive.jit_context
_pynative_executor = _primitive._pynative_executor
PyNativeExecutor: Any = type(_pynative_executor)
no_grad: Any = mindspore._no_grad
_cell_graph_executor = importlib.import_module("mindspore.nn.cell")._cell_graph_executor
# Whether PyNative mode records operators for a gradient.
is_recording: Callable[[], bool] = _pynative_executor.grad_flag
# Until PyNative mode has done what it was asked for; a GPU may still be at work.
wait: Callable[[], None] = _pynative_executor.sync


def wait_outside() -> None:
    """`wait`, but in a thread of MindSpore's own, which would wait for itself.

    `threading.current_thread` would leave an object in such a thread, which ends while MindSpore holds the GIL.
    """
    this = threading.get_ident()
    if any(t.ident == this and not isinstance(t, threading._DummyThread) for t in threading.enumerate()):
        wait()


def device_target() -> str:
    """What mindspore.get_context gives for "device_target", in a fortieth of its time."""
    return context._context().get_param(context.ms_ctx_param.device_target)


def stop_recording() -> None:
    """What PyNative mode does after an error in one of its own operators: else it goes on recording."""
    if _pynative_executor.requires_grad():
        _pynative_executor.clear_res()


def stop_recordings_that_fail() -> None:
    """Have PyNative mode stop recording when a function that it differentiates raises an error, or a Cell that begins
    to record (`set_grad`, as of nn.TrainOneStepCell's network): else all later gradients would be those of a
    gradient."""
    # The first name is that of 2.9 and 2.10, the second that of 2.8.
    places = [(_composite, "_pynative_func_grad_forward"), (_grad_func, "_pynative_func_grad_forward")]
    places += [(kind, "_pynative_forward_run") for kind in (_composite.GradOperation, _composite._Grad)]
    for place, name in places:
        if name in vars(place):
            setattr(place, name, _stopping(vars(place)[name]))
    nn.Cell._complex_call = _ending(nn.Cell._complex_call)


class _Ended(threading.local):
    """What this thread has recorded last: of which function or Cell, and its result. If there is no gradient of that:
    of what, and why not, for all results and for the first."""

    recorded: Any = None
    result: weakref.ref[Tensor] | None = None
    refused: Any = None
    reasons: tuple[str, str] = "", ""


def begin_gradients_with(ones_like: Callable[[Tensor], Tensor | None], why_none: Callable[[Any], str]) -> None:
    """Have PyNative mode begin the gradient of one tensor with these ones, if they are not None. Its own operator takes
    100 us for them on a CPU, and three copies from the host and two waits on a GPU. 2.8's GradOperation drops the
    tensor before: there it is left alone.

    Args:
        ones_like: gives the ones.
        why_none: says why there is no gradient of a result that is no tensor of MindSpore's, for a TypeError; empty if
            there may be one.
    """
    ended = _Ended()
    check_run, end_graph, grad = PyNativeExecutor.check_run, PyNativeExecutor.end_graph, PyNativeExecutor.grad

    @functools.wraps(check_run)
    def checking(self: Any, *args: Any, **kwargs: Any) -> Any:
        ended.recorded = ended.result = None  # it says whether the call was recorded before
        return check_run(self, *args, **kwargs)

    @functools.wraps(end_graph)
    def ending(self: Any, recorded: Any, output: Any, *args: Any, **kwargs: Any) -> None:
        end_graph(self, recorded, output, *args, **kwargs)
        ended.recorded, ended.result = recorded, weakref.ref(output) if type(output) is Tensor else None
        ended.refused = None
        if ended.result is None:
            ended.reasons = why_none(output), why_none(output[0]) if isinstance(output, tuple) and output else ""
            ended.refused = recorded if any(ended.reasons) else None

    @functools.wraps(grad)
    def given_ones(self: Any, recorded: Any, operation: Any, *args: Any) -> Any:
        is_last, result, refused = ended.recorded is recorded, ended.result and ended.result(), ended.refused
        ended.recorded = ended.result = ended.refused = None
        if refused is recorded and (reason := ended.reasons[getattr(operation, "has_aux", False)]):
            self.clear_res()
            raise TypeError(reason)
        if not is_last or result is None or operation.sens_param or (ones := ones_like(result)) is None:
            return grad(self, recorded, operation, *args)
        return grad(self, recorded, _with_first_gradient(operation), *args, ones)

    PyNativeExecutor.check_run, PyNativeExecutor.end_graph, PyNativeExecutor.grad = checking, ending, given_ones


class _Asked(threading.local):
    """What this thread is about to record, and the positions of the arguments whose gradients are asked for."""

    recorded: Any = None
    positions: frozenset[int] = frozenset()


def check_weights(check: Callable[[Any], None]) -> None:
    """Have a function called with each weight that `mindspore.grad` and `value_and_grad` are given in a list."""

    def checking(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def made(self: Any, fn: Any, weights: Any = None, *grad_position: Any) -> Any:
            for weight in weights if isinstance(weights, (list, tuple)) else ():
                check(weight)
            return make(self, fn, weights, *grad_position)

        return made

    for kind in (_composite.GradOperation, _composite._Grad):
        kind.__call__ = checking(kind.__call__)


def record_only_what_is_asked(leave_out: Callable[[Sequence[Tensor]], None]) -> None:
    """Have `leave_out` take the arguments that PyNative mode records a function for, but whose gradients nobody asks
    for: MindSpore takes all arguments for such that need one. Where one recording is inside another, it is left alone,
    and so are arguments that have hooks.
    """
    asked = _Asked()
    new_graph = PyNativeExecutor.new_graph

    @functools.wraps(new_graph)
    def recording(self: Any, recorded: Any, *args: Any, **kwargs: Any) -> Any:
        found = new_graph(self, recorded, *args, **kwargs)
        if asked.recorded is recorded and recorded is not None:
            asked.recorded = None
            given = (*args, *kwargs.values())
            wanted = {id(arg) for i, arg in enumerate(given) if i in asked.positions}  # one may be given twice
            others = [arg for arg in given if type(arg) is Tensor and id(arg) not in wanted and not arg.hooks()]
            if others:
                leave_out(others)
        return found

    def telling(make: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(make)
        def made(self: Any, fn: Any, weights: Any = None, *grad_position: Any) -> Any:
            differentiated = make(self, fn, weights, *grad_position)
            if not self.pynative_ or self.get_all:
                return differentiated

            @functools.wraps(differentiated)
            def call(*args: Any, **kwargs: Any) -> Any:
                if is_recording():
                    return differentiated(*args, **kwargs)
                asked.recorded, asked.positions = fn, _positions_asked(self, *grad_position)
                try:
                    return differentiated(*args, **kwargs)
                finally:
                    asked.recorded = None

            return call

        return made

    PyNativeExecutor.new_graph = recording
    for kind in (_composite.GradOperation, _composite._Grad):
        kind.__call__ = telling(kind.__call__)


def _positions_asked(operation: Any, grad_position: int | tuple[int, ...] = 0) -> frozenset[int]:
    """Of which arguments this operation of MindSpore's gives gradients, where it does not give those of all."""
    if getattr(operation, "get_by_position", False):
        return frozenset(grad_position if isinstance(grad_position, tuple) else (grad_position,))
    return frozenset() if operation.get_by_list else frozenset((0,))


def _with_first_gradient(operation: Any) -> Any:
    """The same, but it takes the gradient of the result from its caller."""
    kind: Callable[..., Any] = type(operation)
    return _made_with_first_gradient(kind, tuple(getattr(operation, name) for name in _other_flags(kind)))


@functools.cache
def _made_with_first_gradient(kind: Callable[..., Any], others: tuple[bool, ...]) -> Any:
    return kind(**dict(zip(_other_flags(kind), others, strict=True)), sens_param=True)


@functools.cache
def _other_flags(kind: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(kind).parameters if name != "sens_param"]


def suggest_keys() -> None:
    """Have the compiler say how a graph takes what a dictionary has: a dataclass of a module's is one there."""
    own = mindspore.is_invalid_or_jit_forbidden_method

    def is_invalid(value: Any, kind: str, name: str) -> bool:
        try:
            return own(value, kind, name)
        except AttributeError as error:
            if kind == "Dictionary":
                error.args = (f'{error}: a graph has a dictionary here, whose values are taken by keys, as ["{name}"]',)
            raise

    mindspore.is_invalid_or_jit_forbidden_method = is_invalid


def leave_calls_alone() -> None:
    """Have `mindspore.rewrite` leave what is compiled for its method as it leaves functions of installed packages, from
    wherever the package runs: it has no source of a function."""
    parser: Any = importlib.import_module("mindspore.rewrite.parsers.assign_parser")
    own = parser.is_third_party
    parser.is_third_party = lambda function: isinstance(function, CompiledAsMethod) or own(function)


@functools.cache
def is_one_operator(cell: type[nn.Cell]) -> None:
    """Have `mindspore.rewrite`, and so `auto_mixed_precision`, take a Cell of this class for one operator instead of
    reading its source."""
    importlib.import_module("mindspore.rewrite.common.namespace")._subtree_black_list.append(cell)
    rewrite = amp._auto_mixed_precision_rewrite  # which reads a whole network's source before it asks for that list

    @functools.wraps(rewrite)
    def rewrite_others(network: nn.Cell, *args: Any, **kwargs: Any) -> nn.Cell:
        return network if isinstance(network, cell) else rewrite(network, *args, **kwargs)  # type: ignore[no-any-return]

    amp._auto_mixed_precision_rewrite = rewrite_others


def around_set_data(given: Callable[[Parameter, Any], Any], follow: Callable[[Parameter], None]) -> None:
    """Have functions called with each Parameter that is given other data: one that gives the data for that, and one
    after it."""
    own = Parameter.set_data

    @functools.wraps(own)
    def set_data(self: Parameter, data: Any, *args: Any, **kwargs: Any) -> Any:
        found = own(self, given(self, data), *args, **kwargs)
        follow(self)
        return found

    Parameter.set_data = set_data  # type: ignore[method-assign]


def after_making_optimizers(call: Callable[[nn.Optimizer], None]) -> None:
    """Have a function called with each optimizer that is made."""
    own = nn.Optimizer.__init__

    @functools.wraps(own)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        call(self)

    nn.Optimizer.__init__ = made  # type: ignore[method-assign]


def after_set_dtype(follow: Callable[[Parameter], None]) -> None:
    """Have a function called with each Parameter that was given another dtype."""
    own = Parameter.set_dtype

    @functools.wraps(own)
    def set_dtype(self: Parameter, dtype: Any) -> Any:
        before = self.dtype
        found = own(self, dtype)
        if self.dtype != before:
            follow(self)
        return found

    Parameter.set_dtype = set_dtype


def jit_executor() -> Any:
    """The class that calls functions of mindspore.jit. MindSpore 2.10 has it elsewhere."""
    return importlib.import_module(type(_cell_graph_executor).__module__)._JitExecutor


def _api() -> Any:
    """MindSpore's module that has that class."""
    return sys.modules[jit_executor().__module__]


def have_jit_compile(kind: type) -> None:
    """Have `mindspore.jit` compile objects of a class as it does functions. It gives others back, with a warning."""
    api = _api()
    own = api._jit_ast

    @functools.wraps(own)
    def jit_ast(*args: Any, **kwargs: Any) -> Any:
        wrap = own(*args, **kwargs)
        return lambda function: wrap(_as_function(function) if isinstance(function, kind) else function)  # type: ignore[arg-type]

    api._jit_ast = jit_ast


def _as_function(called: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args, **kwargs):  # type: ignore[no-untyped-def]  # compiled by MindSpore
        return called(*args, **kwargs)

    return call


_FEW_CORES = 2  # with these MindSpore has no such threads


@functools.cache
def launch_where_graphs_run() -> None:
    """Have graphs infer shapes and launch kernels on the thread that runs them, unless the user's own setting says
    otherwise. With many cores MindSpore has threads for both. They take memory that a kernel brings for none, and
    refuse Parameters without elements. MindSpore asks for this variable when it runs its first graph, and prints it."""
    name = "MS_DEV_RUNTIME_CONF"
    own = os.environ.get(name, "")
    if "pipeline:" not in own and (os.cpu_count() or 1) > _FEW_CORES:
        os.environ[name] = f"{own},pipeline:false".lstrip(",")


class _Following:
    """What has to be followed before a graph runs. That is looked for where the graph has it: a look at all that a
    process has takes longer with each network of it.

    Attributes:
        is_needed_in: gives what tells, before each run of a graph, whether there is something; None if MindSpore has
            dropped the graph. None as long as there is nothing to follow.
        follow: follows all.
    """

    def __init__(self) -> None:
        self.is_needed_in: Callable[[Any], Callable[[], bool | None]] | None = None
        self.follow: Callable[[], None] = lambda: None
        self._needed: dict[str, Callable[[], bool | None]] = {}

    def before(self, executor: Any, own: str) -> None:
        """Follow what has to be.

        Args:
            executor: MindSpore's, which has the graph.
            own: the name under which it has the graph.
        """
        if self.is_needed_in is None:
            return
        is_needed = self._needed[own]() if own in self._needed else None
        if is_needed is None and executor.has_compiled(own):
            self._needed[own] = self.is_needed_in(executor.get_func_graph(own))
            is_needed = self._needed[own]()
        if is_needed:
            self.follow()


_following = _Following()


def before_graphs(is_needed_in: Callable[[Any], Callable[[], bool | None]], follow: Callable[[], None]) -> None:
    """Have a function called before each run of a compiled graph, if that needs it: see _Following."""
    _following.is_needed_in, _following.follow = is_needed_in, follow


class _Taken(threading.local):
    """The graph that this thread's call of a compiled function has taken: see _Known, and around_compile's prefix."""

    name: str | None = None
    own: str | None = None
    prefix: str | None = None


_taken = _Taken()


def around_compile(
    compiled: Callable[[Any, Any, Callable[[str], Any]], Any],
    prefix_of: Callable[[Any], Callable[[], str] | None],
) -> None:
    """Have a function called in place of each compilation of a function or Cell.

    Args:
        compiled: is given the function or Cell, the object whose method it is, or None, and what compiles it under a
            name that begins with a text. Where there is a graph of that name, it is taken, also to run.
        prefix_of: gives what tells what `compiled` would have the name of that function begin with now, or None if
            nothing can. What it gives once for a function stays right.
    """
    _repeated.prefix_of = prefix_of
    of_functions = jit_executor()
    of_cells: Any = type(_cell_graph_executor)
    compile_function, compile_cell, run_cell = of_functions.compile, of_cells.compile, of_cells.__call__
    prefixes: weakref.WeakKeyDictionary[nn.Cell, str] = weakref.WeakKeyDictionary()

    @functools.wraps(compile_function)
    def function(self: Any, method: str, *args: Any, phase: str = "", **kwargs: Any) -> Any:
        def compile_as(prefix: str) -> Any:
            found = compile_function(self, method, *args, phase=prefix + phase, **kwargs)
            _taken.prefix = prefix
            return found

        return compiled(self.fn, self.obj, compile_as)

    @functools.wraps(compile_cell)
    def cell(self: Any, obj: Any, *args: Any, phase: str = "predict", **kwargs: Any) -> Any:
        def compile_as(prefix: str) -> Any:
            found = compile_cell(self, obj, *args, phase=prefix + phase, **kwargs)
            obj.phase_cache[phase] = found[0]
            prefixes[obj] = prefix
            return found

        return compiled(obj, None, compile_as)

    @functools.wraps(run_cell)
    def run(self: Any, obj: Any, *args: Any, phase: str = "predict") -> Any:
        return run_cell(self, obj, *args, phase=prefixes.get(obj, "") + phase)

    of_functions.compile, of_cells.compile, of_cells.__call__ = function, cell, run


# Who holds `one_at_a_time` (bridge/primitive/kernel.py) while a user's code runs, which may call a graph, takes this
# before that: a graph's compilation takes that too.
one_graph_at_a_time = threading.RLock()

# "For 'Custom' on CPU, operator failed when executing user defined file libaten_cpu.so! Error message is aten.mm: ...",
# and MindSpore's call stack. In place of 'Custom' may stand what has unknown sizes, "Model::forward of all sizes".
_AROUND_WORDS = re.compile(
    r"For (?:'Custom' on \w+|(?P<name>[^\n]+?)(?: of all sizes)?), operator failed when executing user defined file "
    r".*?! Error message is (?P<words>.*?)\s*\n-{9,}\n- C\+\+ Call Stack.*",
    re.DOTALL,
)
# "aten.mm: ... (MindSpore: ", and what MindSpore says on a GPU, where ms_ext/mindspore/launch_error.cpp adds the words.
_BEFORE_MINDSPORES = re.compile(r"(?P<words>.+?) \(MindSpore: .*- Kernel error:.*", re.DOTALL)


def _in_turn(own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def run(*args: Any, **kwargs: Any) -> Any:
        with one_graph_at_a_time:
            is_first = _failed is None  # around_graphs is around later calls
            try:
                return own(*args, **kwargs)
            except BaseException as error:
                _leave_own_words(error)
                if is_first and _failed is not None:
                    names = _names_of_graphs(args[0])
                    _failed.fail(*names)
                    _failed.add_lines(error, getattr(args[0], "_graph_executor", None), *names)
                classed = error if _failed is None else _failed.in_own_class(error)
                if classed is error:
                    raise
                raise classed from None
            finally:
                if is_first and _failed is not None:
                    _failed.ran.update(_names_of_graphs(args[0]))

    return run


def _names_of_graphs(called: Any) -> set[str]:
    """The names under which MindSpore keeps the graphs that a call may have taken: those of the Cell; or of all
    functions, for what MindSpore has made for the call."""
    return set(called.compile_cache if isinstance(called, nn.Cell) else _api().ms_compile_cache)


def _leave_own_words(error: BaseException) -> None:
    """Take MindSpore's words away around what an operator says that failed in a graph."""
    if not isinstance(error, RuntimeError):
        return
    if found := _AROUND_WORDS.fullmatch(str(error)):
        named = found["name"] and not found["words"].startswith(found["name"])
        error.args = (f"{found['name']}: {found['words']}" if named else found["words"],)
    elif found := _BEFORE_MINDSPORES.fullmatch(str(error)):
        error.args = (found["words"],)


class _FailedGraphs:
    """Graphs whose run failed. What MindSpore leaves in such a graph makes each later run fail too, with an error that
    says nothing of the first one. So it is compiled anew, under another name.

    Args:
        late_failures: how many launches have failed that need not have ended the call of their graph.
        in_own_class: gives the error of a launch in its own class, and others as they are.
        lines_of_call: gives where a compiled graph has the call whose error says certain words; empty if nowhere.

    Attributes:
        failures: by the names under which MindSpore keeps the graphs.
        ran: names of graphs that have run since the last failure.
    """

    def __init__(
        self,
        late_failures: Callable[[], int],
        in_own_class: Callable[[BaseException], BaseException],
        lines_of_call: Callable[[Any, str], str],
    ) -> None:
        self.in_own_class = in_own_class
        self._lines_of_call = lines_of_call
        self.failures: dict[str, int] = {}
        self.ran: set[str] = set()
        self._late_failures = late_failures
        self._noticed = late_failures()

    def prefix(self, name: str) -> str:
        """What the name of that graph has to begin with."""
        failures = self.failures.get(name)
        return "" if failures is None else f"{failures}."

    def look(self) -> None:
        """Before a run: notice launches that have failed."""
        if self._late_failures() != self._noticed:
            self.fail(*self.ran)  # one of these

    def run(self, graph: Callable[[], Any], name: Callable[[], str | None]) -> Any:
        """Run a graph, whose name is known at the end."""
        self.look()
        try:
            return graph()
        except BaseException:
            self.fail(name())
            raise
        finally:
            self.ran.add(name() or "")

    def add_lines(self, error: BaseException, executor: Any, *names: str | None) -> None:
        """Have an error say where the program has the call that failed, unless it says so.

        Args:
            executor: MindSpore's, which has the graphs; None for that of Cells.
            names: graphs that may have failed.
        """
        _leave_own_words(error)
        words = str(error)
        if not isinstance(error, Exception) or "\n\nIn file " in words:
            return
        executor = executor or _cell_graph_executor._graph_executor
        compiled = [executor.get_func_graph(name) for name in filter(None, names) if executor.has_compiled(name)]
        lines = next(filter(None, (self._lines_of_call(graph, words) for graph in compiled)), "")
        if lines:
            error.args = (type(error.args[0])(f"{words}\n\n{lines}"),)

    def fail(self, *names: str | None) -> None:
        """Runs of the graphs of these names have failed."""
        for name in filter(None, names):
            self.failures[name] = self.failures.get(name, 0) + 1
        self._noticed = self._late_failures()
        self.ran.clear()


# None before the bridge's first call. That may be in a graph that MindSpore is compiling: _in_turn notes that one.
_failed: _FailedGraphs | None = None

# In other releases, and with this variable, a graph's name tells of more, as of the hooks of its arguments.
_NAMES_ARE_KNOWN = mindspore.__version__.startswith("2.10.") and os.environ.get("MS_DEV_JIT_AST_ENABLE_GUARD") != "1"


class _Known(NamedTuple):
    """A graph that a call has taken.

    Args:
        name: that by which failures of its runs are counted.
        failures: how many there were; None if none.
        own: the name under which MindSpore keeps it.
        run: runs it without MindSpore, or gives NotImplemented; None if only MindSpore can.
    """

    name: str
    failures: int | None
    own: str
    run: Callable[..., Any] | None


class _Function(NamedTuple):
    """A function in whose graphs the bridge has programs.

    Args:
        function: of Python's.
        prefix: see around_compile.
        graphs: by what they follow from.
    """

    function: weakref.ref[Any]
    prefix: Callable[[], str]
    graphs: dict[Any, _Known]


class _RepeatedCalls:
    """Calls of compiled functions with tensors of the shapes and dtypes of a call before. MindSpore's Python takes as
    long to find the graph of such a call as small kernels take to run it; here it is known. That is for functions in
    whose graphs the bridge has programs. It has few calls of Python's, each of which takes microseconds where kernels
    have taken the caches.

    Attributes:
        prefix_of: see around_compile.
    """

    def __init__(self) -> None:
        self.prefix_of: Callable[[Any], Callable[[], str] | None] = lambda function: None
        self._functions: dict[int, _Function] = {}

    def key(self, executor: Any, args: tuple[Any, ...]) -> Any:
        """What the graph of a call follows from, and the graphs of its function; None if only MindSpore knows that.

        Args:
            executor: what MindSpore has made for the call.
        """
        found = self._functions.get(id(executor.fn))
        if found is None or found.function() is not executor.fn:
            found = self._note(executor.fn)
        if found is None or executor.obj is not None or executor.input_signature is not None:
            return None
        is_dynamic = executor.enable_jit_dynamic or executor._enable_auto_dynamic
        if is_dynamic or jit_context() or _pynative_executor._executor.requires_grad():
            return None
        like = [executor.fn.__code__, executor._create_time, executor._cell_cache_key_extend]
        for value in args:
            # What mindspore.mutable marks has attributes.
            if type(value) is not Tensor or value.__dict__ or value.const_arg or value.init is not None:
                return None
            like += value._dtype, value._shape
        like.append(found.prefix())
        return tuple(like), found.graphs

    def _note(self, function: Any) -> _Function | None:
        if not _NAMES_ARE_KNOWN or (prefix := self.prefix_of(function)) is None:
            return None
        key = id(function)
        found = _Function(weakref.ref(function, lambda _: self._functions.pop(key, None)), prefix, {})
        self._functions[key] = found
        return found


_repeated = _RepeatedCalls()


class _OfCell:
    """The graph that a Cell's compilation has taken last, and what runs its graphs without MindSpore.

    Attributes:
        name, own: see _Known; empty if there is none.
        runs: by the names under which MindSpore keeps the graphs; None for one that only MindSpore can run.
    """

    def __init__(self) -> None:
        self.name = self.own = ""
        self.runs: dict[str, Callable[..., Any] | None] = {}


_cells: weakref.WeakKeyDictionary[nn.Cell, _OfCell] = weakref.WeakKeyDictionary()


def around_graphs(
    late_failures: Callable[[], int],
    without_mindspore: Callable[[Any], Any],
    in_own_class: Callable[[BaseException], BaseException],
    lines_of_call: Callable[[Any, str], str],
) -> None:
    """Have a graph compiled once more when it is called after a run that failed: see _FailedGraphs. And have a graph
    that is called again run without MindSpore where that is possible.

    Args:
        late_failures, in_own_class, lines_of_call: see _FailedGraphs.
        without_mindspore: gives what runs a compiled graph, for tensors as in its first call; None if only MindSpore
            can. That gives NotImplemented if MindSpore has to run it this time.
    """
    global _failed
    failed = _failed = _FailedGraphs(late_failures, in_own_class, lines_of_call)
    of_cells: Any = type(_cell_graph_executor)
    of_functions = jit_executor()
    compile_cell, run_cell = of_cells.compile, of_cells.__call__
    compile_function, run_function = of_functions.compile, of_functions.__call__
    api = _api()

    @functools.wraps(compile_cell)
    def named_cell(self: Any, obj: Any, *args: Any, phase: str = "predict", **kwargs: Any) -> Any:
        found = compile_cell(self, obj, *args, phase=phase, **kwargs)
        graphs = _cells.setdefault(obj, _OfCell())
        graphs.name = found[0]
        if prefix := failed.prefix(found[0]):
            found = compile_cell(self, obj, *args, phase=prefix + phase, **kwargs)
            obj.phase_cache[phase] = found[0]
        graphs.own, is_new = found
        if is_new:
            graphs.runs.pop(graphs.own, None)
        return found

    @functools.wraps(run_cell)
    def run_named_cell(self: Any, obj: Any, *args: Any, phase: str = "predict") -> Any:
        graphs = _cells.get(obj, _OfCell())
        _following.before(self._graph_executor, graphs.own)
        run = graphs.runs.get(graphs.own) if all(type(value) is Tensor for value in args) else None
        name = graphs.name
        try:
            if run is not None and (found := run(*args)) is not NotImplemented:
                return found
            found = failed.run(lambda: run_cell(self, obj, *args, phase=failed.prefix(name) + phase), lambda: name)
        except BaseException as error:
            failed.add_lines(error, self._graph_executor, graphs.own)
            raise
        if _NAMES_ARE_KNOWN and graphs.own and graphs.own not in graphs.runs:
            graphs.runs[graphs.own] = without_mindspore(self._graph_executor.get_func_graph(graphs.own))
        return found

    @functools.wraps(compile_function)
    def named_function(self: Any, *args: Any, phase: str = "", **kwargs: Any) -> Any:
        found = own = compile_function(self, *args, phase=phase, **kwargs)
        if prefix := failed.prefix(found):
            own = compile_function(self, *args, phase=prefix + phase, **kwargs)
        _taken.name, _taken.own = found, own
        _following.before(self._graph_executor, own)
        return own

    def run_otherwise(executor: Any, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        before = _taken.name, _taken.own, _taken.prefix
        _taken.name = _taken.own = _taken.prefix = None
        try:
            found = failed.run(lambda: run_function(executor, *args, **kwargs), lambda: _taken.name)
            if key is not None and _taken.name and _taken.own and _taken.prefix == key[0][-1]:
                like, graphs = key
                run = without_mindspore(executor._graph_executor.get_func_graph(_taken.own))
                graphs[like] = _Known(_taken.name, failed.failures.get(_taken.name), _taken.own, run)
            return found
        except BaseException as error:
            failed.add_lines(error, executor._graph_executor, _taken.own)
            raise
        finally:
            _taken.name, _taken.own, _taken.prefix = before

    # As MindSpore 2.10 runs a graph that is known, with tensors that need nothing first.
    def run_in_mindspore(executor: Any, known: _Known, args: tuple[Any, ...]) -> Any:
        failed.ran.add(known.name)
        in_pynative = _pynative_executor._executor
        in_pynative.set_jit_compile_phase(known.own)
        executor._graph_executor.set_jit_config(executor.jit_config_dict or api._DEFAULT_JIT_CONFIG)
        try:
            found = in_pynative.grad_jit(*args)
            return found if type(found) is Tensor else api._convert_python_data(found)
        except BaseException:
            failed.fail(known.name)
            raise

    @functools.wraps(run_function)
    def run_named_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        failed.look()
        key = None if kwargs else _repeated.key(self, args)
        known = None if key is None else key[1].get(key[0])
        if known is None or known.failures != failed.failures.get(known.name):
            return run_otherwise(self, key, args, kwargs)
        if known.own not in api.ms_compile_cache or not self._graph_executor.has_compiled(known.own):
            return run_otherwise(self, key, args, kwargs)
        _following.before(self._graph_executor, known.own)
        try:
            found = NotImplemented if known.run is None else known.run(*args)
            return run_in_mindspore(self, known, args) if found is NotImplemented else found
        except BaseException as error:
            failed.add_lines(error, self._graph_executor, known.own)
            raise

    of_cells.compile, of_cells.__call__ = named_cell, run_named_cell
    of_functions.compile, of_functions.__call__ = named_function, _in_turn(run_named_function)


def take_turns_with_graphs() -> None:
    """Have a thread wait that calls a graph while another one compiles or runs one: MindSpore fails there, and what it
    gives may be of the other one's call. What an operator says that fails is without MindSpore's words around it."""
    of_functions: Any = jit_executor()
    of_cells: Any = nn.Cell
    of_functions.__call__ = _in_turn(of_functions.__call__)
    of_cells.compile, of_cells.compile_and_run = _in_turn(of_cells.compile), _in_turn(of_cells.compile_and_run)


def refuse_in_vmap(reason: Callable[[Any], str]) -> None:
    """Have `vmap`, and so `jacrev` and `jacfwd`, raise RuntimeError for each primitive of `ops.Custom` for which this
    gives a reason."""

    def rule_of(primitive: Any, _: int) -> None:
        if reason(primitive):
            raise RuntimeError(reason(primitive))

    importlib.import_module("mindspore.ops._vmap.vmap_base").vmap_rules_getters.register("Custom")(rule_of)


def _stopping(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def forward(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except BaseException:
            stop_recording()
            raise

    return forward


def _ending(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def call(cell: nn.Cell, *args: Any, **kwargs: Any) -> Any:
        try:
            return run(cell, *args, **kwargs)
        except BaseException:
            if cell.is_top_cell:
                cell.is_top_cell = False
                stop_recording()
            raise

    return call


def run_primitive(primitive: Any, tensors: Sequence[Any]) -> Any:
    """Call a primitive of `ops.Custom` in PyNative mode."""
    return _primitive._run_op(primitive, "Custom", tensors)


def requires_gradient(tensor: Any) -> bool:
    """Whether the gradient of a bprop's input is asked for: PyNative mode marks those whose is not."""
    return getattr(tensor, "_requires_grad", True)


class CompiledAsMethod:
    """MindSpore's compiler takes an instance for its method `_call_in_graph`, as Python takes it for `__call__`."""

    __ms_class__ = True
    __parse_method__ = "_call_in_graph"
    __name__: str
    __qualname__: str

    def _is_named(self, name: str) -> None:
        """Take this name, by which a function is known to whoever wraps it."""
        self.__name__ = self.__qualname__ = name

    @property
    def __code__(self) -> CodeType:
        """What PyNative mode tells functions apart by when it differentiates them, together with their names."""
        return type(self).__call__.__code__  # type: ignore[operator,no-any-return]  # each such class has a `__call__`


def captures_bytecode() -> bool:
    """Whether a graph is being made of the bytecode of a function: `mindspore.jit(capture_mode="bytecode")`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).endswith("pijit_context"):
            return True
        frame = frame.f_back
    return False


def _parse() -> Any:
    """The compiler's package that reads Python."""
    try:
        return importlib.import_module("mindspore.graph._parse")
    except ModuleNotFoundError:  # MindSpore 2.8
        return importlib.import_module("mindspore._extends.parse")


def compile_as(function: Callable[..., Any], stands_for_it: Any) -> None:
    """Have MindSpore's compiler take something of its own for a function that a program calls by name."""
    _parse().resources.convert_object_map[function] = stands_for_it


def tell_of_cells(told: Callable[[nn.Cell], None]) -> None:
    """Have a function called with each Cell that MindSpore's compiler meets."""
    parse = _parse()
    own = parse.get_parse_method_of_class

    @functools.wraps(own)
    def method_of(value: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(value, nn.Cell):
            told(value)
        return own(value, *args, **kwargs)

    parse.get_parse_method_of_class = method_of


def infer_in_cpp(primitive: Any, name: str, several: bool) -> None:
    """Have graph mode infer the primitive by its library's InferShape. `several`: whether it gives a tuple."""
    primitive.add_prim_attr("reg_op_name", name)
    primitive.add_prim_attr("multi_output", several)


def infer_types_in_cpp(primitive: Any, dtypes: Sequence[Any]) -> None:
    """Have graph mode infer the dtypes of the primitive's results, MindSpore's, by its library's InferType."""
    numbers = [int(typing.type_to_type_id(dtype)) for dtype in dtypes]
    primitive.add_prim_attr("aten_types", " ".join(map(str, numbers)))
    primitive.add_prim_attr("cpp_infer_type", True)


def has_known_shapes(primitive: Any) -> None:
    """Have graph mode take the shapes of the primitive's inputs and results for known, without looking.

    It looks at all of them for each result that leaves the graph, which takes a step of many gradients milliseconds.
    """
    primitive.add_prim_attr("input_is_dynamic_shape", False)
    primitive.add_prim_attr("output_is_dynamic_shape", False)


def keep_in_order(primitive: Any) -> None:
    """Have graph mode run every call of the primitive, each one, in the order of the program."""
    primitive.add_prim_attr("side_effect_mem", True)


def compute_once(primitive: Any) -> None:
    """Have a graph keep the primitive's results where a Cell around it is recomputed."""
    primitive.add_prim_attr("recompute", False)


def use_registered_kernel(primitive: Any, name: str) -> None:
    """Have graph mode run the primitive by the kernel that is registered under this name."""
    primitive.add_prim_attr("uniq_name", name)


def joins_all_reduces() -> bool:
    """Whether MindSpore has the AllReduces of a graph in one, which takes gradients that lie side by side."""
    context: Any = importlib.import_module("mindspore.parallel._auto_parallel_context")
    return bool(context.auto_parallel_context().get_enable_all_reduce_fusion())


def after_set_seed(call: Callable[[], None]) -> None:
    """Have `mindspore.set_seed` call this too.

    MindSpore has no hook for that. `set_seed` resets the seeds of its own kernels through one function, after it has
    handed the seed to `mindspore.dataset`.
    """
    seeds: Any = importlib.import_module("mindspore.common.seed")  # mindspore.common has a function of that name
    reset_kernels = seeds._reset_op_seed

    def reset() -> None:
        reset_kernels()
        call()

    seeds._reset_op_seed = reset


class _AutoLevels:
    """Whether any network in the process has the level "auto" of `mindspore.amp`.

    In a graph nothing else tells whether the level is in force but a trial operator, which costs milliseconds a call.
    `auto_mixed_precision` makes a strategy for each network of that level, and leaves it on the network.
    """

    def __init__(self) -> None:
        self._make, self._made = amp.create_amp_strategy, False
        amp.create_amp_strategy = self._note
        self._looked = False

    def _note(self, *args: Any) -> Any:
        self._made = True
        return self._make(*args)

    def exist(self) -> bool:
        if not self._looked:  # for those made before
            self._looked = True
            self._made = self._made or gc.get_freeze_count() > 0 or _has_any_amp_strategy()
        return self._made


def _has_any_amp_strategy() -> bool:
    """Whether a network has one. It looks at hundreds of thousands of objects."""
    kinds = {FunctionType, *_derived(nn.Cell)}
    # A proxy of something that is gone would raise an error if it were asked for its class.
    networks = [value for value in gc.get_objects() if type(value) in kinds]
    return any(vars(network).get("amp_strategy") is not None for network in networks)


def _derived(kind: Any) -> Iterator[Any]:
    yield kind
    for derived in type.__subclasses__(kind):
        yield from _derived(derived)


@functools.cache
def auto_levels() -> _AutoLevels:
    """The one of the process; it watches from its first call on."""
    return _AutoLevels()


def has_hooks(cell: nn.Cell) -> bool:
    """Whether a Cell's call runs more than its `construct`."""
    kinds = ("forward_pre_hook", "forward_hook", "backward_pre_hook", "backward_hook")
    return any(getattr(cell, f"_lazy_{kind}", None) or getattr(cell, f"_{kind}", None) for kind in kinds)


def is_cast(cell: nn.Cell) -> bool:
    """Whether MindSpore casts in a Cell's own call: by `to_float` or a level of mindspore.amp."""
    return cell.mixed_precision_type is not None or getattr(cell, "_amp_level", "") not in ("", "O0")


def is_compilers(frame: FrameType) -> bool:
    """Whether MindSpore's compiler looks an item up: it has Python do so for the items of most objects."""
    return frame.f_globals.get("__name__") == getitem_impl.__name__


class CellsByName(nn.CellDict):
    """A CellDict that may hold other containers, as PyTorch's does."""

    def _validate_cell_type(self, cell: Any) -> None:
        if not isinstance(cell, nn.Cell):
            raise TypeError(f"{type(self).__name__} holds layers and Cells, and was given a {type(cell).__name__}")


def is_seeded(generator: Any) -> bool:
    """Whether a generator of MindSpore's has been given a seed, by its user or by chance."""
    return bool(generator._generator.attrs["manual_seed"]) or generator.initial_seed() != 0


class InPyNative:
    """A function that PyNative mode calls in place of a method. Graphs are compiled with the method: MindSpore's
    compiler takes the instance's `__call__`, Python the class's."""

    def __init__(self, function: Callable[..., Any], method: Callable[..., Any]) -> None:
        self.function = function
        self.__dict__["__call__"] = method
        self.__dict__["__ms_class__"] = True

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def parameters_in(cell: nn.Cell) -> dict[str, Parameter]:
    """The Cell's own dictionary of its Parameters."""
    return cast("dict[str, Parameter]", cell._params)


def leave_inputs(cell: nn.Cell) -> None:
    """Have graphs leave the inputs of a Cell in their dtypes, where `to_float` asks for a lower precision.

    PyNative mode goes by the attribute `mixed_precision_type`, and stays as it is.
    """
    low = [flag for flag in ("fp16", "bf16") if cell.get_flags().get(flag)]
    if low:
        cell.get_flags().update(dict.fromkeys(low, False))
        Cell_.set_mixed_precision_type(cell, MixedPrecisionType.NOTSET)


def is_plain(cell: nn.Cell) -> bool:
    """Whether the call of a Cell in PyNative mode is that of its `construct`: it has no hooks and is not recomputed."""
    hooks = (
        "_forward_pre_hook", "_forward_hook", "_backward_pre_hook", "_backward_hook", "_forward_pre_hook_with_kwargs",
        "_forward_hook_with_kwargs",
    )  # fmt: skip
    return not any(getattr(cell, name, None) for name in hooks) and getattr(cell, "_recompute_cell", None) is None


# What only the Cell itself has: its Parameters, its graphs, and what holds the Cell.
_OF_ONE_CELL = frozenset((
    "_params", "_create_time", "_compile_cache", "_compile_phase", "_phase_cache", "_compiled", "_jit_graph_name",
    "current_phase", "arguments_key", "is_top_cell", "sequence_modified", "_mutable_flags", "_has_mutable_args_list",
    "_lazy_construct_sig", "_shard_fn", "_cell_backward_hook", "_cell_backward_pre_hook", "_has_config_recompute",
    "_recompute_cell",
))  # fmt: skip


def attributes_of(cell: nn.Cell) -> dict[str, Any]:
    """The attributes of a Cell that a copy has too: modes, dtypes, hooks, Cells and what the user has set."""
    found = {name: value for name, value in vars(cell).items() if name not in _OF_ONE_CELL}
    for inside in ("_cells", "_primitives"):  # some attributes are in one of these too
        found[inside] = type(found[inside])(item for item in found[inside].items() if item[0] not in _OF_ONE_CELL)
    recomputed = getattr(cell, "_recompute_cell", None)
    found["_recompute_cell"] = None
    if recomputed is None:
        found["_has_config_recompute"] = cell._has_config_recompute  # by a Cell around it
    else:
        found["_recompute_cell"] = {} if isinstance(recomputed, nn.Cell) else {"use_reentrant": False}
    return found


def give_attributes(cell: nn.Cell, attributes: dict[str, Any]) -> None:
    """Give a Cell what `attributes_of` found for another."""
    given = dict(attributes)
    recomputed = given.pop("_recompute_cell")
    backward = {
        kind: [*(given.pop(f"_lazy_{kind}_hook", None) or given.pop(f"_{kind}_hook", None) or {}).values()]
        for kind in ("backward", "backward_pre")
    }
    cell.__dict__.update(given)
    cell._add_mixed_precision_flag(**given.get("_func_graph_flags", {}))
    for kind, hooks in backward.items():
        for hook in hooks:
            getattr(cell, f"register_{kind}_hook")(hook)
    if recomputed is not None:
        cell.recompute(**recomputed)
