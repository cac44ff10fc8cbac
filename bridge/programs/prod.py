"""The gradient of torch.prod on a tape. PyTorch divides by the factors if none of them is zero, which only data says,
and without data multiplies the others, which rounds otherwise. A program does both, and takes what PyTorch takes."""

from __future__ import annotations

from typing import Any

import torch

from bridge.programs.replaced import Replacement

_prod: Any = torch.prod


class _Prod(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, dim: int | None, keepdim: bool) -> torch.Tensor:
        result: torch.Tensor = _product(x, dim, keepdim)
        ctx.save_for_backward(x, result)
        ctx.form = dim, keepdim
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:  # type: ignore[override]
        x, result = ctx.saved_tensors
        dim, keepdim = ctx.form
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            (of_others,) = torch.autograd.grad(_product(again, dim, keepdim), again, gradient)
        zeros = (x == 0).sum()
        if dim is not None and not keepdim:
            gradient, result = gradient.unsqueeze(dim), result.unsqueeze(dim)
        found = torch.where(zeros == 0, gradient * (result / x).conj(), of_others)
        if dim is None:
            found = torch.where(zeros > 1, torch.zeros_like(x), found)
        return found, None, None


def _product(x: torch.Tensor, dim: int | None, keepdim: bool) -> Any:
    return _prod(x) if dim is None else _prod(x, dim, keepdim)


def _recorded(input: torch.Tensor, dim: int | None = None, keepdim: bool = False, **kwargs: Any) -> torch.Tensor:
    """torch.prod, with the names of its arguments."""
    is_plain = isinstance(input, torch.Tensor) and (dim is None or type(dim) is int) and type(keepdim) is bool
    is_mapped = torch._C._functorch.peek_interpreter_stack() is not None
    if not is_plain or is_mapped or kwargs.keys() - {"dtype"} or not (input.requires_grad and torch.is_grad_enabled()):
        given = {} if dim is None else {"dim": dim, "keepdim": keepdim}
        return _prod(input, **given, **kwargs)  # type: ignore[no-any-return]
    dtype = kwargs.get("dtype")
    x = input if dtype is None else input.to(dtype)
    if x.dim() == 0 or not (x.is_floating_point() or x.is_complex()):
        return _product(x, dim, keepdim)  # type: ignore[no-any-return]
    return _Prod.apply(x, dim, keepdim)  # type: ignore[no-untyped-call,no-any-return]


PROD = [Replacement(torch, "prod", _recorded), Replacement(torch.Tensor, "prod", _recorded)]
