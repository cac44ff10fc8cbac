"""Where recorded calls come from: the rows of OpInfo, their backward passes, and samples of our own."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
import sys
import unittest.mock
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from tqdm import tqdm

from . import samples
from .calls import SEED, Call, functional_overloads, map_tensors, overload_named, seed_torch, tensors_in
from .options import Options
from .record import Recorder


@functools.cache
def opinfo_entries() -> list[Any]:
    """OpInfo's rows, those of the _foreach operators included, in a fixed order."""
    from torch.testing._internal import common_methods_invocations as opinfo  # takes seconds

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
    if backward and entry.supports_autograd and dtype in entry.supported_backward_dtypes(device):
        yield from _record_backward(recorder, entry, dtype, device, most)


def _record_backward(
    recorder: Recorder, entry: Any, dtype: torch.dtype, device: str, most: int | None
) -> Iterator[Call]:
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
    """The calls of samples.py."""
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


def chosen_sources(options: Options) -> list[int | None]:
    """What a sweep records, in order: rows of OpInfo by position, None for our own samples."""
    rows: list[int | None] = [*range(len(opinfo_entries()))][: options.limit]
    return [*rows, None] if options.own_samples else rows


def record_source(source: int | None, recorder: Recorder, dtype: torch.dtype, options: Options) -> Iterator[Call]:
    device = "cuda" if options.device == "GPU" else "cpu"
    if source is None:
        return record_own(recorder, dtype, device)
    return record_entry(recorder, opinfo_entries()[source], dtype, device, options.backward_calls, options.max_samples)


@contextlib.contextmanager
def _cheap_samples() -> Iterator[None]:
    """Spare OpInfo what it does around each sample: seed every kind of device, walk the stack for a unittest."""
    patch = unittest.mock.patch
    search = "torch.testing._internal.common_utils.extract_test_fn"
    with patch("torch.manual_seed", seed_torch), patch(search, lambda: None, create=True):
        yield


@contextlib.contextmanager
def _single_thread() -> Iterator[None]:
    """Samples are tiny: handing them to a team of threads costs several times what they do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
    with warnings.catch_warnings(), _cheap_samples():
        warnings.simplefilter("ignore")
        for source in tqdm(chosen_sources(options), desc=name, unit="row", disable=not progress, file=sys.stderr):
            with _single_thread():
                calls = list(record_source(source, recorder, dtype, options))
            for call in calls:
                if not options.selects(call.overload) or (most is not None and made[call.overload] >= most):
                    continue
                if most is not None and any(t.numel() == 0 for t in call.tensors()):
                    held_back.append(call)
                    continue
                made[call.overload] += 1
                yield call
        for call in held_back:
            if most is not None and made[call.overload] < most:
                made[call.overload] += 1
                yield call
