"""Says which of MindSpore's own tensor methods have PyTorch's results, on the samples of PyTorch's OpInfo database.

Each row that PyTorch has as a method of tensors is called as MindSpore's method of the same name, in PyNative mode.

Usage:

    python -m scripts.methods              # counts, and the names of each kind
    python -m scripts.methods --verbose    # and why
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import mindspore as ms
import torch

from .conformance import convert, reference
from .conformance.calls import SEED, Call, describe, map_tensors, seed_torch
from .conformance.check import set_device
from .conformance.compare import compare, flatten
from .conformance.dtypes import check_representable
from .conformance.record import snapshot
from .conformance.sources import opinfo_entries
from .conformance.verdict import Mismatch, Skip, skip_on_error
from .conformance.workers import Lost, Share, in_workers

EQUAL, DIFFERS, FAILS, CRASHES, MISSING = "equal", "another result", "fails", "ends the process", "missing"


def verdict(call: Call, method: Callable[..., Any]) -> tuple[str, str]:
    """What MindSpore makes of a call, and why.

    Raises:
        Skip: the call cannot be compared.
    """

    def compute() -> list[Any]:
        (x, *args), kwargs = reference.copies(call)
        with skip_on_error("PyTorch refuses these arguments"), torch.no_grad():
            return flatten(method(x, *args, **kwargs))

    for tensor in call.tensors():
        check_representable(tensor)
    wanted = reference.repeatable(compute, list, False)
    for result in wanted:
        check_representable(result)
    x, *args = map(convert.argument, call.args)
    try:
        found = convert.leaves(getattr(x, call.overload)(*args, **convert.keywords(call.kwargs)))
    except Skip:
        raise
    except Exception as error:
        return FAILS, f"{type(error).__name__}: {str(error).strip().splitlines()[0]:.150}"
    try:
        compare(wanted, found)
    except Mismatch as mismatch:
        return DIFFERS, f"{mismatch} ({call.key:.100})"
    return EQUAL, ""


def of_row(entry: Any, name: str, most: int) -> tuple[str, str] | None:
    """The worst that MindSpore makes of the samples of a row; None if none can be compared."""
    dtype = torch.float32 if entry.supports_dtype(torch.float32, "cpu") else torch.int64
    if not entry.supports_dtype(dtype, "cpu"):
        return None
    seed_torch(SEED)
    found = []
    for sample in itertools.islice(entry.sample_inputs("cpu", dtype), most):
        args = map_tensors((sample.input, *sample.args), snapshot)
        kwargs = {key: map_tensors(value, snapshot) for key, value in sample.kwargs.items()}
        call = Call(name, args, kwargs, entry.full_name, f"{describe(args)}; {describe(kwargs)}")
        with contextlib.suppress(Skip):
            found.append(verdict(call, entry.method_variant))
    return max(found, key=_badness, default=None)


def _badness(found: tuple[str, str]) -> int:
    return (EQUAL, FAILS, CRASHES, DIFFERS).index(found[0])  # what is silently another number is the worst


def work(share: Share, most: int) -> None:
    """A worker's rows, each as a result (name, (kind, why)). MindSpore ends the process for some samples."""
    warnings.simplefilter("ignore")
    set_device("CPU")
    for number, entry in enumerate(opinfo_entries()):
        name = getattr(entry.method_variant, "__name__", "")
        is_method = getattr(torch.Tensor, name, None) is entry.method_variant and not name.startswith("_")
        if not is_method or number % share.parts != share.part or share.is_done(number):
            continue
        share.announce(number, name)
        found = of_row(entry, name, most) if hasattr(ms.Tensor, name) else (MISSING, "")
        share.finish(number, (name, found))


def census(most: int, jobs: int) -> dict[str, tuple[str, str]]:
    """Each method with the worst that MindSpore makes of it."""
    found: dict[str, tuple[str, str]] = {}
    for value in in_workers(work, (most,), jobs):
        name, one = (value.what, (CRASHES, f"exit code {value.exit_code}")) if isinstance(value, Lost) else value
        if one is not None:
            found[name] = max(found.get(name, one), one, key=_badness) if one[0] != MISSING else one
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verbose", action="store_true", help="why, for each method")
    parser.add_argument("--max-samples", type=int, default=20, help="of each row (default 20)")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    by_kind: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, (kind, why) in sorted(census(options.max_samples, options.jobs).items()):
        by_kind[kind].append((name, why))
    for kind in (EQUAL, DIFFERS, FAILS, CRASHES, MISSING):
        print(f"{kind}: {len(by_kind[kind])}")
        for name, why in by_kind[kind] if options.verbose else ():
            print(f"  {name:24} {why}")
        if not options.verbose:
            print(f"  {', '.join(name for name, _ in by_kind[kind])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
