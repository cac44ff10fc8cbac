"""What the results of a kernel look like, by what a user says of them in `results=`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch

from bridge.kernels.declaration import Declaration

# What `results=` may be: the names of arguments that the results are like, or a function of the arguments on tensors of
# the `meta` device.
Results = str | Callable[..., Any] | None


def inference(declaration: Declaration, results: Results) -> Callable[..., Any] | None:
    """The function that gives tensors like the kernel's results; None if they follow from data.

    Raises ValueError if `results` does not fit the schema.
    """
    told = declaration.told
    if results is None:
        return None if told else lambda *args, **kwargs: _like(declaration, args, kwargs, [])
    if callable(results):
        return lambda *args, **kwargs: _called(declaration, results, len(told), args, kwargs)
    named = [part for part in re.split(r"[\s,]+", results) if part]
    if "List[Tensor]" in declaration.returns:  # a name stands for one tensor
        raise ValueError(f"results= of {declaration.name} has to be a function, because a result is a list")
    if len(named) != len(told):
        raise ValueError(
            f"results= of {declaration.name} is {results!r}, {len(named)} name(s), but it has {len(told)} result(s) to "
            "describe"
        )
    for part in named:
        source = declaration.argument(part)
        if source is None or source.base != "Tensor" or source.is_list or source.is_optional:
            raise ValueError(
                f"results= of {declaration.name} names {part!r}, which is not one of its Tensor arguments; for other "
                "shapes or dtypes give a function that returns torch.empty(...)"
            )
    return lambda *args, **kwargs: _like(declaration, args, kwargs, named)


def _values(declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    positional = [a.name for a in declaration.arguments if not a.keyword_only]
    return dict(zip(positional, args, strict=True)) | kwargs


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _like(declaration: Declaration, args: tuple[Any, ...], kwargs: dict[str, Any], named: list[str]) -> list[Any]:
    values = _values(declaration, args, kwargs)
    return _arranged(declaration, values, [_empty_like(values[source]) for source in named])


def _called(
    declaration: Declaration, results: Callable[..., Any], count: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Any]:
    given = results(*args, **kwargs)
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    wrong = next((item for item in found if not isinstance(item, torch.Tensor)), None)
    if wrong is not None:
        raise TypeError(f"results= returned {type(wrong).__name__}, but it has to return tensors: torch.empty(...)")
    if declaration.returns == ("List[Tensor]",):
        return found
    if len(found) != count:
        raise ValueError(
            f"results= returned {len(found)} tensor(s), but the schema has {count} result(s): {declaration.text}"
        )
    values = _values(declaration, args, kwargs)
    return _arranged(declaration, values, found)


def _arranged(declaration: Declaration, values: dict[str, Any], told: list[Any]) -> list[Any]:
    """Tensors like all results: like arguments that are changed, numbers, and what was told of the others."""
    rest = iter(told)
    return [
        _empty_like(values[output.name]) if output.kind == "in_out"
        else torch.empty((), dtype=getattr(torch, output.number), device="meta") if output.number
        else next(rest)
        for output in declaration.outputs
    ]  # fmt: skip
