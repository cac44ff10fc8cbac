"""The functions, dtypes and constants of the namespace torch, and the methods of tensors as functions."""

from __future__ import annotations

import torch

from bridge.torch import names

# MindSpore's compiler looks into a module's dictionary, so everything stands there from the start.
_all = {**names.elsewhere(torch), **names.functions(torch), **names.values()}
_all.update(names.methods(_all))
globals().update(_all)
__all__ = [*_all]
