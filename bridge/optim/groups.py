"""What an optimizer is given: MindSpore's Parameters in groups, as PyTorch has them."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import mindspore as ms
import numpy as np
import torch

from bridge.programs.constructor import to_torch
from bridge.programs.parameter_lists import no_parameters, refuse_no_parameter
from bridge.programs.state import tensor_of

_OF_MINDSPORE = {
    "order_params": "PyTorch's optimizers take the parameters in the order of their groups",
    "grad_centralization": "PyTorch's optimizers do not have it",
}


@dataclasses.dataclass
class Asked:
    """The arguments of an optimizer's constructor.

    Attributes:
        parameters: MindSpore's, in the order of the groups.
        torch_parameters: PyTorch's for them.
        arguments: what PyTorch's constructor is called with.
        schedules: MindSpore's schedules, as nn.Optimizer takes them.
        rate: the position in `schedules` of what gives the optimizer's learning rate, or None.
        rates: for each group the same.
        follows: for each group whether its learning rate is the optimizer's, and not its own.
    """

    parameters: list[ms.Parameter]
    torch_parameters: list[torch.Tensor]
    arguments: dict[str, Any]
    schedules: list[Any]
    rate: int | None
    rates: list[int | None]
    follows: list[bool]


def asked(torch_class: type[torch.optim.Optimizer], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked:
    """What a constructor of PyTorch's is called with, for MindSpore's arguments."""
    signature = inspect.signature(torch_class)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        advice = ": the learning rate is lr" if "learning_rate" in kwargs else ""
        raise TypeError(f"{torch_class.__name__}: {error}{advice}") from None
    bound.apply_defaults()
    given = dict(bound.arguments)
    found = Asked([], [], {}, [], None, [], [])
    groups = [_group(group) for group in _groups(given.pop("params"))]
    found.rate = _rate(given, found)
    for group in groups:
        own = _rate(group, found)
        found.follows.append("lr" not in group)
        found.rates.append(found.rate if "lr" not in group else own)
        entries = group["params"]
        for entry in entries:
            parameter = entry[1] if isinstance(entry, tuple) else entry
            refuse_no_parameter(torch_class.__name__, parameter)
            found.parameters.append(parameter)
            found.torch_parameters.append(tensor_of(parameter))
        made = iter(found.torch_parameters[-len(entries) :])
        group["params"] = [(entry[0], next(made)) if isinstance(entry, tuple) else next(made) for entry in entries]
    if not found.parameters:
        raise ValueError("optimizer got an empty parameter list")  # PyTorch's words
    found.arguments = {"params": groups, **to_torch(given)}
    return found


def _groups(params: Any) -> list[dict[str, Any]]:
    if not isinstance(params, Iterable) or isinstance(params, (ms.Tensor, Mapping, ms.nn.Cell, torch.nn.Module)):
        raise TypeError(f"an optimizer takes a list of Parameters or of groups, not {no_parameters(params)}")
    entries = list(params)
    if entries and all(isinstance(entry, Mapping) for entry in entries):
        return [dict(entry) for entry in entries]
    return [{"params": entries}]


def _group(group: dict[str, Any]) -> dict[str, Any]:
    for name, why in _OF_MINDSPORE.items():
        if name in group:
            raise TypeError(f"a group has no {name}: {why}")
    if "params" not in group:
        raise ValueError(f"a group has its Parameters under params, and this one has {', '.join(map(repr, group))}")
    members = group["params"]
    members = [members] if isinstance(members, ms.Tensor) else list(members)
    return {**{name: to_torch(value) for name, value in group.items() if name not in ("params", "lr")},
            **({"lr": group["lr"]} if "lr" in group else {}), "params": members}  # fmt: skip


def _rate(options: dict[str, Any], found: Asked) -> int | None:
    """The position of the schedule that the options have for a learning rate; leaves its first value there."""
    rate: Any = options.get("lr")
    if not _is_schedule(rate):
        if isinstance(rate, ms.Tensor):
            options["lr"] = to_torch(rate)
        return None
    if not isinstance(rate, (ms.Tensor, ms.nn.Cell)):
        rate = list(rate)  # it may be a generator
    found.schedules.append(rate)
    options["lr"] = first_value(rate)
    return len(found.schedules) - 1


def _is_schedule(rate: Any) -> bool:
    if isinstance(rate, (ms.Tensor, np.ndarray)):
        return rate.ndim > 0
    return isinstance(rate, ms.nn.Cell) or (isinstance(rate, Iterable) and not isinstance(rate, (torch.Tensor, str)))


def first_value(schedule: Any) -> float:
    """The learning rate of the first step."""
    if isinstance(schedule, ms.nn.Cell):
        return float(schedule(ms.Tensor([0], ms.int32)).asnumpy().reshape(()))
    first = next(iter(schedule), None)
    if first is None:
        raise ValueError("lr is a schedule without rates")
    return float(np.float32(first))
