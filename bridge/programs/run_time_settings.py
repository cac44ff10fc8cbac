"""Settings that PyTorch's kernels read when they run: TF32, cuDNN, determinism, the default dtype.

A program's kernels find those of the process at that time. So a function that changes one around a call, as
`with torch.backends.cudnn.flags(...)` does, is refused.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from bridge.programs.calls import Refusal

_MATMULS = r"mm|mv|dot|linear|matmul|addr|cdist|rnn|lstm|gru|attention"
_CONVOLUTIONS = "conv"
_SUMS = r"index|scatter|put|cumsum|bincount|histc|median|upsample|grid_sampler|pool|nll|embedding|gather|ctc|conv|mm"


def _precision(backend: str, kind: str) -> Callable[[], Any]:
    return functools.partial(torch._C._get_fp32_precision_getter, backend, kind)  # type: ignore[attr-defined]


class _Setting(NamedTuple):
    """A setting.

    Args:
        name: by which users know it.
        value: gives what holds.
        operators: what the names of those that read it have in them.
        device: the kind whose kernels read it; empty for all.
    """

    name: str
    value: Callable[[], Any]
    operators: re.Pattern[str]
    device: str


def _reduced(kind: str) -> tuple[str, str]:
    name = f"allow_{kind}_reduced_precision_reduction"
    return f"torch.backends.cuda.matmul.{name}", f"_get_cublas_{name}"


def _settings() -> list[_Setting]:
    found: list[tuple[str, Any, str, str]] = [
        ("torch.backends.cuda.matmul.allow_tf32", _precision("cuda", "matmul"), _MATMULS, "cuda"),
        ("torch.backends.cudnn.allow_tf32", _precision("cuda", "conv"), _CONVOLUTIONS, "cuda"),
        ("torch.backends.cudnn.allow_tf32", _precision("cuda", "rnn"), "cudnn_rnn", "cuda"),
        (*_reduced("fp16"), _MATMULS, "cuda"),
        (*_reduced("bf16"), _MATMULS, "cuda"),
        ("torch.backends.cudnn.enabled", "_get_cudnn_enabled", _CONVOLUTIONS, "cuda"),
        ("torch.backends.cudnn.benchmark", "_get_cudnn_benchmark", _CONVOLUTIONS, "cuda"),
        ("torch.backends.cudnn.deterministic", "_get_cudnn_deterministic", f"{_CONVOLUTIONS}|cudnn_rnn", "cuda"),
        ("torch.set_float32_matmul_precision", _precision("mkldnn", "matmul"), _MATMULS, "cpu"),
        ("torch.backends.mkldnn.conv.fp32_precision", _precision("mkldnn", "conv"), _CONVOLUTIONS, "cpu"),
        ("torch.backends.mkldnn.enabled", "_get_mkldnn_enabled", f"{_CONVOLUTIONS}|{_MATMULS}", "cpu"),
        ("torch.set_num_threads", torch.get_num_threads, "", "cpu"),
        ("torch.set_default_dtype", torch.get_default_dtype, "", ""),
        ("torch.use_deterministic_algorithms", "_get_deterministic_algorithms", _SUMS, ""),
    ]
    return [
        _Setting(name, getattr(torch._C, value) if isinstance(value, str) else value, re.compile(operators), device)
        for name, value, operators, device in found
    ]


_SETTINGS = _settings()


@functools.cache
def _read_by(operator: str) -> list[_Setting]:
    return [setting for setting in _SETTINGS if setting.operators.search(operator)]


class RunTimeSettings:
    """What held at the calls of a capture.

    Args:
        line: says where the code is, for an error.
    """

    def __init__(self, line: Callable[[], str]) -> None:
        self._line = line
        self._met: dict[tuple[_Setting, Any], str] = {}

    def note(self, operator: str) -> None:
        """What holds for a call of this operator."""
        for setting in _read_by(operator):
            met = setting, setting.value()
            if met not in self._met:
                self._met[met] = self._line()

    def refuse_changes(self, device: str) -> None:
        """Raise Refusal if another setting holds now than at a call. The calls are for this device."""
        for (setting, value), line in self._met.items():
            if device.startswith(setting.device) and value != setting.value():
                raise Refusal(
                    f"{setting.name} is another around a call than afterwards, which a graph does not follow: set it "
                    f"before the step, or use PyNative mode{line}"
                )
