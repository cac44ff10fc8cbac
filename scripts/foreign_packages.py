"""Published packages with kernels of their own, as they are: fetch, build, and compare with PyTorch, bit for bit.

    python scripts/foreign_packages.py                        # torch-scatter, torch-cluster, torch-spline-conv
    python scripts/foreign_packages.py --packages torchvision # of wheels that are installed
    python scripts/foreign_packages.py --folder DIR           # keeps what was built there

pip builds the packages from source for a CPU, which takes minutes. Each operator is then taken by `kernels.registered`
and called in PyNative mode and, with results= unless it has a meta function, in a graph, forward and for its gradients.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import mindspore as ms
import numpy as np
import torch

from bridge import kernels


@dataclass
class Case:
    """One call.

    Args:
        name: the operator.
        args: what it is called with; floating tensors are differentiated if `differentiable`.
        results: for `kernels.registered`; None if it has a meta function.
        differentiable: whether it has a gradient.
        in_graph: whether its shapes are known without its data.
    """

    name: str
    args: tuple[Any, ...]
    results: Any = None
    differentiable: bool = False
    in_graph: bool = True


def random(*shape: int, positive: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    drawn = torch.randn(*shape, generator=generator)
    return drawn.abs() if positive else drawn


def scatter() -> Iterator[Case]:
    src, index = random(8, 4), torch.tensor([0, 0, 1, 1, 0, 2, 1, 2]).view(-1, 1).expand(-1, 4).contiguous()
    reduced = lambda src, *_: src.new_empty(3, 4)  # noqa: E731
    with_places = lambda src, index, *_: (src.new_empty(3, 4), index.new_empty(3, 4))  # noqa: E731
    for name in ("scatter_sum", "scatter_mul", "scatter_mean"):
        yield Case(f"torch_scatter::{name}", (src, index, 0, None, 3), reduced, differentiable=True)
    for name in ("scatter_min", "scatter_max"):
        yield Case(f"torch_scatter::{name}", (src, index, 0, None, 3), with_places, differentiable=True)
    ends = torch.tensor([0, 2, 5, 8])
    yield Case("torch_scatter::segment_sum_csr", (src, ends, None), reduced, differentiable=True)
    yield Case("torch_scatter::segment_max_csr", (src, ends, None), with_places, differentiable=True)
    gathered = lambda src, *_: src.new_empty(8, 4)  # noqa: E731
    yield Case("torch_scatter::gather_csr", (src[:3].contiguous(), ends, None), gathered, differentiable=True)


def cluster() -> Iterator[Case]:
    points, ends = random(32, 3), torch.tensor([0, 16, 32])
    half = lambda points, *_: torch.empty(16, dtype=torch.int64)  # noqa: E731
    yield Case("torch_cluster::fps", (points, ends, torch.tensor(0.5), False), half)
    neighbours = lambda points, *_: torch.empty(2, 96, dtype=torch.int64)  # noqa: E731
    yield Case("torch_cluster::knn", (points, points, ends, ends, 3, False, 1), neighbours)
    yield Case("torch_cluster::radius", (points, points, ends, ends, 1.0, 32, 1), in_graph=False)
    cells = lambda points, *_: torch.empty(32, dtype=torch.int64)  # noqa: E731
    yield Case("torch_cluster::grid", (points, torch.tensor([0.5, 0.5, 0.5]), None, None), cells)


def spline_conv() -> Iterator[Case]:
    pseudo, kernel_size, is_open = random(10, 2, positive=True).fmod(1.0), torch.tensor([5, 5]), torch.ones(2).byte()
    basis = lambda pseudo, *_: (pseudo.new_empty(10, 4), torch.empty(10, 4, dtype=torch.int64))  # noqa: E731
    yield Case("torch_spline_conv::spline_basis", (pseudo, kernel_size, is_open, 1), basis, differentiable=True)
    places = torch.arange(40).view(10, 4) % 25
    yield Case("torch_spline_conv::spline_weighting", (random(10, 3), random(25, 3, 6), random(10, 4), places),
               lambda x, weight, *_: x.new_empty(10, 6), differentiable=True)  # fmt: skip


def vision() -> Iterator[Case]:
    corners = random(6, 2, positive=True)
    boxes = torch.cat([corners, corners + random(6, 2, positive=True) + 1], 1)
    yield Case("torchvision::nms", (boxes, random(6), 0.3), in_graph=False)
    image, rois = random(2, 8, 9, 9), torch.cat([torch.tensor([[0.0], [1.0]]).repeat(3, 1), boxes], 1)
    yield Case("torchvision::roi_align", (image, rois, 0.5, 3, 3, 2, True), differentiable=True)
    yield Case("torchvision::ps_roi_align", (image, rois, 0.5, 2, 2, 2), differentiable=True)
    yield Case("torchvision::deform_conv2d", (random(1, 4, 6, 6), random(2, 4, 3, 3), random(1, 18, 4, 4),
               random(1, 9, 4, 4), random(2), 1, 1, 0, 0, 1, 1, 1, 1, True), differentiable=True)  # fmt: skip


# pip's name -> Python's, whether pip shall build it, the cases.
PACKAGES: dict[str, tuple[str, bool, Callable[[], Iterator[Case]]]] = {
    "torch-scatter": ("torch_scatter", True, scatter),
    "torch-cluster": ("torch_cluster", True, cluster),
    "torch-spline-conv": ("torch_spline_conv", True, spline_conv),
    "torchvision": ("torchvision", False, vision),
}


def install(package: str, folder: pathlib.Path) -> None:
    """Build a package from source into a folder, unless it is there."""
    if (folder / PACKAGES[package][0]).exists():
        return
    print(f"building {package}", flush=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation",
               "--no-binary", package, "--target", str(folder), package]  # fmt: skip
    subprocess.run(command, check=True, env=os.environ | {"FORCE_ONLY_CPU": "1", "FORCE_CUDA": "0"})


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (tuple, list)) else [value]


def to_mindspore(value: Any) -> Any:
    return ms.Tensor.from_numpy(value.detach().numpy().copy()) if isinstance(value, torch.Tensor) else value


def theirs(case: Case, places: list[int]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """PyTorch's results, and the gradients of their sum, each element weighted by its number."""
    args = [x.clone() if isinstance(x, torch.Tensor) else x for x in case.args]
    for i in places:
        args[i].requires_grad_()
    namespace, _, name = case.name.partition("::")
    results = flat(getattr(getattr(torch.ops, namespace), name)(*args))
    if not places:
        return results, []
    total = sum((x * numbered(x.shape)).sum() for x in results if x.is_floating_point())
    asked = [args[i] for i in places]
    gradients = torch.autograd.grad(total, asked, allow_unused=True, materialize_grads=True)
    return [x.detach() for x in results], list(gradients)


def numbered(shape: Any) -> torch.Tensor:
    return torch.arange(int(np.prod(shape)), dtype=torch.float32).view(tuple(shape))


def ours(case: Case, operator: Any, places: list[int], wrap: Callable[..., Any]) -> tuple[list[Any], list[Any]]:
    """The same by the bridge."""
    args = [to_mindspore(value) for value in case.args]
    tensors = [i for i, value in enumerate(case.args) if isinstance(value, torch.Tensor)]

    def call(*given):
        passed = list(args)
        for i, tensor in zip(tensors, given):  # noqa: B905  # the compiler's zip has no strict
            passed[i] = tensor
        return operator(*passed)

    given = [args[i] for i in tensors]
    results = flat(wrap(call)(*given))
    if not places:
        return results, []
    weights = [None if x.dtype != ms.float32 else to_mindspore(numbered(x.shape)) for x in results]
    single = len(results) == 1

    def total(*given):
        found = call(*given)
        summed = 0.0
        for x, weight in zip((found,) if single else found, weights):  # noqa: B905
            if weight is not None:
                summed = summed + (x * weight).sum()
        return summed

    asked = tuple(tensors.index(i) for i in places)
    return results, flat(wrap(ms.grad(total, grad_position=asked))(*given))


def compare(case: Case) -> list[str]:
    """What differs."""
    floating = [i for i, x in enumerate(case.args) if isinstance(x, torch.Tensor) and x.is_floating_point()]
    places = floating if case.differentiable else []
    differing = []
    expected = theirs(case, places)
    modes = [("PyNative", lambda function: function, None)]
    if case.in_graph:
        modes.append(("graph", ms.jit, case.results))
    for mode, wrap, results in modes:
        found = ours(case, kernels.registered(case.name, results=results), places, wrap)
        for what, one, other in zip(("results", "gradients"), expected, found, strict=True):
            equal = len(one) == len(other) and all(
                np.array_equal(x.numpy(), y.asnumpy()) for x, y in zip(one, other, strict=True)
            )
            if not equal:
                differing.append(f"{what} in {mode} mode")
    return differing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", nargs="+", choices=PACKAGES, default=[p for p, row in PACKAGES.items() if row[1]])
    parser.add_argument("--folder", type=pathlib.Path, help="where pip puts the packages (default: a temporary one)")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or pathlib.Path(temporary)).absolute()
        sys.path.insert(0, str(folder))
        for package in options.packages:
            module, from_source, cases = PACKAGES[package]
            if from_source:
                install(package, folder)
            importlib.import_module(module)
            for case in cases():
                differing = compare(case)
                failed += bool(differing)
                print(f"{case.name}: {'equal' if not differing else 'DIFFERS: ' + ', '.join(differing)}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
