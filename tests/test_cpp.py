"""The C++ unit tests of ms_ext, compiled with the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess

import pytest
import torch

ROOT = pathlib.Path(__file__).parent.parent
TORCH = pathlib.Path(torch.__file__).parent
COMPILER = os.environ.get("CXX", "g++")
OWN = ("ms_ext.cpp", "arguments.cpp", "donation.cpp", "programs/pool.cpp")
SOURCES = [ROOT / "tests/cpp/test_ms_ext.cpp", *(ROOT / "ms_ext" / path for path in OWN)]
# The functions of tests/cpp/test_ms_ext.cpp. One that is not here is unused, which the compiler refuses; so is a name
# that has no function.
TESTS = (
    "every_dtype_name_has_its_type",
    "unknown_dtype_names_itself",
    "views_share_the_memory",
    "scalar_tensor_has_no_dimension",
    "empty_tensor_may_have_a_null_pointer",
    "tensor_may_have_eight_dimensions",
    "workspaces_are_left_out_by_the_count",
    "no_tensors_are_no_problem",
    "ints_are_exact",
    "doubles_keep_their_bits",
    "bools_are_read",
    "scalars_keep_type_and_value",
    "strings_may_hold_any_bytes",
    "names_become_enumerators",
    "optionals_are_absent_or_there",
    "lists_are_read",
    "optional_lists_become_views",
    "tensors_are_counted_in_order",
    "number_in_a_tensors_place_is_wrapped",
    "broken_text_throws",
    "results_land_in_the_outputs_memory",
    "scratch_takes_an_outputs_memory_once",
    "large_tensors_lie_in_the_pool",
    "given_inputs_are_freed_by_their_last_tensor",
    "outputs_get_the_memory_of_their_results",
    "virtual_functions_are_counted",
    "one_virtual_function_of_one_object_is_replaced",
)

pytestmark = pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no C++ compiler {COMPILER}")


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the compiled tests print."""
    binary = tmp_path_factory.mktemp("cpp") / "test_ms_ext"
    flags = [
        "-std=c++20",
        "-g1",
        "-O0",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        f"-I{ROOT / 'ms_ext'}",
        "-DTESTS=" + " ".join(f"TEST({name})" for name in TESTS),
        "-isystem",
        str(TORCH / "include"),
    ]
    libraries = [f"-L{TORCH / 'lib'}", f"-Wl,-rpath,{TORCH / 'lib'}", "-ltorch_cpu", "-lc10"]
    objects = [binary.with_name(f"{source.stem}.o") for source in SOURCES]
    compilers = [
        subprocess.Popen([COMPILER, *flags, "-c", str(source), "-o", str(target)], stderr=subprocess.PIPE, text=True)
        for source, target in zip(SOURCES, objects, strict=True)
    ]
    for compiler in compilers:
        _, errors = compiler.communicate()
        assert compiler.returncode == 0, errors
    link = [COMPILER, "-fsanitize=address,undefined", *map(str, objects), "-o", str(binary), *libraries]
    linked = subprocess.run(link, capture_output=True, text=True, check=False)
    assert linked.returncode == 0, linked.stderr
    # PyTorch's registries live until the process ends, which the leak checker would report as PyTorch's leaks.
    environment = os.environ | {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    done = subprocess.run([str(binary)], capture_output=True, text=True, check=False, env=environment, timeout=120)
    return f"{done.stdout}{done.stderr}\nexit status {done.returncode}"


@pytest.mark.parametrize("name", TESTS)
def test_ms_ext(output: str, name: str) -> None:
    assert f"ok     {name}\n" in output, output


def test_sanitizers_report_nothing(output: str) -> None:
    assert output.endswith("exit status 0"), output
