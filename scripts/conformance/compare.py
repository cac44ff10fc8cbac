"""Whether results have the same bits."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from .verdict import Mismatch


def flatten(result: Any) -> list[Any]:
    """The leaves of a result: tensors, None for undefined ones, Python scalars."""
    if isinstance(result, (list, tuple)):
        return list(itertools.chain.from_iterable(map(flatten, result)))
    return [result]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor's values, in order, on the CPU."""
    if tensor._is_zerotensor():
        tensor = torch.zeros_like(tensor)
    plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    # Not reshape: a contiguous tensor of one element may keep a stride that view(uint8) refuses.
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal dtype, shape and bits, but any NaN equals any NaN."""
    return a.dtype == b.dtype and a.shape == b.shape and (torch.equal(bits(a), bits(b)) or not _differing(a, b).any())


def _differing(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.numel() == 0:
        return torch.zeros(0, dtype=torch.bool)
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    a, b = a.resolve_neg().cpu(), b.resolve_neg().cpu()
    width = a.element_size()
    differ = (bits(a).reshape(-1, width) != bits(b).reshape(-1, width)).any(dim=1)
    if a.is_floating_point():
        differ &= ~(a.double().isnan() & b.double().isnan()).reshape(-1)
    return differ


def compare(expected: list[Any], actual: list[Any], values: bool = True, tolerance: float = 0.0) -> None:
    """Compare the leaves of two results.

    Args:
        expected: PyTorch's.
        actual: the bridge's.
        values: whether the values count, and not only dtypes and shapes.
        tolerance: how much values may differ, relative to the largest expected one; 0 asks for the same bits.

    Raises:
        Mismatch: at the first difference.
    """
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
