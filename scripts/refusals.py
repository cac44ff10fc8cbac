#!/usr/bin/env python3
"""Calls that are a little off: does the bridge refuse what PyTorch refuses, in its words, and answer what it answers?

Each recorded call of scripts/conformance.py is changed in one place (another dtype, rank or size, no dimension, no
element, None, a dimension out of range, ...) and made by PyTorch on the CPU and by the bridge. Without --changes the
calls are PyTorch's own examples of errors (OpInfo's error inputs), through its Python functions.

    python scripts/refusals.py                                # error inputs
    python scripts/refusals.py --changes --calls 2 --jobs 2   # two recorded calls for each overload
    python scripts/refusals.py --changes --ops 'conv*,min' --json report.json

The calls run in child processes, so that a crash costs one call.
"""
from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import faulthandler
import json
import multiprocessing
import multiprocessing.connection
import operator
import pickle
import random
import re
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).resolve().parent))

import conformance
import stress
from conformance import Call, Mismatch, Runner, Skip

MEMORY_LIMIT = 16 << 30  # of address space: a hopeless allocation fails at once
SECONDS_PER_CALL = 10

SAME, CLASS, WORDS = "the same", "another class", "other words"
ANSWERS, REFUSES = "the bridge answers", "the bridge refuses"
CRASHED, SKIPPED = "the bridge crashed", "skipped"
DIFFERENCES = {"dtype": "another dtype", "shape": "another shape", "value": "other values"}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """How the bridge's outcome of one call compares with PyTorch's."""

    overload: str
    kind: str
    call: str
    detail: str = ""


# ---------------------------------------------------------------------------------------------------------------------
# Changes


def _other_tensors(x: torch.Tensor) -> Iterator[tuple[str, Any]]:
    for dtype in (torch.float64, torch.float16, torch.int64, torch.int32, torch.bool, torch.complex64):
        if dtype != x.dtype:
            with contextlib.suppress(Exception):
                yield str(dtype).removeprefix("torch."), x.to(dtype)
    if x.dim() and x.numel():
        yield "no dimension", x.reshape(-1)[0].clone()
        yield "no dimension, float64", x.reshape(-1)[0].to(torch.float64)
    yield "a dimension more", x.unsqueeze(0).clone()
    for dim in {0, max(x.dim() - 1, 0)} if x.dim() else ():
        yield f"no element along {dim}", x.narrow(dim, 0, 0).clone()
        if x.shape[dim]:
            yield f"without dimension {dim}", x.select(dim, 0).clone()
            yield f"longer along {dim}", torch.cat([x, x.narrow(dim, 0, 1)], dim)
    yield "None", None
    yield "a number", 2


def _other_values(value: Any) -> Iterator[tuple[str, Any]]:
    """Values to put in an argument's place, with what is said of them."""
    if isinstance(value, torch.Tensor):
        yield from _other_tensors(value)
    elif isinstance(value, bool):
        yield str(not value), not value
    elif isinstance(value, int):
        for other in (-1, 0, 1, 3, -7, 99, 2**40, 2**62, -(2**63)):
            if other != value:
                yield str(other), other
    elif isinstance(value, float):
        for number in (float("nan"), -1.0, 0.0, 2):
            yield str(number), number
    elif isinstance(value, str):
        yield "junk", "junk"
    elif isinstance(value, torch.dtype):
        for dtype in (torch.int64, torch.complex64, torch.bool, torch.float16):
            yield str(dtype), dtype
    elif isinstance(value, (list, tuple)):
        yield from _other_lists(list(value))
    if value is not None and not isinstance(value, torch.Tensor):
        yield "None", None
        yield "a string", "a string"


def _other_lists(items: list[Any]) -> Iterator[tuple[str, Any]]:
    if not items:
        return
    yield "an empty list", []
    yield "a list shorter by one", items[:-1]
    yield "a list longer by one", [*items, items[-1]]
    for what, other in _other_values(items[-1]):
        yield f"the last of the list {what}", [*items[:-1], other]


def changes(call: Call) -> Iterator[Call]:
    """The call with one argument changed, and with all tensors changed alike."""
    for i, value in enumerate(call.args):
        for what, other in _other_values(value):
            args = (*call.args[:i], other, *call.args[i + 1 :])
            yield dataclasses.replace(call, args=args, source=f"argument {i}: {what}")
    for name, value in call.kwargs.items():
        if not isinstance(value, (torch.device, torch.layout)):
            for what, other in _other_values(value):
                yield dataclasses.replace(call, kwargs={**call.kwargs, name: other}, source=f"{name}: {what}")
    together: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "all without elements": lambda x: x.narrow(0, 0, 0).clone() if x.dim() else x,
        "all without a dimension": lambda x: x.reshape(-1)[0].clone() if x.numel() else x,
        **{f"all {dtype}": operator.methodcaller("to", dtype) for dtype in (torch.int32, torch.float64, torch.bool)},
    }  # fmt: skip
    for what, change in together.items():
        with contextlib.suppress(Exception):
            kwargs = {name: conformance.map_tensors(value, change) for name, value in call.kwargs.items()}
            args = conformance.map_tensors(call.args, change)
            yield dataclasses.replace(call, args=args, kwargs=kwargs, source=what)


# ---------------------------------------------------------------------------------------------------------------------
# One call


def plain_class(error: Exception) -> type[Exception]:
    """The builtin class of an error; what PyTorch's schema parser refuses is a TypeError in its Python functions."""
    if re.search(r"Expected a value of type|is missing value for argument|Declaration: |positional arg", str(error)):
        return TypeError
    builtin = (c for c in type(error).__mro__ if c.__module__ == "builtins" and issubclass(c, Exception))
    return next(builtin, Exception)


def first_words(error: Exception) -> str:
    """An error's message without the backtrace, the name in front, and what MindSpore writes after it."""
    words, _, _ = str(error).partition("\nException raised from")
    words, _, _ = words.partition("\n\n----")
    return re.sub(r"^aten\.[\w.]+: ", "", words).strip()


class Judge:
    """Makes calls through PyTorch and the bridge."""

    def __init__(self) -> None:
        from mindspore.ops.primitive import _pynative_executor

        self.runner = Runner()
        self.sync = _pynative_executor.sync

    def outcome(self, run: Callable[[], list[Any]], seed: Callable[[int], Any]) -> list[Any] | Exception:
        seed(conformance.SEED)
        try:
            return run()
        except (Mismatch, Skip):
            raise
        except Exception as error:
            return error

    def bridge(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        convert = self.runner.convert_argument
        try:
            results = function(*map(convert, args), **{k: convert(v) for k, v in kwargs.items()})
        finally:
            self.sync()
        return self.runner.flatten_ms(results)

    def verdict(self, call: Call, announce: Callable[[str], None]) -> Verdict:
        def found(kind: str, detail: str = "") -> Verdict:
            return Verdict(call.overload, kind, f"{call.source} in {call.key}"[:300], detail)

        def by_pytorch() -> list[Any]:
            args, kwargs = self.runner.copies(call)
            with torch.no_grad():
                return conformance.flatten(call.op(*args, **kwargs))

        try:
            coverage = self.runner.check_comparable(call)
            announce("PyTorch")
            expected = self.outcome(by_pytorch, conformance.seed_torch)
            for result in expected if isinstance(expected, list) else []:
                conformance.check_representable(result)
            announce("bridge")
            function = self.runner.bridge_overload(call.overload)
            actual = self.outcome(lambda: self.bridge(function, call.args, call.kwargs), self.runner.seed_bridge)
            return found(*self.compare(call, expected, actual, self.runner.is_seeded(call, coverage)))
        except (Skip, Mismatch) as skip:
            return found(SKIPPED, str(skip))

    def compare(
        self, call: Call, expected: list[Any] | Exception, actual: list[Any] | Exception, random: bool
    ) -> tuple[str, str]:
        if isinstance(expected, Exception):
            no_such_type = call.source.endswith((": None", "a string", "a number"))
            return self.compare_errors(TypeError(str(expected)) if no_such_type else expected, actual)
        if isinstance(actual, Exception):
            return REFUSES, f"{type(actual).__name__}: {first_words(actual)[:200]}"
        try:
            conformance.compare(expected, actual, values=not random and call.overload not in conformance.UNINITIALISED)
        except Mismatch as mismatch:
            kind = next((kind for word, kind in DIFFERENCES.items() if word in str(mismatch)), "other results")
            return kind, str(mismatch)
        return SAME, ""

    def compare_errors(self, expected: Exception, actual: list[Any] | Exception) -> tuple[str, str]:
        theirs = f"{type(expected).__name__}: {first_words(expected)[:200]}"
        if not isinstance(actual, Exception):
            return ANSWERS, theirs
        both = f"{type(actual).__name__}: {first_words(actual)[:200]} | instead of | {theirs}"
        if "allocate memory" in str(expected):
            return SKIPPED, "no memory"
        if plain_class(expected) is not plain_class(actual):
            return CLASS, both
        same = plain_class(expected) is TypeError or first_words(expected).splitlines()[:1] == (
            first_words(actual).splitlines()[:1])
        return (SAME, "") if same else (WORDS, both)


# ---------------------------------------------------------------------------------------------------------------------
# Error inputs


def error_inputs(judge: Judge) -> Iterator[Verdict]:
    """PyTorch's own examples of errors, made with the operator that has the name of PyTorch's function."""
    for entry in conformance.opinfo_entries():
        function = getattr(judge.runner.aten, _operator_name(entry.name), None)
        if function is None or entry.error_inputs_func is None:
            continue
        for number, example in enumerate(_error_examples(entry)):
            sample = example.sample_input
            call = f"{entry.name} {number}: {conformance.describe([sample.input, *sample.args])[:150]}"

            def by_pytorch(sample: Any = sample, entry: Any = entry) -> list[Any]:
                return conformance.flatten(entry.op(sample.input, *sample.args, **sample.kwargs))

            def by_bridge(sample: Any = sample, function: Any = function) -> list[Any]:
                return judge.bridge(function, [sample.input, *sample.args], sample.kwargs)

            try:
                for tensor in conformance.tensors_in([sample.input, sample.args, sample.kwargs]):
                    conformance.check_representable(tensor)
                expected = judge.outcome(by_pytorch, conformance.seed_torch)
                if not isinstance(expected, Exception) or "out" in sample.kwargs:
                    continue
                actual = judge.outcome(by_bridge, judge.runner.seed_bridge)
                kind, detail = judge.compare_errors(expected, actual)
                yield Verdict(entry.name, kind, call, detail)
            except (Skip, Mismatch) as skip:
                yield Verdict(entry.name, SKIPPED, call, str(skip))


def _operator_name(name: str) -> str:
    """ATen's name of a function of PyTorch's: linalg_solve for linalg.solve, relu for nn.functional.relu."""
    return re.sub(r"^(linalg|fft|special)\.", r"\1_", name).rpartition(".")[2]


def _error_examples(entry: Any) -> Iterator[Any]:
    with contextlib.suppress(Exception):
        yield from entry.error_inputs("cpu")


# ---------------------------------------------------------------------------------------------------------------------
# The sweep


def usable(call: Call) -> bool:
    """Whether MindSpore's tensors can be the call's, PyTorch checks its arguments, and another process can have it."""
    if call.overload.partition(".")[0] in stress.PYTORCH_DOES_NOT_SURVIVE:
        return False
    try:
        for tensor in conformance.tensors_in([call.args, call.kwargs]):
            conformance.check_representable(tensor)
        pickle.loads(pickle.dumps(call))
    except Exception:
        return False
    return True


def work(path: str, first: tuple[int, int], step: int, pipe: Any) -> None:
    """Judge the changes of every `step`-th recorded call from `first` on, in a process of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    judge = Judge()
    calls = pickle.loads(Path(path).read_bytes())
    for number in range(first[0], len(calls), step):
        for place, call in enumerate(changes(calls[number])):
            if number == first[0] and place < first[1]:
                continue

            def announce(who: str, call: Call = call, at: tuple[int, int] = (number, place)) -> None:
                pipe.send((who, at, call.overload, f"{call.source} in {call.key}"[:300]))

            faulthandler.dump_traceback_later(SECONDS_PER_CALL, exit=True)
            pipe.send(judge.verdict(call, announce))
            faulthandler.cancel_dump_traceback_later()
    pipe.send(None)


def sweep(calls: list[Call], jobs: int) -> Iterator[Verdict]:
    """The verdicts on all changes of the calls. A worker that dies costs one call, and is started again after it."""
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls"
        path.write_bytes(pickle.dumps(calls))
        workers: dict[Any, tuple[Any, tuple[Any, ...] | None]] = {}

        def start(first: tuple[int, int]) -> None:
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(str(path), first, jobs, theirs), daemon=True)
            process.start()
            theirs.close()
            workers[ours] = process, None

        for job in range(jobs):
            start((job, 0))
        while workers:
            ready: list[Any] = multiprocessing.connection.wait(list(workers))
            for pipe in ready:
                process, announced = workers[pipe]
                try:
                    message = pipe.recv()
                except EOFError:
                    process.join()
                    del workers[pipe]
                    if announced is None:
                        raise RuntimeError(f"a worker ended between calls with {process.exitcode}") from None
                    who, (number, place), overload, text = announced
                    kind = CRASHED if who == "bridge" else SKIPPED
                    yield Verdict(overload, kind, text, f"{who} ended the process with {process.exitcode}")
                    start((number, place + 1))
                    continue
                if message is None:
                    process.join()
                    del workers[pipe]
                elif isinstance(message, Verdict):
                    yield message
                else:
                    workers[pipe] = process, message


def report(verdicts: list[Verdict]) -> None:
    """Print how many calls have each verdict and, for those that differ, one call of each overload."""
    kinds = collections.Counter(verdict.kind for verdict in verdicts)
    print(*(f"{count:8}  {kind}" for kind, count in kinds.most_common()), sep="\n")
    for kind in kinds:
        if kind in (SAME, SKIPPED):
            continue
        print(f"\n{kind}")
        by_overload = collections.defaultdict(list)
        for verdict in verdicts:
            if verdict.kind == kind:
                by_overload[verdict.overload].append(verdict)
        for overload, found in sorted(by_overload.items()):
            print(f"{len(found):6}  {overload}: {found[0].call[:180]}\n{'':8}{found[0].detail}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", action="store_true", help="change recorded calls")
    parser.add_argument("--calls", type=int, default=2, help="how many recorded calls of each overload to change")
    parser.add_argument("--most", type=int, help="change this many recorded calls, chosen at random")
    parser.add_argument("--dtype", default="float32", help="of the recorded calls")
    parser.add_argument("--ops", default="", help="comma-separated overloads, packets or patterns, such as 'conv*,add'")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write all that differ here")
    asked = parser.parse_args()
    if asked.changes:
        ops = tuple(p for p in asked.ops.split(",") if p)
        options = conformance.Options(ops=ops, max_calls=asked.calls, max_samples=8)
        recorded = conformance.recorded_calls(getattr(torch, asked.dtype), options, progress=True)
        calls = list(filter(usable, recorded))
        if asked.most:
            calls = random.Random(0).sample(calls, min(asked.most, len(calls)))
        verdicts = list(tqdm(sweep(calls, asked.jobs), unit="call", file=sys.stderr))
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            verdicts = list(error_inputs(Judge()))
    report(verdicts)
    if asked.json:
        differ = [dataclasses.asdict(v) for v in verdicts if v.kind not in (SAME,)]
        asked.json.write_text(json.dumps(differ, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
