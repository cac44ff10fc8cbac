#!/usr/bin/env python3
"""Compare the bridge with PyTorch, bit for bit, over PyTorch's own operator samples.

Every sample of PyTorch's OpInfo database is run once under a dispatch mode that records the ATen overloads it
reaches, composite ones included. Each recorded call is then made three times on copies of the same bits: twice by
PyTorch (to know whether PyTorch repeats itself) and once by the bridge on MindSpore tensors. Overloads that OpInfo
does not reach have samples of our own in tests/samples.py.

    python scripts/conformance.py                                   # float32, PyNative
    python scripts/conformance.py --dtypes float64,int64 --json report.json
    python scripts/conformance.py --mode graph                      # one sample per overload under ms.jit
    python scripts/conformance.py --gradients --ops 'conv*,linear'
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fnmatch
import functools
import hashlib
import importlib.util
import itertools
import json
import keyword
import multiprocessing
import multiprocessing.connection
import re
import sys
import tempfile
import unittest.mock
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
EXPECTED_MISSES = ROOT / "tests" / "expected_misses.yaml"
SEED = 0
DOUBTS = 10  # how many more references a miss is worth: two runs of sums without an order can agree by chance
CALL_TIMEOUT_S = 300
# Relative to the largest value: second derivatives of float64 samples agree to a few hundred units of round-off.
SECOND_ORDER_TOLERANCE = 1e-12

# The dtypes that both frameworks have, by their common name.
SHARED_DTYPES = [
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
    "float64", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
]  # fmt: skip
DTYPE_NAMES: dict[torch.dtype, str] = {getattr(torch, name): name for name in SHARED_DTYPES}

# PyTorch leaves these results uninitialised: only their shape and dtype mean anything.
UNINITIALISED = {
    "empty.memory_format", "empty.names", "empty_like", "empty_permuted", "empty_strided", "new_empty",
    "new_empty_strided", "_make_dep_token",
}  # fmt: skip

# torch.manual_seed queues a call, with a stack trace, for each kind of device that is not there: a millisecond.
seed_torch = torch.manual_seed if torch.cuda.is_available() else torch.default_generator.manual_seed

PASSED, FAILED, SKIPPED, CRASHED = "passed", "failed", "skipped", "crashed"


# ---------------------------------------------------------------------------------------------------------------------
# Recording


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of one overload, with its own contiguous copies of the tensors."""

    overload: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    source: str
    key: str

    @property
    def op(self) -> torch._ops.OpOverload:
        return overload_named(self.overload)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of one call: a status, and the reason when it is not a pass."""

    overload: str
    status: str
    cause: str = ""
    source: str = ""
    key: str = ""


@functools.cache
def overload_named(name: str) -> torch._ops.OpOverload:
    """The operator for "add.Tensor" or, when the overload has no name, "relu"."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


@functools.cache
def functional_name(op: torch._ops.OpOverload) -> str | None:
    """The functional overload that makes the same call: itself, or the counterpart of an in-place or out overload."""
    name = op.name().removeprefix("aten::")
    if not op._schema.is_mutable:
        return name
    packet = name.partition(".")[0]
    candidates = [f"__{packet[3:]}"] if packet.startswith("__i") else [packet.removesuffix("_"), packet]
    kept = [(a.name, str(a.type)) for a in op._schema.arguments if not (a.is_write and a.kwarg_only)]
    for candidate in candidates:
        for other in torch._C._jit_get_schemas_for_operator(f"aten::{candidate}"):
            other_name = f"{candidate}.{other.overload_name}" if other.overload_name else candidate
            if other.is_mutable or not torch._C._dispatch_has_kernel(f"aten::{other_name}"):
                continue
            if [(a.name, str(a.type)) for a in other.arguments] == kept:
                return other_name
    return None


def has_cpu_kernel(name: str) -> bool:
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(f"aten::{name}", "CPU")


@functools.cache
def functional_overloads() -> tuple[str, ...]:
    """Every functional ATen overload that the installed PyTorch declares and runs on CPU."""
    import torchgen
    from torchgen.gen import parse_native_yaml
    from torchgen.model import SchemaKind

    native = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    declared = parse_native_yaml(str(native / "native_functions.yaml"), str(native / "tags.yaml")).native_functions
    names = (str(f.func.name) for f in declared if f.func.kind() == SchemaKind.functional)
    return tuple(sorted(name for name in names if has_cpu_kernel(name)))


def map_tensors(value: Any, convert: Callable[[torch.Tensor], Any]) -> Any:
    """The same nested lists and tuples with every tensor converted."""
    if isinstance(value, torch.Tensor):
        return convert(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(v, convert) for v in value) if type(value) in (list, tuple) else list(value)
    return value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(tensors_in, value.values()))
    elif isinstance(value, (list, tuple)):
        yield from itertools.chain.from_iterable(map(tensors_in, value))


def describe(value: Any) -> str:
    """A text that is equal for calls that differ only in the tensors' contents, and the same in every process."""
    if isinstance(value, torch.Tensor):
        layout = "" if value.layout == torch.strided else f" {value.layout}"
        return f"{value.dtype}{list(value.shape)}{layout}".removeprefix("torch.")
    if isinstance(value, dict):
        return ", ".join(f"{k}={describe(v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(describe, value))}]"
    return repr(value) if isinstance(value, (bool, int, float, complex, str, type(None))) else str(value)


def snapshot(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy. MindSpore hands contiguous tensors to custom operators, so PyTorch gets the same."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return tensor
    with torch.inference_mode(False), torch.no_grad():
        return tensor.detach().resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)


class Recorder(TorchDispatchMode):
    """Collects the distinct ATen calls made under it.

    Autograd decomposes composite operators before a dispatch mode sees them, except in inference mode. There they
    arrive whole, and are decomposed here under the same mode so that what they are made of is recorded too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.without_functional: Counter[str] = Counter()
        self.source = ""
        self._fresh: list[Call] = []

    def drain(self) -> list[Call]:
        fresh, self._fresh = self._fresh, []
        return fresh

    def record(self, op: torch._ops.OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        name = functional_name(op)
        if name is None:
            self.without_functional[op.name().removeprefix("aten::")] += 1
            return
        if op._schema.is_mutable:
            writable = {a.name for a in op._schema.arguments if a.is_write and a.kwarg_only}
            kwargs = {k: v for k, v in kwargs.items() if k not in writable}
        key = f"{name}({describe(args)}; {describe(kwargs)})"
        if key in self.seen:
            return
        self.seen.add(key)
        copies = map_tensors(tuple(args), snapshot), {k: map_tensors(v, snapshot) for k, v in kwargs.items()}
        self._fresh.append(Call(name, *copies, source=self.source, key=key))

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "aten":
            self.record(func, args, kwargs)
        # Only inference mode lets composites through whole; on the autograd path there is nothing to decompose.
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
        if composite and torch.is_inference_mode_enabled():
            with self:
                return func.decompose(*args, **kwargs)
        return func(*args, **kwargs)


@functools.cache
def opinfo_entries() -> list[Any]:
    """OpInfo's rows, those of the _foreach operators included, in a fixed order."""
    from torch.testing._internal import common_methods_invocations as opinfo

    foreach = [getattr(opinfo, name) for name in sorted(dir(opinfo)) if re.fullmatch(r"foreach_\w+_op_db", name)]
    return [*opinfo.op_db, *itertools.chain.from_iterable(foreach)]


def record_entry(
    recorder: Recorder, entry: Any, dtype: torch.dtype, device: str, backward: bool, most: int | None
) -> Iterator[Call]:
    """The new calls of one OpInfo row: its function and its aliases and, where it has a gradient, its backward.

    The first `most` samples of each are run.
    """
    if dtype not in entry.supported_dtypes(device):
        return
    recorder.source = f"OpInfo {entry.name}" + (f" ({entry.variant_test_name})" if entry.variant_test_name else "")
    functions = [entry.op, *(alias.op for alias in entry.aliases if alias.op)]
    seed_torch(SEED)
    for sample in itertools.islice(_samples(entry, device, dtype, requires_grad=False), most):
        for function in functions:
            # Samples that PyTorch itself refuses (jiterator without CUDA) have nothing to compare.
            with contextlib.suppress(Exception), torch.inference_mode(), recorder:
                function(sample.input, *sample.args, **sample.kwargs)
        yield from recorder.drain()
    if not (backward and entry.supports_autograd and dtype in entry.supported_backward_dtypes(device)):
        return
    recorder.source += " backward"
    seed_torch(SEED)
    for sample in itertools.islice(_samples(entry, device, dtype, requires_grad=True), most):
        with contextlib.suppress(Exception):
            result = entry.op(sample.input, *sample.args, **sample.kwargs)
            outputs = [t for t in tensors_in(result) if t.requires_grad]
            inputs = [t for t in tensors_in([sample.input, sample.args, sample.kwargs]) if t.requires_grad]
            cotangents = [torch.randn_like(t) for t in outputs]
            with recorder:
                torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)
        yield from recorder.drain()


def _samples(entry: Any, device: str, dtype: torch.dtype, requires_grad: bool) -> Iterator[Any]:
    """OpInfo's samples up to the first that it fails to build."""
    with contextlib.suppress(Exception):
        yield from entry.sample_inputs(device, dtype, requires_grad=requires_grad)


def record_own(recorder: Recorder, dtype: torch.dtype, device: str) -> Iterator[Call]:
    """The calls of tests/samples.py."""
    samples = _load_own_samples()
    recorder.source = "own"
    for name in sorted(samples.SAMPLES.keys() & set(functional_overloads())):  # PyTorch's releases differ
        seed_torch(SEED)
        # A sample that runs a forward kernel for its inputs cannot be built in dtypes which that kernel lacks.
        with contextlib.suppress(Exception):
            for args, kwargs in samples.calls(name, dtype):
                op = overload_named(name)
                on_device = (
                    map_tensors(tuple(args), lambda t: t.to(device)),
                    {k: map_tensors(v, lambda t: t.to(device)) for k, v in kwargs.items()},
                )
                if any(a.name == "device" and a.kwarg_only for a in op._schema.arguments):
                    on_device[1]["device"] = torch.device(device)
                recorder.record(op, *on_device)
        yield from recorder.drain()


@functools.cache
def _load_own_samples() -> Any:
    spec = importlib.util.spec_from_file_location("samples", ROOT / "tests" / "samples.py")
    if spec is None or spec.loader is None:
        raise ImportError("tests/samples.py is missing")
    module = importlib.util.module_from_spec(spec)
    sys.modules["samples"] = module
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------------------------------------------------------------
# Comparing


class Skip(Exception):
    """This call cannot be compared; the message is the reason that the report counts."""


class Mismatch(Exception):
    """The bridge's result differs from PyTorch's."""


def flatten(result: Any) -> list[Any]:
    """The leaves of a result: tensors, None for undefined ones, Python scalars."""
    if isinstance(result, (list, tuple)):
        return list(itertools.chain.from_iterable(map(flatten, result)))
    return [result]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    if tensor._is_zerotensor():
        tensor = torch.zeros_like(tensor)
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # Not reshape: a contiguous tensor of one element may keep a stride that view(uint8) refuses.
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal dtype, shape and bits, but any NaN equals any NaN."""
    return a.dtype == b.dtype and a.shape == b.shape and (torch.equal(_bits(a), _bits(b)) or not _differing(a, b).any())


def _differing(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.numel() == 0:
        return torch.zeros(0, dtype=torch.bool)
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    a, b = a.resolve_neg().cpu(), b.resolve_neg().cpu()
    width = a.element_size()
    differ = (_bits(a).reshape(-1, width) != _bits(b).reshape(-1, width)).any(dim=1)
    if a.is_floating_point():
        differ &= ~(a.double().isnan() & b.double().isnan()).reshape(-1)
    return differ


def compare(expected: list[Any], actual: list[Any], values: bool = True, tolerance: float = 0.0) -> None:
    """Raise Mismatch at the first difference. A tolerance is relative to the largest expected value."""
    if len(expected) != len(actual):
        raise Mismatch(f"{len(actual)} results instead of {len(expected)}")
    for i, (want, got) in enumerate(zip(expected, actual, strict=True)):
        if not isinstance(want, torch.Tensor):
            same = type(want) is type(got) and (want == got or (want != want and got != got))
            if not same:
                raise Mismatch(f"result {i} is {got!r:.80} instead of {want!r:.80}")
            continue
        if not isinstance(got, torch.Tensor):
            raise Mismatch(f"result {i} is {got!r:.80} instead of a tensor")
        if got.dtype != want.dtype:
            raise Mismatch(f"result {i} has dtype {got.dtype} instead of {want.dtype}")
        if got.shape != want.shape:
            raise Mismatch(f"result {i} has shape {list(got.shape)} instead of {list(want.shape)}")
        if values and not same_bits(want, got):
            _compare_values(i, want, got, tolerance)


def _compare_values(i: int, want: torch.Tensor, got: torch.Tensor, tolerance: float) -> None:
    wide = torch.complex128 if want.is_complex() else torch.float64
    want_wide, got_wide = want.cpu().to(wide), got.cpu().to(wide)
    finite = torch.isfinite(want_wide) & torch.isfinite(got_wide)
    largest = (want_wide - got_wide)[finite].abs().max().item() if finite.any() else 0.0
    if tolerance and torch.allclose(
        got_wide,
        want_wide,
        rtol=0.0,
        atol=tolerance * max(1.0, want_wide[finite].abs().max().item() if finite.any() else 1.0),
        equal_nan=True,
    ):
        return
    # Complex values differ by parts.
    count = int(_differing(want, got).reshape(want.numel(), -1).any(dim=1).sum())
    raise Mismatch(f"result {i}: {count} of {want.numel()} values differ, by at most {largest:.3g}")


# ---------------------------------------------------------------------------------------------------------------------
# Running one call


@contextlib.contextmanager
def _skip_on_error(reason: str) -> Iterator[None]:
    """PyTorch's own refusal is no miss of the bridge."""
    try:
        yield
    except Exception as error:
        raise Skip(reason) from error


def check_representable(value: Any) -> None:
    """Raise Skip for a tensor that no MindSpore tensor can hold."""
    if not isinstance(value, torch.Tensor):
        return
    if value.is_quantized or value.is_nested or value.layout != torch.strided:
        raise Skip(f"{'quantized' if value.is_quantized else 'nested' if value.is_nested else 'sparse'} tensors")
    if value.dtype not in DTYPE_NAMES:
        raise Skip(f"MindSpore has no {value.dtype}")


@dataclasses.dataclass(frozen=True)
class WrittenCall:
    """A call as Python source: an expression over tensor parameters and module constants."""

    expression: str
    parameters: str
    tensors: list[Any]
    constants: dict[str, Any]


class Runner:
    """Makes one recorded call through PyTorch and through the bridge.

    MindSpore and the bridge are imported here, so that recording works without them.
    """

    def __init__(self, mode: str = "pynative", device: str = "CPU") -> None:
        import mindspore as ms

        import bridge
        import bridge.coverage

        self.ms = ms
        self.aten = bridge.aten
        self.seed_bridge = bridge.manual_seed
        self.coverage: dict[str, dict[str, Any]] = bridge.coverage.report()["overloads"]
        self.mode = mode
        self.torch_device = "cuda" if device == "GPU" else "cpu"
        if ms.get_context("device_target") != device:  # MindSpore refuses to set it twice
            ms.set_device(device)
        ms.set_context(mode=ms.PYNATIVE_MODE)
        ms_names = {torch.bool: "bool_"}
        self.to_ms_dtype = {dtype: getattr(ms, ms_names.get(dtype, name)) for dtype, name in DTYPE_NAMES.items()}
        self.to_torch_dtype = {v: k for k, v in self.to_ms_dtype.items()}
        self._sources = tempfile.TemporaryDirectory(prefix="conformance-")
        self._source_count = itertools.count()

    # Conversions, by raw bytes so that every dtype and every bit survives.

    def to_ms(self, tensor: torch.Tensor) -> Any:
        dtype = self.to_ms_dtype.get(tensor.dtype)
        if dtype is None:
            raise Skip(f"MindSpore has no {tensor.dtype}")
        data = _bits(tensor).numpy().tobytes()
        return self.ms.Tensor(self.ms.Tensor.convert_bytes_to_tensor(data, tuple(tensor.shape), dtype))

    def to_torch(self, tensor: Any) -> torch.Tensor:
        dtype = self.to_torch_dtype.get(tensor.dtype)
        if dtype is None:
            raise Mismatch(f"result has MindSpore dtype {tensor.dtype}")
        data = bytearray(tensor.get_bytes())
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        return flat.reshape(tuple(tensor.shape))

    def convert_argument(self, value: Any) -> Any:
        """A PyTorch argument as a MindSpore user writes it."""
        if isinstance(value, torch.Tensor):
            return self.to_ms(value)
        if isinstance(value, (list, tuple)):
            return [self.convert_argument(v) for v in value]
        if isinstance(value, torch.dtype):
            if value not in self.to_ms_dtype:
                raise Skip(f"MindSpore has no {value}")
            return self.to_ms_dtype[value]
        if isinstance(value, torch.memory_format):
            return str(value).removeprefix("torch.")
        if isinstance(value, torch.Generator):
            raise Skip("an explicit generator object")
        return value

    def flatten_ms(self, result: Any) -> list[Any]:
        return [self.to_torch(v) if isinstance(v, self.ms.Tensor) else v for v in flatten(result)]

    # The reference

    def check_comparable(self, call: Call) -> dict[str, Any]:
        """The overload's line of the coverage report; raises Skip where MindSpore cannot take the call."""
        for tensor in tensors_in([call.args, call.kwargs]):
            check_representable(tensor)
        devices = {v.type for v in (*call.args, *call.kwargs.values()) if isinstance(v, torch.device)}
        if devices - {self.torch_device}:
            raise Skip("asks for another device")
        coverage = self.coverage.get(call.overload)
        if coverage is None:
            raise Mismatch("the coverage report does not list this overload")
        if coverage["status"] != "callable":
            raise Skip(f"coverage: {coverage['reason']}")
        return coverage

    def placed(self, call: Call, coverage: dict[str, Any]) -> Call:
        """The call with its tensors where the bridge runs it: for some operators on CPU, whatever the device.

        Raises Skip for a CUDA kernel that takes tensors of the host's too: MindSpore's are all on the GPU.
        """
        if self.torch_device == "cpu" or "GPU" in coverage["devices"]:
            for tensor in tensors_in([call.args, call.kwargs]):
                if tensor.device.type != self.torch_device:
                    raise Skip(f"tensors on {tensor.device.type}")
            return call
        kwargs = {k: map_tensors(v, torch.Tensor.cpu) for k, v in call.kwargs.items()}
        return dataclasses.replace(call, args=map_tensors(call.args, torch.Tensor.cpu), kwargs=kwargs)

    @staticmethod
    def copies(call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Fresh tensors for each run: some functional schemas write to their inputs all the same."""
        kwargs = {k: map_tensors(v, torch.Tensor.clone) for k, v in call.kwargs.items()}
        return map_tensors(call.args, torch.Tensor.clone), kwargs

    def repeatable(self, compute: Callable[[], list[Any]], seeded: bool) -> list[Any]:
        """PyTorch's result, computed twice; raises Skip when PyTorch does not repeat itself."""
        runs = []
        for _ in range(2):
            if seeded:
                seed_torch(SEED)
            runs.append(compute())
        try:
            compare(runs[0], runs[1])
        except Mismatch:
            raise Skip("PyTorch does not repeat itself") from None
        return runs[0]

    def reference(self, call: Call, seeded: bool) -> list[Any]:
        def compute() -> list[Any]:
            args, kwargs = self.copies(call)
            with _skip_on_error("PyTorch refuses these arguments"), torch.no_grad():
                results = flatten(call.op(*args, **kwargs))
            for result in results:
                check_representable(result)
            return results

        if call.overload in UNINITIALISED:
            return compute()
        return self.repeatable(compute, seeded)

    @staticmethod
    def compare_to(expected: list[Any], actual: list[Any], again: Callable[[], list[Any]], **how: Any) -> None:
        """Compare with PyTorch's result; raises Skip for a miss if PyTorch, asked `again`, does not repeat itself."""
        try:
            compare(expected, actual, **how)
        except Mismatch as miss:
            for _ in range(DOUBTS):
                try:
                    compare(expected, again())
                except Mismatch:
                    raise Skip("PyTorch does not repeat itself") from None
            raise miss

    def is_seeded(self, call: Call, coverage: dict[str, Any]) -> bool:
        return bool(coverage.get("random")) or torch.Tag.nondeterministic_seeded in call.op.tags

    # The comparison

    def judge(self, call: Call, check: Callable[[Call], None]) -> Outcome:
        """Run one check and turn whatever happens into an outcome: nothing that one call does may end a sweep."""
        status, cause = PASSED, ""
        try:
            check(call)
        except Skip as skip:
            status, cause = SKIPPED, str(skip)
        except Mismatch as mismatch:
            status, cause = FAILED, str(mismatch)
        except Exception as error:
            status, cause = FAILED, f"{type(error).__name__}: {_first_line(error)}"
        return Outcome(call.overload, status, cause, call.source, call.key)

    def check_forward(self, call: Call) -> None:
        coverage = self.check_comparable(call)
        call = self.placed(call, coverage)
        seeded = self.is_seeded(call, coverage)
        expected = self.reference(call, seeded)
        if self.mode == "graph":
            self.check_has_graph(coverage)
            run = self.graph_function(call)
        else:
            run = self.pynative_function(call)
        if seeded:
            self.seed_bridge(SEED)
        again = functools.partial(self.reference, call, seeded)
        self.compare_to(expected, self.flatten_ms(run()), again, values=call.overload not in UNINITIALISED)

    @staticmethod
    def check_has_graph(coverage: dict[str, Any]) -> None:
        """Raise Skip for an overload that works in PyNative mode only."""
        if coverage["graph_reason"]:
            raise Skip(f"graph mode: {coverage['graph_reason']}")

    def bridge_overload(self, name: str) -> Any:
        packet, _, overload = name.partition(".")
        return getattr(getattr(self.aten, packet), overload or "default")

    def pynative_function(self, call: Call) -> Callable[[], Any]:
        function = self.bridge_overload(call.overload)
        args = [self.convert_argument(v) for v in call.args]
        kwargs = {k: self.convert_argument(v) for k, v in call.kwargs.items()}
        return lambda: function(*args, **kwargs)

    def graph_function(self, call: Call) -> Callable[[], Any]:
        """The call inside a compiled function of its tensors alone."""
        written = self.write_call(call)
        source = f"@ms.jit\ndef call({written.parameters}):\n    return {written.expression}\n"
        module = self._import_source(source, written.constants)
        return lambda: module.call(*written.tensors)

    def write_call(self, call: Call) -> WrittenCall:
        """MindSpore compiles Python source, so the call is written as such; what is not a tensor becomes a constant."""
        tensors: list[Any] = []
        constants: dict[str, Any] = {}

        def expression(value: Any) -> str:
            if isinstance(value, torch.Tensor):
                tensors.append(self.to_ms(value))
                return f"t{len(tensors) - 1}"
            if isinstance(value, (list, tuple)):
                return f"[{', '.join(map(expression, value))}]"
            if isinstance(value, torch.device):
                return repr(value.type)
            if isinstance(value, torch.layout):
                return "None"  # graphs cannot hold PyTorch objects, and this is the default
            constant = self.convert_argument(value)
            if constant is None or isinstance(constant, (bool, int, str)):
                return repr(constant)
            constants[f"c{len(constants)}"] = constant
            return f"c{len(constants) - 1}"

        arguments = [expression(v) for v in call.args] + [f"{k}={expression(v)}" for k, v in call.kwargs.items()]
        packet, _, overload = call.overload.partition(".")
        overload = overload or "default"
        callee = f'getattr(aten.{packet}, "{overload}")' if keyword.iskeyword(overload) else f"aten.{packet}.{overload}"
        parameters = ", ".join(f"t{i}" for i in range(len(tensors)))
        return WrittenCall(f"{callee}({', '.join(arguments)})", parameters, tensors, constants)

    def _import_source(self, source: str, constants: dict[str, Any]) -> Any:
        name = f"conformance_call_{next(self._source_count)}"
        path = Path(self._sources.name) / f"{name}.py"
        path.write_text(f"import mindspore as ms\nfrom bridge import aten\n\n\n{source}")
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise ImportError(str(path))
        module = importlib.util.module_from_spec(spec)
        vars(module).update(constants)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    # Gradients

    def gradient_reference(
        self, call: Call, seeded: bool, second: bool
    ) -> tuple[list[Any], list[int], list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
        """PyTorch's gradients of one call.

        Gives the gradients, the positions of the differentiable ones among the results, the first cotangents, the
        differentiable inputs, and the second cotangents (empty for first-order gradients).
        """
        layout: list[Any] = [[], [], [], []]

        def compute() -> list[Any]:
            args, kwargs = self.copies(call)
            inputs = [t.requires_grad_() for t in tensors_in([args, kwargs]) if _can_require_grad(t)]
            with _skip_on_error("PyTorch refuses these arguments"):
                outputs = flatten(call.op(*args, **kwargs))
            places = [i for i, o in enumerate(outputs) if isinstance(o, torch.Tensor) and o.requires_grad]
            if not inputs or not places:
                raise Skip("not differentiable")
            results = [outputs[i] for i in places]
            generator = torch.Generator().manual_seed(SEED)
            cotangents = [_random_like(o, generator) for o in results]
            with _skip_on_error("PyTorch has no gradient here"):
                grads = torch.autograd.grad(results, inputs, cotangents, create_graph=second, allow_unused=True)
            if all(grad is None for grad in grads):  # an overload of which autograd knows nothing
                raise Skip("PyTorch has no gradient here")
            cotangents2: list[torch.Tensor] = []
            if second:
                grads = tuple(torch.zeros_like(t) if g is None else g for g, t in zip(grads, inputs, strict=True))
                cotangents2 = [_random_like(g, generator) for g in grads]
                pairs = [(g, c) for g, c in zip(grads, cotangents2, strict=True) if g.requires_grad]
                if not pairs:
                    raise Skip("not differentiable twice")
                with _skip_on_error("PyTorch has no second gradient here"):
                    differentiable, weights = zip(*pairs, strict=True)
                    grads = torch.autograd.grad(differentiable, inputs, weights, allow_unused=True)
            layout[:] = [places, cotangents, inputs, cotangents2]
            # MindSpore has no sparse gradients: the bridge gives the dense one.
            return [torch.zeros_like(t) if g is None else g.to_dense() for g, t in zip(grads, inputs, strict=True)]

        return self.repeatable(compute, seeded), *layout

    def check_gradients(self, call: Call, second: bool = False) -> None:
        """Gradients of the call through MindSpore against torch.autograd.grad, for the same random cotangents."""
        coverage = self.check_comparable(call)
        call = self.placed(call, coverage)
        seeded = self.is_seeded(call, coverage)
        expected, places, cotangents, inputs, cotangents2 = self.gradient_reference(call, seeded, second)
        ms_inputs = [self.to_ms(t) for t in inputs]
        sens = _only_or_tuple([self.to_ms(t) for t in cotangents])
        gradient_of = self.ms.ops.GradOperation(get_all=True, sens_param=True)
        if self.mode == "graph":
            self.check_has_graph(coverage)
            run_gradients = self.graph_gradients(call, places, sens)
        else:
            run_gradients = functools.partial(gradient_of(self.differentiable_function(call, places)), *ms_inputs, sens)
        if seeded:
            self.seed_bridge(SEED)

        def again() -> list[Any]:
            return self.gradient_reference(call, seeded, second)[0]

        if not second:
            self.compare_to(expected, self.flatten_ms(run_gradients()), again)
            return
        function = self.differentiable_function(call, places)

        def first_gradients(*inputs: Any) -> Any:
            return _only_or_tuple(gradient_of(function)(*inputs, sens))

        sens2 = _only_or_tuple([self.to_ms(t) for t in cotangents2])
        grads = gradient_of(first_gradients)(*ms_inputs, sens2)
        self.compare_to(expected, self.flatten_ms(grads), again, tolerance=SECOND_ORDER_TOLERANCE)

    def differentiable_function(self, call: Call, places: list[int]) -> Callable[..., Any]:
        """The call as a function of its differentiable inputs, giving its differentiable results."""
        function = self.bridge_overload(call.overload)
        fixed = {id(t): self.to_ms(t) for t in tensors_in([call.args, call.kwargs]) if not _can_require_grad(t)}

        def run(*inputs: Any) -> Any:
            remaining = iter(inputs)

            def argument(value: Any) -> Any:
                if isinstance(value, torch.Tensor):
                    return fixed[id(value)] if id(value) in fixed else next(remaining)
                if isinstance(value, (list, tuple)):
                    return [argument(v) for v in value]
                return self.convert_argument(value)

            args = [argument(v) for v in call.args]
            kwargs = {k: argument(v) for k, v in call.kwargs.items()}
            results = flatten(function(*args, **kwargs))
            return _only_or_tuple([results[i] for i in places])

        return run

    def graph_gradients(self, call: Call, places: list[int], sens: Any) -> Callable[[], Any]:
        """The gradients of the differentiable inputs from one compiled graph of forward and backward."""
        returns = [str(r.type) for r in call.op._schema.returns]
        if len(returns) > 1 and set(returns) != {"Tensor"}:
            raise Skip("graph mode: nested results")
        written = self.write_call(call)
        chosen = "results" if returns == ["Tensor"] else ", ".join(f"results[{i}]" for i in places)
        source = (
            f"def call({written.parameters}):\n"
            f"    results = {written.expression}\n"
            f"    return {chosen}\n\n\n"
            "gradient_of = ms.ops.GradOperation(get_all=True, sens_param=True)\n\n\n"
            f"@ms.jit\ndef gradients({written.parameters}, sens):\n"
            f"    return gradient_of(call)({written.parameters}, sens)\n"
        )
        module = self._import_source(source, written.constants)
        wanted = [i for i, t in enumerate(tensors_in([call.args, call.kwargs])) if _can_require_grad(t)]

        def run() -> list[Any]:
            grads = module.gradients(*written.tensors, sens)
            return [grads[i] for i in wanted]

        return run


def _can_require_grad(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _only_or_tuple(values: Sequence[Any]) -> Any:
    """MindSpore takes one cotangent bare and several as a tuple."""
    return values[0] if len(values) == 1 else tuple(values)


def _random_like(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A fixed random cotangent, drawn in double so that every dtype has one."""
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return torch.randn(tensor.shape, dtype=wide, generator=generator).to(tensor)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    return (lines[0] if lines else "no message")[:200]


# ---------------------------------------------------------------------------------------------------------------------
# Sweeping


@dataclasses.dataclass(frozen=True)
class Options:
    """What to sweep and how; plain data, so that worker processes can have it."""

    mode: str = "pynative"
    device: str = "CPU"
    check: str = "forward"
    ops: tuple[str, ...] = ()
    max_calls: int | None = None
    max_samples: int | None = None
    limit: int | None = None
    own_samples: bool = True
    backward_calls: bool = True

    def selects(self, overload: str) -> bool:
        packet = overload.partition(".")[0]
        return not self.ops or any(fnmatch.fnmatch(overload, p) or fnmatch.fnmatch(packet, p) for p in self.ops)


def sources(options: Options) -> list[int | None]:
    """What a sweep records, in order: rows of OpInfo by position, None for our own samples."""
    rows: list[int | None] = [*range(len(opinfo_entries()))][: options.limit]
    return [*rows, None] if options.own_samples else rows


@contextlib.contextmanager
def cheap_samples() -> Iterator[None]:
    """Spare OpInfo what it does around each sample: seed every kind of device, walk the stack for a unittest."""
    patch = unittest.mock.patch
    search = "torch.testing._internal.common_utils.extract_test_fn"
    with patch("torch.manual_seed", seed_torch), patch(search, lambda: None, create=True):
        yield


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Samples are tiny: handing them to a team of threads costs several times what they do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def record_source(source: int | None, recorder: Recorder, dtype: torch.dtype, options: Options) -> Iterator[Call]:
    device = "cuda" if options.device == "GPU" else "cpu"
    if source is None:
        return record_own(recorder, dtype, device)
    return record_entry(recorder, opinfo_entries()[source], dtype, device, options.backward_calls, options.max_samples)


def recorded_calls(
    dtype: torch.dtype, options: Options, recorder: Recorder | None = None, progress: bool = False
) -> Iterator[Call]:
    """The distinct calls of a sweep, at most max_calls (one in graph mode) for each overload.

    Where calls are few, those with an empty tensor come last: they prove less.
    """
    recorder = recorder or Recorder()
    most = 1 if options.mode == "graph" else options.max_calls
    made: Counter[str] = Counter()
    held_back: list[Call] = []
    name = str(dtype).removeprefix("torch.")
    with warnings.catch_warnings(), cheap_samples():
        warnings.simplefilter("ignore")
        for source in tqdm(sources(options), desc=name, unit="row", disable=not progress, file=sys.stderr):
            with single_thread():
                calls = list(record_source(source, recorder, dtype, options))
            for call in calls:
                if not options.selects(call.overload) or (most is not None and made[call.overload] >= most):
                    continue
                if most is not None and any(t.numel() == 0 for t in tensors_in([call.args, call.kwargs])):
                    held_back.append(call)
                    continue
                made[call.overload] += 1
                yield call
        for call in held_back:
            if most is not None and made[call.overload] < most:
                made[call.overload] += 1
                yield call


def checker(runner: Runner, options: Options) -> Callable[[Call], None]:
    checks: dict[str, Callable[[Call], None]] = {
        "forward": runner.check_forward,
        "gradients": runner.check_gradients,
        "gradgrad": functools.partial(runner.check_gradients, second=True),
    }
    return checks[options.check]


def sweep(dtype: torch.dtype, options: Options, progress: bool = False) -> Iterator[Outcome]:
    """Record and judge in this process."""
    runner = Runner(options.mode, options.device)
    check = checker(runner, options)
    recorder = Recorder()
    for call in recorded_calls(dtype, options, recorder, progress):
        yield runner.judge(call, check)
    yield from _without_functional(recorder, options)


def _without_functional(recorder: Recorder, options: Options) -> Iterator[Outcome]:
    for overload, count in recorder.without_functional.items():
        if options.selects(overload):
            yield from itertools.repeat(Outcome(overload, SKIPPED, "in-place or out, no functional counterpart"), count)


def _work(dtype: torch.dtype, options: Options, part: int, parts: int, done: set[str], pipe: Any) -> None:
    """A worker of an isolated sweep: announces each call before it makes it, so that a crash has a name."""
    runner = Runner(options.mode, options.device)
    check = checker(runner, options)
    recorder = Recorder()
    for call in recorded_calls(dtype, options, recorder):
        if int.from_bytes(hashlib.md5(call.key.encode()).digest()[:4], "big") % parts != part or call.key in done:
            continue
        pipe.send((call.overload, call.source, call.key))
        pipe.send(runner.judge(call, check))
    if part == 0:
        for outcome in _without_functional(recorder, options):
            pipe.send(outcome)
    pipe.send(None)


def isolated_sweep(dtype: torch.dtype, options: Options, jobs: int) -> Iterator[Outcome]:
    """Judge in worker processes. A worker that dies or hangs costs one call, and is started again after it."""
    context = multiprocessing.get_context("spawn")
    done: list[set[str]] = [set() for _ in range(jobs)]
    announced: dict[int, tuple[str, str, str] | None] = {}
    workers: dict[int, tuple[Any, Any]] = {}

    def start(part: int) -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(dtype, options, part, jobs, done[part], theirs), daemon=True)
        process.start()
        theirs.close()
        announced[part] = None
        workers[part] = process, ours

    for part in range(jobs):
        start(part)
    name = str(dtype).removeprefix("torch.")
    with tqdm(desc=f"{name}, isolated", unit="call", file=sys.stderr) as bar:
        while workers:
            ready = multiprocessing.connection.wait([pipe for _, pipe in workers.values()], timeout=CALL_TIMEOUT_S)
            for part, (process, pipe) in list(workers.items()):
                if ready and pipe not in ready:
                    continue
                try:
                    if not ready:
                        raise TimeoutError
                    message = pipe.recv()
                except (EOFError, TimeoutError) as end:
                    process.kill()
                    process.join()
                    call = announced[part]
                    if call is None:
                        raise RuntimeError(f"a worker died between calls, exit code {process.exitcode}") from None
                    hung = isinstance(end, TimeoutError)
                    cause = f"no result in {CALL_TIMEOUT_S} s" if hung else f"exit code {process.exitcode}"
                    done[part].add(call[2])
                    yield Outcome(call[0], CRASHED, cause, call[1], call[2])
                    start(part)
                    continue
                if message is None:
                    process.join()
                    del workers[part]
                elif isinstance(message, Outcome):
                    announced[part] = None
                    done[part].add(message.key)
                    bar.update()
                    yield message
                else:
                    announced[part] = message


# ---------------------------------------------------------------------------------------------------------------------
# Reporting


def load_expected_misses(device: str) -> dict[str, str]:
    """Overload to the reason why it cannot have PyTorch's bits on "CPU" or "GPU"."""
    reasons = yaml.safe_load(EXPECTED_MISSES.read_text())
    return reasons["everywhere"] | reasons[device]


def summarise(outcomes: Iterable[Outcome], device: str) -> dict[str, Any]:
    """The figures of one sweep, as the report prints them and as JSON holds them."""
    statuses: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    reached: set[str] = set()
    compared: set[str] = set()
    misses: dict[str, list[Outcome]] = defaultdict(list)
    expected = load_expected_misses(device)
    for outcome in outcomes:
        statuses[outcome.status] += 1
        reached.add(outcome.overload)
        if outcome.status == SKIPPED:
            skips[outcome.cause] += 1
            continue
        compared.add(outcome.overload)
        if outcome.status in (FAILED, CRASHED):
            misses[outcome.overload].append(outcome)
    judged = statuses[PASSED] + statuses[FAILED] + statuses[CRASHED]
    functional = functional_overloads()
    return {
        "calls": sum(statuses.values()),
        "reached": len(reached),
        "compared": len(compared),
        "passed": statuses[PASSED],
        "failed": statuses[FAILED],
        "crashed": statuses[CRASHED],
        "skipped": statuses[SKIPPED],
        "percent": 100.0 * statuses[PASSED] / judged if judged else 0.0,
        "skipped_by_reason": dict(skips.most_common()),
        "misses": {
            overload: {
                "count": len(found),
                "cause": found[0].cause,
                "call": found[0].key,
                "source": found[0].source,
                "expected": expected.get(overload),
            }
            for overload, found in sorted(misses.items())
        },
        "not_reached": [name for name in functional if name not in reached],
    }


def print_report(reports: dict[str, dict[str, Any]]) -> None:
    columns = ("reached", "compared", "calls", "passed", "failed", "crashed", "skipped", "percent")
    print(f"{'dtype':16}" + "".join(f"{c:>10}" for c in columns))
    for dtype, report in reports.items():
        cells = (f"{report[c]:10.2f}" if c == "percent" else f"{report[c]:10}" for c in columns)
        print(f"{dtype:16}{''.join(cells)}")
    skips: Counter[str] = Counter()
    for report in reports.values():
        skips.update(report["skipped_by_reason"])
    if skips:
        print("\nskipped calls")
        for reason, count in skips.most_common():
            print(f"{count:8}  {reason}")
    for dtype, report in reports.items():
        if report["misses"]:
            print(f"\nmisses, {dtype}")
        for overload, miss in report["misses"].items():
            print(f"{miss['count']:8}  {overload}: {miss['cause']}")
            print(f"{'':10}{miss['source']}: {miss['call'][:200]}")
            if miss["expected"]:
                print(f"{'':10}expected: {miss['expected']}")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="", help="comma-separated dtypes (default float32; float64 for --gradgrad)")
    parser.add_argument("--mode", choices=("pynative", "graph"), default="pynative")
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU", help="PyTorch's reference runs there too")
    parser.add_argument("--ops", default="", help="comma-separated overloads, packets or patterns, such as 'conv*,add'")
    parser.add_argument("--limit", type=int, help="only the first rows of OpInfo")
    parser.add_argument("--max-samples", type=int, help="only the first samples of each row")
    parser.add_argument("--max-calls", type=int, help="at most this many calls for each overload")
    parser.add_argument("--own-samples", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--backward-calls",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="record what the samples' backward reaches as well (kernels such as leaky_relu_backward)",
    )
    check = parser.add_mutually_exclusive_group()
    check.add_argument("--gradients", action="store_true", help="compare first-order gradients instead of results")
    check.add_argument("--gradgrad", action="store_true", help="compare second-order gradients, to float64 round-off")
    parser.add_argument("--isolate", action="store_true", help="judge in a child process: a crash costs one call")
    parser.add_argument("--jobs", type=int, default=1, help="child processes; more than one implies --isolate")
    parser.add_argument("--json", type=Path, help="write the report here too")
    parser.add_argument("--minimum", type=float, default=0.0, help="exit with 1 when fewer percent of the calls pass")
    parsed = parser.parse_args(arguments)
    parsed.dtypes = [d for d in (parsed.dtypes or ("float64" if parsed.gradgrad else "float32")).split(",") if d]
    unknown = [d for d in parsed.dtypes if d not in SHARED_DTYPES]
    if unknown:
        parser.error(f"unknown dtypes: {', '.join(unknown)}; there are {', '.join(SHARED_DTYPES)}")
    if parsed.mode == "graph" and parsed.gradgrad:
        parser.error("second-order gradients are compared in PyNative mode")
    return parsed


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = parse_arguments(arguments)
    options = Options(
        mode=parsed.mode,
        device=parsed.device,
        check="gradients" if parsed.gradients else "gradgrad" if parsed.gradgrad else "forward",
        ops=tuple(p for p in parsed.ops.split(",") if p),
        max_calls=parsed.max_calls,
        max_samples=parsed.max_samples,
        limit=parsed.limit,
        own_samples=parsed.own_samples,
        backward_calls=parsed.backward_calls,
    )
    reports = {}
    for name in parsed.dtypes:
        dtype = getattr(torch, name)
        if parsed.isolate or parsed.jobs > 1:
            outcomes = isolated_sweep(dtype, options, parsed.jobs)
        else:
            outcomes = sweep(dtype, options, progress=True)
        reports[name] = summarise(outcomes, options.device)
    if parsed.json:
        parsed.json.write_text(json.dumps({"options": dataclasses.asdict(options), "dtypes": reports}, indent=1))
    print_report(reports)
    return 0 if all(report["percent"] >= parsed.minimum for report in reports.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
