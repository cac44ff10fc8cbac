"""Users' kernels inside bridge.fuse and bridge.value_and_grad, and in PyTorch modules: part of these, or refused."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

import bridge
from bridge import aten, kernels
from shared import data

SOURCE = """
#include <torch/extension.h>
at::Tensor twice(const at::Tensor &x) { return x * 2; }
"""
_numbers = itertools.count()


@pytest.fixture
def tripled() -> Iterator[str]:
    """A registered operator with a gradient."""
    name = f"in_programs::tripled{next(_numbers)}"

    @torch.library.custom_op(name, mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    triple.register_fake(torch.empty_like)
    triple.register_autograd(lambda context, gradient: gradient * 3)
    yield name


def run(function: Callable[..., Any], in_graph: bool) -> Any:
    def called(x):
        return function(x)

    return (ms.jit(called) if in_graph else called)(ms.Tensor(data(3, 4)))


both_modes = pytest.mark.parametrize("in_graph", [False, True], ids=["PyNative", "graph"])


def expected() -> tuple[np.ndarray, np.ndarray]:
    x = torch.from_numpy(data(3, 4)).requires_grad_()
    value = x.exp() * 3
    return value.detach().numpy(), torch.autograd.grad(value, x, torch.ones_like(value))[0].numpy()


@both_modes
def test_a_registered_operator_is_part_of_a_program(tripled: str, in_graph: bool) -> None:
    operator = kernels.registered(tripled)

    def own(x):
        return operator(aten.exp(x))

    fused = bridge.fuse(own)

    def call(x):
        return fused(x)

    for differentiate in (ms.value_and_grad(call), bridge.value_and_grad(own)):
        for found, wanted in zip(run(differentiate, in_graph), expected(), strict=True):
            np.testing.assert_array_equal(found.asnumpy(), wanted)


@both_modes
def test_a_module_calls_a_registered_operator(tripled: str, in_graph: bool) -> None:
    operator = getattr(torch.ops.in_programs, tripled.partition("::")[2])

    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return operator(x.exp())

    net = bridge.cell(Module())
    for found, wanted in zip(run(ms.value_and_grad(net), in_graph), expected(), strict=True):
        np.testing.assert_array_equal(found.asnumpy(), wanted)


def refused(operator: Any, in_graph: bool) -> list[str]:
    """What the errors of both ways say."""

    def own(x):
        return operator(x)

    said = []
    for program in (bridge.fuse(own), bridge.value_and_grad(own)):
        with pytest.raises(RuntimeError, match=r"cannot be called inside bridge\.fuse or bridge\.val") as caught:
            run(program, in_graph)
        said.append(str(caught.value))
    return said


@both_modes
def test_a_kernel_from_sources_is_refused(in_graph: bool, tmp_path: pathlib.Path) -> None:
    name = f"twice{next(_numbers)}"
    (tmp_path / "twice.cpp").write_text(SOURCE.replace("twice", name))
    operator = kernels.extension(tmp_path / "twice.cpp", f"{name}(Tensor x) -> Tensor", results="x")
    assert all("it is a kernel from sources, which PyTorch does not" in said for said in refused(operator, in_graph))


@both_modes
def test_a_registered_operator_with_a_gradient_line_is_refused(tripled: str, in_graph: bool) -> None:
    """PyTorch would differentiate it otherwise, or not at all."""
    operator = kernels.registered(tripled, gradient="x: grad")
    words = f"results= and gradient= do not hold there: call torch.ops.{tripled.replace('::', '.')}"
    assert all(words in said for said in refused(operator, in_graph))
    np.testing.assert_array_equal(operator(ms.Tensor(data(3, 4))).asnumpy(), data(3, 4) * 3)
