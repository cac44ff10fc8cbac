"""Compares PyTorch's functions on MindSpore's tensors (bridge.torch) with PyTorch's, bit for bit.

Each row of PyTorch's OpInfo database is called as its public function, and as the method of tensors that it is, on
PyTorch's own samples.

Usage:

    python -m scripts.conformance.functions                       # results of float32 and int64, PyNative
    python -m scripts.conformance.functions --gradients           # gradients of float32
    python -m scripts.conformance.functions --mode graph          # the first samples of each function under ms.jit
    python -m scripts.conformance.functions --errors              # what PyTorch refuses: the same class and words
    python -m scripts.conformance.functions --names 'nn.functional.*,einsum' --verbose
    python -m scripts.conformance.functions --device GPU --every 5
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import itertools
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch.testing._internal.opinfo.core import ForeachFuncInfo

import bridge
from bridge import torch as T
from bridge.op import devices
from bridge.torch import fft, linalg, special
from bridge.torch.function import Function
from bridge.torch.nn import functional as F

from . import convert, reference
from .autograd import Expected, can_require_grad, expected
from .calls import SEED, Call, describe, map_tensors, seed_torch
from .check import set_device
from .compare import flatten
from .dtypes import check_representable
from .gradients import gradient_of
from .record import snapshot
from .source import WrittenCall, module_of
from .sources import opinfo_entries
from .verdict import FAILED, PASSED, SKIPPED, Mismatch, Outcome, Skip, judge, skip_on_error

NAMESPACES: tuple[ModuleType, ...] = (T, F, linalg, fft, special)
# Methods that take the tensor after another argument when they are functions.
OTHER_ORDER = ("polygamma", "where")
UNINITIALISED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")


@dataclass(frozen=True)
class FunctionCall(Call):
    """A call of one of PyTorch's functions, and of the bridge's."""

    theirs: Callable[..., Any]
    ours: Function

    @property
    def op(self) -> Any:
        return self.theirs


def rows() -> Iterator[tuple[Any, Function, Callable[..., Any]]]:
    """Rows of OpInfo with a function of the bridge and PyTorch's own: the public function, and the method if that is
    another one."""
    public = [value for namespace in NAMESPACES for value in vars(namespace).values() if type(value) is Function]
    by_function = {id(value.function): value for value in public}
    for entry in opinfo_entries():
        if isinstance(entry, ForeachFuncInfo):  # private functions on lists of tensors
            continue
        function = by_function.get(id(entry.op))
        if function is not None:
            yield entry, function, entry.op
        name = getattr(entry.method_variant, "__name__", "")
        method = vars(T).get(name) if name not in OTHER_ORDER else None
        if type(method) is Function and method is not function:
            yield entry, method, entry.method_variant


def calls(
    entry: Any, ours: Function, theirs: Callable[..., Any], dtype: torch.dtype, device: str, most: int | None
) -> Iterator[FunctionCall]:
    seed_torch(SEED)
    samples = entry.sample_inputs(device, dtype, requires_grad=False)
    for sample in itertools.islice(samples, most):
        args = map_tensors((sample.input, *sample.args), snapshot)
        kwargs = {key: map_tensors(value, snapshot) for key, value in sample.kwargs.items()}
        yield FunctionCall(
            ours.__name__, args, kwargs, entry.full_name, f"{describe(args)}; {describe(kwargs)}", theirs, ours
        )


def compare_results(call: FunctionCall, graph: bool) -> None:
    for tensor in call.tensors():
        check_representable(tensor)
    values = call.overload.rpartition(".")[2] not in UNINITIALISED

    def compute() -> list[Any]:
        args, kwargs = reference.copies(call)
        seed_torch(SEED)
        with skip_on_error("PyTorch refuses these arguments"), torch.no_grad():
            found = flatten(call.theirs(*args, **kwargs))
        for result in found:
            check_representable(result)
        return [torch.Tensor.contiguous(v) if isinstance(v, torch.Tensor) else v for v in found]

    wanted = reference.repeatable(compute, list, True) if values else compute()
    run = compiled(call) if graph else in_pynative(call)
    bridge.manual_seed(SEED)
    found = convert.leaves(run())
    reference.compare_to([_value(v) for v in wanted], found, compute, values=values)


def _value(value: Any) -> Any:
    return convert.ms_dtype(value) if isinstance(value, torch.dtype) else value


def argument(value: Any) -> Any:
    return value if isinstance(value, torch.memory_format) else convert.argument(value)


def arguments(call: FunctionCall) -> tuple[list[Any], dict[str, Any]]:
    return [*map(argument, call.args)], {key: argument(value) for key, value in call.kwargs.items()}


def in_pynative(call: FunctionCall) -> Callable[[], Any]:
    args, kwargs = arguments(call)
    return lambda: call.ours(*args, **kwargs)


class WrittenFunction(WrittenCall):
    def argument(self, value: Any) -> str:
        if not isinstance(value, torch.memory_format):
            return super().argument(value)
        self.constants[name := f"c{len(self.constants)}"] = value
        return name


def written(call: FunctionCall) -> WrittenCall:
    """The call as source, with the function as the constant `function`."""
    found = WrittenFunction()
    given = [*map(found.argument, call.args), *(f"{k}={found.argument(v)}" for k, v in call.kwargs.items())]
    found.expression = f"function({', '.join(given)})"
    found.constants["function"] = call.ours
    return found


def compiled(call: FunctionCall) -> Callable[[], Any]:
    found = written(call)
    source = f"import mindspore as ms\n\n\n@ms.jit\ndef call({found.parameters}):\n    return {found.expression}\n"
    module = module_of(source, found.constants)
    return lambda: module.call(*found.tensors)


def compare_gradients(call: FunctionCall, graph: bool) -> None:
    for tensor in call.tensors():
        check_representable(tensor)
    wanted = expected(call, True, False)
    for tensor in wanted.cotangents:
        check_representable(tensor)
    run = compiled_gradients(call, wanted) if graph else pynative_gradients(call, wanted)
    bridge.manual_seed(SEED)
    found = convert.leaves(run())
    reference.compare_to(wanted.gradients, found, lambda: expected(call, True, False).gradients)


def pynative_gradients(call: FunctionCall, wanted: Expected) -> Callable[[], Any]:
    fixed = {id(t): convert.to_ms(t) for t in call.tensors() if not can_require_grad(t)}

    def function(*inputs: Any) -> Any:
        left = iter(inputs)
        made = call.with_tensors(lambda t: fixed[id(t)] if id(t) in fixed else next(left))
        args, kwargs = arguments(made)  # type: ignore[arg-type]  # with_tensors keeps the class
        found = flatten(call.ours(*args, **kwargs))
        return _only(tuple(found[i] for i in wanted.places))

    inputs = [convert.to_ms(t) for t in wanted.inputs]
    return functools.partial(gradient_of(function), *inputs, _only(tuple(map(convert.to_ms, wanted.cotangents))))


def compiled_gradients(call: FunctionCall, wanted: Expected) -> Callable[[], Any]:
    found = written(call)
    args, kwargs = reference.copies(call)
    bare = isinstance(call.theirs(*args, **kwargs), torch.Tensor)
    chosen = "results" if bare else ", ".join(f"results[{i}]" for i in wanted.places)
    parameters = found.parameters
    source = (
        "import mindspore as ms\n\n\n"
        f"def call({parameters}):\n    results = {found.expression}\n    return {chosen}\n\n\n"
        "gradient_of = ms.ops.GradOperation(get_all=True, sens_param=True)\n\n\n"
        f"@ms.jit\ndef gradients({parameters}, sens):\n    return gradient_of(call)({parameters}, sens)\n"
    )
    module = module_of(source, found.constants)
    positions = [i for i, t in enumerate(call.tensors()) if can_require_grad(t)]
    sens = _only(tuple(map(convert.to_ms, wanted.cotangents)))

    def run() -> list[Any]:
        gradients = module.gradients(*found.tensors, sens)
        return [gradients[i] for i in positions]

    return run


def _only(values: tuple[Any, ...]) -> Any:
    return values[0] if len(values) == 1 else values


def error_calls(entry: Any, ours: Function, theirs: Callable[..., Any], device: str) -> Iterator[FunctionCall]:
    for error in entry.error_inputs(device):
        sample = error.sample_input
        args = (sample.input, *sample.args)
        key = f"{describe(args)}; {describe(sample.kwargs)}"
        yield FunctionCall(ours.__name__, args, sample.kwargs, entry.full_name, key, theirs, ours)


def torch_device() -> torch.device:
    """PyTorch's name of MindSpore's device."""
    return torch.device(devices.torch_name(devices.target()))


def compare_errors(call: FunctionCall) -> None:
    if call.kwargs.get("out") is not None:
        raise Skip("out= is not supported")
    for tensor in call.tensors():
        check_representable(tensor)
        if tensor.device.type != torch_device().type:
            raise Skip("tensors on another device")
    call = call.with_tensors(snapshot)  # type: ignore[assignment]  # replace() keeps the class
    try:
        args, kwargs = reference.copies(call)
        call.theirs(*args, **kwargs)
    except Exception as error:
        wanted = error
    else:
        raise Skip("PyTorch takes these arguments if they are contiguous")
    try:
        in_pynative(call)()
    except Skip:
        raise
    except Exception as error:
        got = error
    else:
        raise Mismatch(f"no error instead of {type(wanted).__name__}: {wanted}")
    if type(got) is not type(wanted):
        raise Mismatch(f"{type(got).__name__}: {got} instead of {type(wanted).__name__}: {wanted}")
    if str(got).splitlines()[:1] != str(wanted).splitlines()[:1]:
        raise Mismatch(f"{got} instead of {wanted}")


def outcomes(options: argparse.Namespace, dtype: torch.dtype) -> Iterator[Outcome]:
    graph = options.mode == "graph"
    check: Callable[..., None]
    if options.errors:
        check = compare_errors
    else:
        check = functools.partial(compare_gradients if options.gradients else compare_results, graph=graph)
    most = options.max_samples or (1 if graph else None)
    patterns = options.names.split(",")
    device = torch_device().type
    for entry, ours, theirs in itertools.islice(rows(), 0, None, options.every):
        if not any(fnmatch.fnmatch(entry.name, p) or fnmatch.fnmatch(ours.__name__, p) for p in patterns):
            continue
        if options.errors:
            found = error_calls(entry, ours, theirs, device) if entry.error_inputs_func else iter(())
        elif not entry.supports_dtype(dtype, device) or (options.gradients and not entry.supports_autograd):
            continue
        else:
            found = calls(entry, ours, theirs, dtype, device, most)
        for call in found:
            if options.announce:
                print(call.overload, call.key, flush=True)
            yield judge(call, check)  # type: ignore[arg-type]  # it calls the check with the call


def report(found: list[Outcome], title: str, verbose: bool) -> float:
    """Print the figures; returns the percentage that passed."""
    counts = Counter(outcome.status for outcome in found)
    judged = counts[PASSED] + counts[FAILED]
    share = 100.0 * counts[PASSED] / max(judged, 1)
    names = {o.overload for o in found if o.status != SKIPPED}
    missed = {o.overload for o in found if o.status == FAILED}
    print(
        f"{title}: {len(names)} functions, {len(missed)} with a miss; {judged} calls, {counts[PASSED]} passed, "
        f"{counts[FAILED]} failed ({share:.2f} %), {counts[SKIPPED]} skipped"
    )
    for cause, count in Counter(o.cause for o in found if o.status == SKIPPED).most_common():
        print(f"  {count:6}  skipped: {cause}")
    misses = [o for o in found if o.status == FAILED]
    for name in sorted(missed):
        own = [o for o in misses if o.overload == name]
        for outcome in own if verbose else own[:1]:
            print(f"  {len(own):6}  {name}: {outcome.cause[:300]}\n{'':10}{outcome.key[:200]}")
    return share


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", default="float32,int64")
    parser.add_argument("--mode", choices=("pynative", "graph"), default="pynative")
    parser.add_argument("--device", choices=("CPU", "GPU"), default="CPU", help="PyTorch's reference runs there too")
    parser.add_argument("--every", type=int, default=1, help="only every so many rows")
    parser.add_argument("--gradients", action="store_true", help="compare gradients instead of results")
    parser.add_argument("--errors", action="store_true", help="compare the errors of OpInfo's error inputs")
    parser.add_argument("--names", default="*", help="comma-separated patterns of OpInfo's names, or of full names")
    parser.add_argument("--max-samples", type=int, help="only the first of each row; 1 in graph mode")
    parser.add_argument("--verbose", action="store_true", help="all misses, and not only the first of each function")
    parser.add_argument("--announce", action="store_true", help="print each call before it is made")
    parser.add_argument("--minimum", type=float, default=0.0, help="exit with 1 if fewer percent pass")
    options = parser.parse_args()
    set_device(options.device)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    names = ["float32"] if options.gradients or options.errors else options.dtypes.split(",")
    shares = []
    for name in names:
        what = "errors" if options.errors else f"{'gradients' if options.gradients else 'results'} of {name}"
        shares.append(report([*outcomes(options, getattr(torch, name))], f"{what}, {options.mode}", options.verbose))
    return 0 if min(shares) >= options.minimum else 1


if __name__ == "__main__":
    sys.exit(main())
