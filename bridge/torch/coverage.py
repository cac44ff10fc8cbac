"""What bridge.torch covers of PyTorch's public functions: for each, callable or elsewhere and why."""

from __future__ import annotations

import importlib
import json
from collections import Counter

from bridge import torch as own
from bridge.torch import names
from bridge.torch.elsewhere import Elsewhere
from bridge.torch.function import Function

UNKNOWN = "no reason is known"
NAMESPACES = ("torch", "torch.nn.functional", "torch.linalg", "torch.fft", "torch.special", "torch.Tensor")


def rows(namespace: str) -> dict[str, str]:
    """Each public function of one of PyTorch's namespaces, with the reason why it is not callable; empty if it is."""
    module, _, last = namespace.rpartition(".")
    theirs = getattr(importlib.import_module(module), last) if module else importlib.import_module(namespace)
    ours = own if last in ("torch", "Tensor") else importlib.import_module(f"bridge.{namespace}")
    found = {}
    for name in dir(theirs):
        if names.is_public_function(theirs, name):
            value = getattr(ours, name, None)
            callable_here = isinstance(value, Function) or value in (own.get_default_dtype, own.set_default_dtype)
            found[name] = "" if callable_here or name == "manual_seed" else _why(namespace, name, value)
    return found


def _why(namespace: str, name: str, value: object) -> str:
    if isinstance(value, Elsewhere):
        return str(value.sentence)
    if namespace == "torch.Tensor" and isinstance(value, own.dtype):
        return f"T.{name} is the dtype: T.to(x, T.{name}) converts"
    return UNKNOWN


def print_report(as_json: bool, verbose: bool) -> None:
    found = {namespace: rows(namespace) for namespace in NAMESPACES}
    if as_json:
        print(json.dumps(found, indent=1))
        return
    for namespace, functions in found.items():
        there = sum(not reason for reason in functions.values())
        print(f"{namespace}: {len(functions)} public functions, {there} callable")
        for reason, count in Counter(filter(None, functions.values())).most_common():
            print(f"  {count:5}  {reason}")
            if verbose:
                print(f"{'':9}{', '.join(name for name, why in functions.items() if why == reason)}")
