"""Runs every sample of samples.py under torch.ops.aten, and prints the overloads that have none, with the reason.

The command is `python -m scripts.conformance.census`.
"""

from __future__ import annotations

import fnmatch
import sys
import warnings
from collections.abc import Iterator

import torch

from .calls import functional_overloads, overload_named
from .options import Options
from .samples import SAMPLES, calls
from .sources import recorded_calls

# Overloads that cannot have a sample of ordinary tensors, by the first pattern that fits.
WITHOUT_SAMPLES = {
    "sparse tensors": (
        "*sparse* sspaddmm smm _coalesced coalesce is_coalesced *indices *indices_copy values values_copy _values_copy"
    ),
    "nested tensors": "_nested_* nested_*",
    "quantized tensors": "quantize_* quantized_* _empty_*affine_quantized _make_per_*_quantized_tensor",
    "weights packed by FBGEMM, which live outside tensors": "_wrapped_* fbgemm_*",
    "asserts on itself with every input": "_test_check_tensor",
    "autograd's and functorch's state": (
        "_backward _fw_primal _fw_primal_copy _make_dual _make_dual_copy _unpack_dual _add_batch_dim _remove_batch_dim "
        "retain_grad set_data"
    ),
    "storages and files": "set.source_Storage* from_file",
    "another device or its library": (
        "_philox_* _resize_output _cufft_* pin_memory _pin_memory *_overrideable *_overrideable_backward to_mkldnn "
        "to_mkldnn_backward mkldnn_rnn_layer_backward _propagate_xla_data"
    ),
    "block scales that need a GPU": "_scaled_mm_v2",
    "takes a workspace of cuDNN": "_thnn_fused_lstm_cell_backward",
    "prints": "_print",
}


def main() -> int:
    """Run all samples in float32; the status says whether each ran."""
    warnings.simplefilter("ignore")
    options = Options(own_samples=False)
    reached = {call.overload for call in recorded_calls(torch.float32, options, progress=True)}
    failures: list[str] = []
    for name in sorted(SAMPLES):
        torch.manual_seed(0)
        try:
            for args, kwargs in calls(name, torch.float32):
                overload_named(name)(*args, **kwargs)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0][:160]}")
    missing = [n for n in functional_overloads() if n not in reached and n not in SAMPLES]
    unexplained = list(missing)
    print(f"{len(reached)} overloads reached by OpInfo, {len(SAMPLES.keys() - reached)} more by samples of our own")
    for reason, patterns in WITHOUT_SAMPLES.items():
        fitting = [n for n in unexplained if any(fnmatch.fnmatch(n, p) for p in _with_overloads(patterns))]
        unexplained = [n for n in unexplained if n not in fitting]
        print(f"\nno sample, {reason} ({len(fitting)}): {' '.join(fitting)}")
    print(f"\nno sample ({len(unexplained)}): {' '.join(unexplained)}")
    print(f"\nsamples that do not run ({len(failures)}):", *failures, sep="\n  ")
    return 1 if failures or unexplained else 0


def _with_overloads(patterns: str) -> Iterator[str]:
    for pattern in patterns.split():
        yield from (pattern, f"{pattern}.*")


if __name__ == "__main__":
    sys.exit(main())
