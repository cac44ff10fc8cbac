"""Shapes with unknown parts: -1 is a dimension that only the run tells, a single -2 a rank that only the run tells."""

from __future__ import annotations

from bridge.infer.trial import Spec

# What an unknown dimension is taken to be. Two values tell what follows from it; both even and with room for kernels
# and strides.
STAND_INS = (24, 40)


def common(first: tuple[Spec, ...], second: tuple[Spec, ...]) -> tuple[Spec, ...]:
    """What two inferences of one call agree on; the rest is unknown."""
    return tuple((_common_shape(one, other), dtype) for (one, dtype), (other, _) in zip(first, second, strict=True))


def filled(shape: tuple[int, ...], unknown: int) -> tuple[int, ...]:
    """The shape with `unknown` in the place of its unknown dimensions."""
    return tuple(unknown if size < 0 else size for size in shape)


def _common_shape(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    if len(one) != len(other):
        return (-2,)
    return tuple(a if a == b else -1 for a, b in zip(one, other, strict=True))
