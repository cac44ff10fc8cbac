"""Kernels of the user's own as operators of the bridge: what is built, what infers, what differentiates."""
from __future__ import annotations

import ctypes
import itertools
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import torch

from bridge.arguments import TensorMark, resolve
from bridge.encoding import decode
from bridge.gradient import Level, op_inputs
from bridge.gradient import parse as parse_level
from bridge.infer import infer, renamed
from bridge.kernels import formula, library, native, shims
from bridge.kernels.declaration import Declaration, Initial, Output, Results, inference, parse
from bridge.kernels.errors import KernelError
from bridge.kernels.formula import Formula, Gradient, Line, NoGradient, PythonGradient
from bridge.kernels.shims import Function
from bridge.operator import Operator
from bridge.primitive import kernel_device
from bridge.schema import Schema, declare, is_declared

Sources = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def paths(sources: Sources) -> tuple[pathlib.Path, ...]:
    """The files, absolute. Raises FileNotFoundError for one that is not there."""
    listed = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
    found = tuple(pathlib.Path(path).absolute() for path in listed)
    for path in found:
        if not path.is_file():
            raise FileNotFoundError(f"a kernel's source is not there: {path}")
        if path.suffix not in (".cpp", ".cc", ".cxx", ".cu", ".so"):
            raise ValueError(f"a kernel's source is a .cpp, .cc, .cxx or .cu file, or a library built before: {path}")
    return found


# MindSpore's name of a device -> PyTorch's.
_DEVICES = {"CPU": "CPU", "GPU": "CUDA"}


class Library:
    """What is compiled for kernels of the same sources, for each device when it is first needed.

    Kernels are added until then, so that one build serves all that are declared beforehand.

    Args:
        form: "aot" or "extension".
        sources: for each device, "CPU" and "CUDA", its sources, or one library that was built before.
        flags: for every compiler call.
    """

    def __init__(self, form: str, sources: dict[str, tuple[pathlib.Path, ...]], flags: tuple[str, ...]) -> None:
        self.form = form
        self.functions: list[Function] = []
        self.sources = sources
        self.flags = flags
        self._built: dict[str, pathlib.Path] = {}
        self._closed = False

    @property
    def name(self) -> str:
        """The name of the sources, which messages and files have."""
        return (self.sources["CPU"] or self.sources["CUDA"])[0].stem

    def accepts(self, functions: Sequence[Function]) -> bool:
        """Whether the functions can be added: nothing is built yet, and none is there in another form."""
        known = {f.declaration.name: f for f in self.functions}
        return not self._closed and all(known.get(f.declaration.name, f) == f for f in functions)

    def add(self, functions: Sequence[Function]) -> None:
        self.functions += [function for function in functions if function not in self.functions]

    @property
    def devices(self) -> list[str]:
        """MindSpore's names of the devices that there are sources for."""
        return [name for name, device in _DEVICES.items() if self.sources[device]]

    def path(self, target: str) -> pathlib.Path:
        """The library for one of MindSpore's devices, loaded. Raises KernelError if it cannot be built."""
        self._closed = True
        device = _DEVICES[target]
        built = self._built.get(device)
        if built is None:
            built = self._built[device] = self._build(device)
        return built

    def _build(self, device: str) -> pathlib.Path:
        sources = self.sources[device]
        if not sources:
            raise KernelError(f"{self.name} has no sources for the {device}: give them in "
                              f"{'sources' if device == 'CPU' else 'cuda'}=")
        built = sources[0] if sources[0].suffix == ".so" else library.library(self.recipe(device))
        opened = library.load(built, self.name)
        for function in self.functions:
            self._check(opened, function, built)
        return built

    def _check(self, opened: Any, function: Function, path: pathlib.Path) -> None:
        try:
            entry = opened[f"{shims.symbol(function)}Schema"]
        except AttributeError:
            raise KernelError(f"{path} has no kernel {function.declaration.name}: build it with "
                              "bridge.build.ATenExtension") from None
        entry.restype = ctypes.c_char_p
        text = entry().decode()
        if text != function.declaration.text:
            raise KernelError(f"{path} was built for another schema: {text}, not {function.declaration.text}")

    def recipe(self, device: str) -> library.Recipe:
        """How to compile the variant."""
        text, included = self.shim(device)
        others = tuple(path for path in self.sources[device] if path not in included)
        suffix = ".cu" if device == "CUDA" and (not included or included[0].suffix == ".cu") else ".cpp"
        return library.Recipe(self.name, others, text, suffix, included, device == "CUDA", self.flags)

    def shim(self, device: str) -> tuple[str, tuple[pathlib.Path, ...]]:
        """The text of the shim, and the source that it includes."""
        if self.form == "aot":
            return shims.aot(self.functions, device), ()
        included = self._source_of_functions(device)
        return shims.extension(self.functions, included, device), (included,)

    def _source_of_functions(self, device: str) -> pathlib.Path:
        """The source that names all functions, a `.cpp` file rather than a `.cu` file."""
        sources = sorted(self.sources[device], key=lambda path: path.suffix == ".cu")
        patterns = {f.declaration.function: rf"\b{re.escape(f.declaration.name)}\s*\(" for f in self.functions}
        texts = {path: path.read_text(errors="replace") for path in sources}
        for path, text in texts.items():
            if all(re.search(pattern, text) for pattern in patterns.values()):
                return path
        names = ", ".join(path.name for path in sources)
        for function, pattern in patterns.items():
            if not any(re.search(pattern, text) for text in texts.values()):
                raise KernelError(f"{self.name}: {names} has no function {function!r}")
        raise KernelError(f"{self.name}: no file among {names} has all of {', '.join(patterns)}; declare them in one")


class Custom(Schema):
    """A kernel from sources.

    Args:
        name: its full name.
        declaration: its schema.
        library: what it is compiled into.
        function: it, there.
        results: see bridge.kernels.extension.
        gradient: a parsed line, a Python function, or None.
        relatives: the kernels that the line calls, by the names that it has for them.
    """

    def __init__(self, name: str, declaration: Declaration, library: Library, function: Function, results: Results,
                 gradient: Line | Any, relatives: dict[str, Custom]) -> None:  # fmt: skip
        meta = inference(declaration, results)
        raw = SimpleNamespace(arguments=[], returns=[])
        super().__init__(name, declaration.text, raw, meta or self._run_on_torch, declaration.name if meta else None,
                         "none" if gradient is None else "formula")  # fmt: skip
        self.arguments = list(declaration.arguments)
        self.results = declaration.result_types
        self.eager_because = "" if meta else "it has no results=, so its shapes follow from its data"
        self.declaration = declaration
        self.library = library
        self.devices = library.devices
        self._function = function
        self._gradient = gradient
        self.relatives = relatives

    def function(self, device: str) -> str:
        return f"{self.library.path(device)}:{shims.symbol(self._function)}"

    def attributes(self, text: str) -> dict[str, Any]:
        if self.library.form != "aot":
            return {}
        pairs = zip(self.declaration.arguments, decode(text), strict=True)
        found = {a.name: value for a, value in pairs if a.base != "Tensor" and value is not None}
        for name, value in found.items():
            if isinstance(value, complex):
                raise TypeError(f"{self.name}: '{name}' is complex, which MindSpore's attributes of a kernel cannot be")
        return found

    def bprop(self, text: str) -> Any:
        if self._gradient is None:
            return NoGradient(self.name)
        if isinstance(self._gradient, Line):
            return Formula(self.name, text, self.declaration, self._gradient, self._schemas)
        return PythonGradient(self.name, text, self.declaration, self._gradient)

    def _schemas(self, function: str) -> list[str]:
        relative = self.relatives.get(function)
        return [relative.name] if relative else formula.aten_names(function)

    def on_torch(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel on PyTorch's tensors: without MindSpore, and without a gradient."""
        try:
            return self._run_on_torch(*args, **kwargs)
        except RuntimeError as error:
            raise error if isinstance(error, KernelError) else renamed(error, self.name) from None

    def _run_on_torch(self, *args: Any, **kwargs: Any) -> Any:
        bound = resolve(self.packet, [self], [_marked(a) for a in args], {k: _marked(v) for k, v in kwargs.items()})
        tensors = [mark.tensor for mark in bound.tensors]
        device = tensors[0].device if tensors else torch.device("cpu")
        outputs: list[torch.Tensor] = []
        if any(output.kind != "returned" for output in self.declaration.outputs):
            specs = infer(self.name, bound.text, tuple((tuple(t.shape), t.dtype) for t in tensors))
            outputs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in specs]
        path = self.library.path("GPU" if device.type == "cuda" else "CPU")
        entry = library.load(path, self.library.name)[f"{shims.symbol(self._function)}Run"]
        found = native.run(entry, bound.text, tensors, outputs)
        return found[0] if self.results == ["Tensor"] else tuple(found)


class _TorchMark(TensorMark):
    """A tensor of PyTorch's where arguments are bound."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _marked(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_marked(item) for item in value]
    return _TorchMark(value) if isinstance(value, torch.Tensor) else value


class Registered(Schema):
    """An operator that somebody registered with PyTorch.

    Its kernel is `ms_ext/gradient.cpp` at level 0, a call through PyTorch's dispatcher.

    Args:
        name: the full name, as in "ns::name.overload".
        torch_op: torch.ops.ns.name.overload.
        gradient: a Python function or a line, which replaces its registered autograd.
    """

    def __init__(self, name: str, torch_op: Any, gradient: Gradient) -> None:
        raw = torch_op._schema
        self.torch_name = torch_op.name()
        has_meta = _has_kernel(torch_op, "Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
        has_autograd = _has_kernel(
            torch_op, "Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd"
        )
        if gradient is not None and not has_meta:
            raise ValueError(f"{name} needs a meta function for gradient=; torch.library.register_fake gives it one")
        super().__init__(name, str(raw), raw, torch_op, "gradient" if has_meta else None,
                         "composite" if has_autograd or gradient is not None else "none")  # fmt: skip
        composite = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
        self.devices = [name for name, key in _DEVICES.items() if _has_kernel(torch_op, key, *composite)]
        self.eager_because = "" if has_meta else "it has no meta function, which torch.library.register_fake gives it"
        self._line: Line | None = None
        self._gradient = gradient
        if isinstance(gradient, str):
            self._line = formula.parse(gradient, self.declaration)

    @property
    def declaration(self) -> Declaration:
        """What a gradient line may name."""
        outputs = tuple(
            Output(r.name or f"result{i}", "returned", None) for i, r in enumerate(self.torch_op._schema.returns)
        )
        return Declaration(self.text, self.packet, tuple(self.arguments), (), outputs, tuple(self.results))

    def function(self, device: str) -> str:
        return "libms_ext.so:aten_gradient"

    @property
    def single(self) -> bool:
        return False

    @property
    def nested(self) -> bool:
        return True

    @property
    def may_depend_on_data(self) -> bool:
        """Whether it can run without its meta function."""
        return self.shim is not None and self._gradient is None

    def kernel_text(self, text: str) -> str:
        return Level(self.torch_name, text, 0, 0).kernel_text(op_inputs(text))

    def operator_text(self, kernel_text: str) -> str:
        return parse_level(kernel_text).text

    def bprop(self, text: str) -> Any:
        if self._line is not None:
            return Formula(self.name, text, self.declaration, self._line, _callable_names)
        if callable(self._gradient):
            return PythonGradient(self.name, text, self.declaration, self._gradient)
        return NoGradient(self.name) if self.gradient == "none" else None


def _has_kernel(torch_op: Any, *keys: str) -> bool:
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(torch_op.name(), key) for key in keys)


def on_gpu() -> bool:
    return ms.get_context("device_target") == "GPU"


def load_registration(name: str, sources: tuple[pathlib.Path, ...], cuda: bool, flags: tuple[str, ...]) -> None:
    """Compile and load what registers an operator. Nothing happens if there are no sources."""
    if not sources:
        return
    built = sources[0]
    if built.suffix != ".so":
        recipe = library.Recipe(name, sources, "", ".cpp", (), cuda, flags)
        built = library.library(recipe)
    library.load(built, name)


def registered_names(name: str, gradient: Gradient = None) -> list[str]:
    """Declare the overloads of a registered operator, "ns::name" or "ns::name.overload"; returns their full names.

    Raises ValueError if nobody has registered it, or if it writes to its arguments.
    """
    namespace, _, rest = name.partition("::")
    packet_name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None) if rest else None
    if packet is None or (overload and overload not in packet.overloads()):
        raise ValueError(
            f"nobody has registered an operator {name!r} with PyTorch: load the library or import the package that "
            "does, or give its sources"
        )
    found = []
    refused = ""
    overloads = [getattr(packet, each) for each in ([overload] if overload else packet.overloads())]
    # A 0-d tensor can be read as a number, but that has no gradient: overloads for tensors are tried first.
    for torch_op in sorted(overloads, key=_tensor_arguments, reverse=True):
        each = torch_op._overloadname
        full = f"{namespace}::{packet_name}" + ("" if each == "default" else f".{each}")
        written = [a.name for a in torch_op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if written:
            refused = (
                f"{full} writes to its argument {written[0]!r}, which MindSpore does not allow: register an operator "
                "that returns its result"
            )
            continue
        # With another gradient it is another operator: MindSpore keeps primitives by their names.
        name = full if gradient is None else _unused_name(full)
        if not is_declared(name):
            declare(Registered(name, torch_op, gradient))
        found.append(name)
    if not found:
        raise ValueError(refused)
    return found


def _tensor_arguments(torch_op: Any) -> int:
    return sum("Tensor" in str(argument.type) for argument in torch_op._schema.arguments)


def _callable_names(function: str) -> list[str]:
    """What a gradient line of a registered operator may call: others, and ATen's."""
    if "::" not in function:
        return formula.aten_names(function)
    return [function] if is_declared(function) else registered_names(function)


class KernelOperator(Operator):
    """A kernel from sources, as a MindSpore operator for both modes."""

    def __init__(self, op: Custom) -> None:
        super().__init__(op.name, (op.name,))
        self._op = op

    @property
    def gradient_kernels(self) -> dict[str, KernelOperator]:
        """The functions of the sources that the gradient line calls, as operators of their own."""
        return {name: KernelOperator(op) for name, op in self._op.relatives.items()}

    def build(self) -> pathlib.Path:
        """Compile for MindSpore's device now, rather than at the first call; returns the library."""
        return self._op.library.path(kernel_device(self._op))

    def on_torch(self, *args: Any, **kwargs: Any) -> Any:
        """Run the same kernel on PyTorch's tensors, without MindSpore and without a gradient: to compare with."""
        return self._op.on_torch(*args, **kwargs)

    def write_shim(self, folder: str | os.PathLike[str], device: str = "CPU") -> pathlib.Path:
        """Write the generated C++ into a folder, as a start for a shim by hand; returns the file.

        Args:
            folder: where to; it is made if it is not there.
            device: "CPU" or "CUDA".
        """
        recipe = self._op.library.recipe(device)
        path = pathlib.Path(folder) / f"{self._op.library.name}_shim{recipe.shim_suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(recipe.shim)
        return path


class RegisteredOperator(Operator):
    """An operator registered with PyTorch, as a MindSpore operator."""

    def _call_unplanned(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any) -> Any:
        try:
            return super()._call_unplanned(args, kwargs, key)
        except RuntimeError as error:
            # What a meta function that torch.library.register_fake gave says when it cannot know a size.
            ours = [op for op in self.schemas if isinstance(op, Registered) and op.may_depend_on_data]
            if "data-dependent shape" not in str(error) or not ours:
                raise
        for op in ours:
            op.shim = None
        self._plans.clear()
        return super()._call_unplanned(args, kwargs, key)


def _unused_name(name: str) -> str:
    """The name itself, or with a number that makes it another: "custom::f#2"."""
    numbered = (f"{name}#{count}" for count in itertools.count(2))
    return name if not is_declared(name) else next(other for other in numbered if not is_declared(other))


def _functions(
    declaration: Declaration, line: Line | None
) -> tuple[list[Function], dict[str, tuple[Function, str]]]:
    """The functions that need shims; for those that a gradient line calls, also what their results are like."""
    backward: dict[str, tuple[Function, str]] = {}
    for entry in line.entries if line else ():
        if entry.function.startswith("aten."):
            formula.aten_names(entry.function)
        if not entry.function or entry.function.startswith("aten."):
            continue
        text, like, hidden = formula.backward_schema(entry, declaration)
        known = backward.setdefault(entry.function, (Function(parse(text), hidden), like))
        if known[0].declaration.text != text:
            raise ValueError(
                f"the gradient line of {declaration.name} calls {entry.function} in two ways: "
                f"{known[0].declaration.text} and {text}"
            )
    return [Function(declaration), *(function for function, _ in backward.values())], backward


def library_of(
    form: str, variants: dict[str, tuple[pathlib.Path, ...]], lines: Mapping[str, str | None], initial: Initial,
    flags: tuple[str, ...],
) -> Library:  # fmt: skip
    """One library of several kernels: schema line -> gradient line."""
    found = Library(form, variants, flags)
    for schema_line, gradient_line in lines.items():
        declaration = parse(schema_line, initial)
        found.add(_functions(declaration, formula.parse(gradient_line, declaration) if gradient_line else None)[0])
    return found


_libraries: dict[Any, Library] = {}


def _library(
    form: str, variants: dict[str, tuple[pathlib.Path, ...]], flags: tuple[str, ...], functions: list[Function]
) -> Library:
    """The library for functions of these sources: the one that is still open, or a new one."""
    key = (form, *variants.values(), flags)
    found = _libraries.get(key)
    if found is None or not found.accepts(functions):
        found = _libraries[key] = Library(form, variants, flags)
    found.add(functions)
    return found


def make(form: str, sources: Sources, cuda: Sources, line: str, results: Results, gradient: Gradient,
         initial: Initial, flags: Sequence[str]) -> KernelOperator:  # fmt: skip
    """What `bridge.kernels.aot` and `extension` do; see there."""
    if gradient is not None and not isinstance(gradient, str) and not callable(gradient):
        raise TypeError(f"gradient= is a line or a Python function, not {type(gradient).__name__}")
    variants = {"CPU": paths(sources), "CUDA": paths(cuda)}
    if not any(variants.values()):
        raise ValueError("a kernel needs sources, or cuda sources, or both")
    declaration = parse(line, initial)
    _check_form(form, declaration, results, gradient, initial)
    inference(declaration, results)  # raises if they do not fit, before the kernel is added to a library
    parsed = formula.parse(gradient, declaration) if isinstance(gradient, str) else None
    functions, backward = _functions(declaration, parsed)
    owner = _library(form, variants, tuple(flags), functions)
    relatives: dict[str, Custom] = {}
    for called, (function, like) in backward.items():
        derived = function.declaration
        relatives[called] = Custom(_unused_name(f"custom::{derived.name}"), derived, owner, function, like, None, {})
        declare(relatives[called])
    op = Custom(_unused_name(f"custom::{declaration.name}"), declaration, owner, functions[0], results,
                parsed if parsed is not None else gradient, relatives)  # fmt: skip
    declare(op)
    return KernelOperator(op)


def _check_form(form: str, declaration: Declaration, results: Results, gradient: Gradient, initial: Initial) -> None:
    """Raise ValueError for what a form cannot do."""
    name = declaration.name
    from_data = results is None and any(output.kind != "in_out" for output in declaration.outputs)
    if form == "aot":
        if from_data:
            raise ValueError(f"{name} needs results=: MindSpore allocates them before an AOT function runs")
        wrong = next((a for a in declaration.arguments if a.base == "Tensor" and (a.is_list or a.is_optional)), None)
        if wrong is not None or "List[Tensor]" in declaration.returns:
            raise ValueError(f"{name}: an AOT function has a fixed number of tensors; write each as a Tensor")
    else:
        if initial is not None and any(output.kind == "returned" for output in declaration.outputs):
            raise ValueError(f"{name} returns its results; initial= is for outputs that it is given: "
                             "write them as `*, Tensor(a!) out`")
        if from_data and any(output.kind == "out" for output in declaration.outputs):
            raise ValueError(f"{name} needs results=: the bridge allocates the outputs that it fills")
        if from_data and gradient is not None:
            raise ValueError(f"{name} needs results= to have a gradient: without it, the shapes follow from data")
