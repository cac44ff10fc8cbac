"""The CUDA shims, where there may be neither a GPU nor a CUDA build of PyTorch: all are written, and compile."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import subprocess

import pytest
import torch

from aten_ops import backward, build, model, shims

ROOT = pathlib.Path(__file__).parent.parent
TORCH = pathlib.Path(torch.__file__).parent
COMPILER = os.environ.get("CXX", "g++")
FLAGS = [
    "-x", "c++", "-std=c++20", "-Wall", "-Werror", "-DMS_EXT_CUDA", f"-I{ROOT / 'ms_ext'}",
    "-isystem", str(TORCH / "include"), "-isystem", str(TORCH / "include" / "torch" / "csrc" / "api" / "include"),
]  # fmt: skip


def errors(source: pathlib.Path, *flags: str) -> str:
    """What the compiler says, with these flags or else to a look alone."""
    command = [COMPILER, *FLAGS, str(source), *(flags or ["-fsyntax-only"])]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.fixture(scope="module")
def operators() -> list[model.Operator]:
    return model.operators("CUDA")


def test_every_cuda_shim_is_written_and_compiles(operators: list[model.Operator], tmp_path: pathlib.Path) -> None:
    shims.write(operators, "CUDA", tmp_path)
    backward.write(operators, "CUDA", tmp_path)
    sources = sorted(tmp_path.glob("*.cu"))
    text = "".join(source.read_text() for source in sources)
    for operator in operators:
        if operator.target is not None:
            assert f"MS_EXT_CUDA_SHIM{'' if operator.gives_one_tensor else '_TUPLE'}({operator.symbol})\n" in text
        if not backward.reason_against(operator):
            assert f"MS_EXT_CUDA_SHIM_TUPLE({operator.symbol}_derivative)\n" in text
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert [found for found in pool.map(errors, sources) if found] == []


def test_the_kernels_that_shims_call_past_the_function_are_in_pytorch(tmp_path: pathlib.Path) -> None:
    built = tmp_path / "kernels.o"
    assert errors(ROOT / "ms_ext" / "cuda" / "cuda_kernels.cu", "-c", "-o", str(built)) == ""
    wanted = {name for name in symbols("--undefined-only", built) if name.startswith(("_ZN2at", "_ZNK2at"))}
    for kernel in ("LayerNormKernel", "sort_stub"):
        assert any(kernel in name for name in wanted)
    assert wanted <= symbols("--defined-only", "--dynamic", TORCH / "lib" / "libtorch_cpu.so")


def symbols(*arguments: str | pathlib.Path) -> set[str]:
    """What nm says: names with the types of the arguments in them."""
    command = ["nm", "--format=just-symbols", *map(str, arguments)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines())


def test_the_sources_that_need_no_cuda_compile() -> None:
    for name in ("row_softmax.cu", "row_sort.cu"):
        assert errors(ROOT / "ms_ext" / "cuda" / name) == ""


@pytest.mark.skipif(not build.cuda_headers(), reason="it needs CUDA's own headers, which the CUDA toolkit brings")
@pytest.mark.parametrize("name", ["launch.cu", "allocator.cu", "device_code.cu", "replay.cu"])
def test_the_launch_compiles(name: str) -> None:
    # A CPU build of PyTorch comes without the header that says how its CUDA part was configured.
    headers = [part for folder in build.cuda_headers() for part in ("-isystem", str(folder))]
    flags = ["-fsyntax-only", "-DC10_CUDA_NO_CMAKE_CONFIGURE_FILE", *headers]
    assert errors(ROOT / "ms_ext" / "cuda" / name, *flags) == ""


def test_cuda_headers_are_the_toolkits_or_pips(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    def write(*headers: str) -> None:
        for header in headers:
            (tmp_path / header).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / header).touch()

    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(build, "CUDA", tmp_path / "cuda")
    monkeypatch.setattr(build, "TORCH", tmp_path / "site-packages" / "torch")
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    pips = tmp_path / "site-packages" / "nvidia"
    write("site-packages/nvidia/runtime/include/cuda_runtime.h")
    assert build.cuda_headers() == []
    assert build.why_no_cuda().startswith("CUDA's headers are missing")
    write("site-packages/nvidia/nvcc/include/crt/host_config.h", "site-packages/nvidia/cccl/include/nv/target")
    assert build.cuda_headers() == []
    write(*(f"site-packages/nvidia/math/include/{name}" for name in ("cublas_v2.h", "cusparse.h", "cusolverDn.h")))
    assert build.cuda_headers() == [pips / name / "include" for name in ("cccl", "math", "nvcc", "runtime")]
    write(*(f"cuda/include/{header}" for header in build.CUDA_HEADERS))
    assert build.cuda_headers() == [tmp_path / "cuda" / "include"]
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    write(*(f"home/include/{header}" for header in build.CUDA_HEADERS))
    assert build.cuda_headers() == [tmp_path / "home" / "include"]


def test_operators_that_only_cuda_has_are_found(operators: list[model.Operator]) -> None:
    on_cuda = {operator.name for operator in operators if not operator.reason}
    assert {"leaky_relu", "_cudnn_rnn", "_thnn_fused_lstm_cell"} <= on_cuda
    assert "_upsample_lanczos2d_aa" not in on_cuda
