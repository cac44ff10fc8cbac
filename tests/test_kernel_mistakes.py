"""What a user may get wrong with a kernel of their own, and the message that it gets."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
import pytest
import torch

from bridge import kernels

HERE = pathlib.Path(__file__).parent
FEATURES = HERE / "kernels" / "features.cpp"
PLAIN = HERE / "kernels" / "plain.cpp"
X = ms.Tensor(np.ones((2, 3), np.float32))
AOT_PARAMETERS = "int, void **, int *, long **, const char **, void *, void *"


def one_gradient_of_two(a, b, out, dout):
    return (dout[0],)


def transposed_gradient(x, out, dout):
    return dout.T


def half_gradient(x, out, dout):
    return dout.astype(ms.float16)


# Those of features.cpp that compile, in one build.
wrong_shape = kernels.extension(FEATURES, "wrong_shape(Tensor x) -> Tensor", results="x")
wrong_dtype = kernels.extension(FEATURES, "wrong_dtype(Tensor x) -> Tensor", results="x")
one_result = kernels.extension(
    FEATURES, "split(Tensor x, int parts) -> Tensor[]", results=lambda x, parts: [torch.empty_like(x)] * 3
)
throws = kernels.extension(FEATURES, "throws(Tensor x) -> Tensor", results="x")
two_results = kernels.extension(FEATURES, "cube(Tensor x) -> Tensor", results=lambda x: (x, x))
no_tensor = kernels.extension(FEATURES, "cube(Tensor x) -> Tensor", results=lambda x: x.shape)
no_gradient = kernels.extension(FEATURES, "cube(Tensor x) -> Tensor", results="x")
too_few = kernels.extension(
    FEATURES, "sum_and_difference(Tensor a, Tensor b) -> (Tensor, Tensor)", results="a, a", gradient=one_gradient_of_two
)
half_a_line = kernels.extension(
    FEATURES, "sum_and_difference(Tensor a, Tensor b) -> (Tensor, Tensor)", results="a, a", gradient="a: grad"
)
transposed = kernels.extension(FEATURES, "cube(Tensor x) -> Tensor", results="x", gradient=transposed_gradient)
halved = kernels.extension(FEATURES, "cube(Tensor x) -> Tensor", results="x", gradient=half_gradient)
wrong_backward = kernels.extension(
    FEATURES, "cube(Tensor x) -> Tensor", results="x", gradient="x: wrong_backward(grad)"
)
fails = kernels.aot(PLAIN, "Fails(Tensor x) -> Tensor", results="x")


def declare(schema: str, **arguments: Any) -> Callable[[], Any]:
    """A declaration over features.cpp."""
    return lambda: kernels.extension(FEATURES, schema, **arguments)


def use(kernel: Any, *arguments: Any) -> Callable[[], Any]:
    """A call that waits for the result."""

    def run() -> None:
        found = kernel(*arguments)
        for result in found if isinstance(found, tuple) else (found,):
            result.asnumpy()

    return run


def differentiate(kernel: Any, *arguments: Any) -> Callable[[], Any]:
    def total(*values):
        found = kernel(*values)
        return sum(result.sum() for result in found) if isinstance(found, tuple) else found.sum()

    return lambda: ms.grad(total)(*arguments).asnumpy()


# Name, what is done, the exception, the message (a regular expression).
WITHOUT_A_COMPILER: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("source is not there", lambda: kernels.aot("nowhere.cpp", "F(Tensor x) -> Tensor", results="x"),
     FileNotFoundError, r"source is not there: .*nowhere\.cpp"),
    ("source of another language", lambda: kernels.aot(__file__, "F(Tensor x) -> Tensor", results="x"),
     ValueError, r"is a \.cpp, \.cc, \.cxx or \.cu file"),
    ("no sources", lambda: kernels.aot(schema="F(Tensor x) -> Tensor", results="x"), ValueError, "needs sources"),
    ("unreadable schema", declare("f(Tensor a -> Tensor"), ValueError, r"the schema 'f\(Tensor a -> Tensor' cannot be"),
    ("C++ type in the schema", declare("f(Tensor a, double r) -> Tensor"), ValueError, "unknown type 'double'"),
    ("no result", declare("f(Tensor a) -> ()"), ValueError, "has no result"),
    ("result that is no tensor", declare("f(Tensor a) -> str"), ValueError, "has results other than tensors"),
    ("results of an unknown name", declare("f(Tensor a) -> Tensor", results="b"), ValueError,
     "results= of f names 'b', which is not one of its Tensor arguments"),
    ("too many results", declare("f(Tensor a) -> Tensor", results="a, a"), ValueError, r"but it has 1 result\(s\)"),
    ("AOT without results", lambda: kernels.aot(PLAIN, "Fails(Tensor x) -> Tensor"), ValueError, "needs results="),
    ("AOT with a list", lambda: kernels.aot(PLAIN, "Fails(Tensor[] x) -> Tensor", results=lambda x: x[0]), ValueError,
     "a fixed number of tensors"),
    ("initial of an unknown output",
     declare("f(Tensor a, *, Tensor(a!) out) -> ()", results="a", initial={"b": "zeros"}), ValueError,
     "initial= names 'b', but the outputs of f are out"),
    ("initial of a result that is returned", declare("f(Tensor a) -> Tensor", results="a", initial="zeros"), ValueError,
     "f returns its results"),
    ("gradient of an unknown argument", declare("f(Tensor a) -> Tensor", results="a", gradient="b: g(grad)"),
     ValueError, "has a gradient for 'b', which is not one of its Tensor arguments"),
    ("gradient that cannot be read", declare("f(Tensor a) -> Tensor", results="a", gradient="a = g(grad)"), ValueError,
     "cannot be read at 'a = g"),
    ("gradient from an unknown value", declare("f(Tensor a) -> Tensor", results="a", gradient="a: g(grad, c)"),
     ValueError, "uses 'c', which is none of: a, grad"),
    ("gradient from a result too many", declare("f(Tensor a) -> Tensor", results="a", gradient="a: g(grads[1])"),
     ValueError, r"uses grads\[1\], but f has 1 result"),
    ("two gradients of one argument", declare("f(Tensor a) -> Tensor", results="a", gradient="a: grad, a: grad"),
     ValueError, "two gradients for 'a'"),
    ("gradient from an unknown ATen operator",
     declare("f(Tensor a) -> Tensor", results="a", gradient="a: aten.mull(a)"), ValueError,
     r"calls aten\.mull, but the bridge has no ATen operator"),
    ("gradient of a wrong type", declare("f(Tensor a) -> Tensor", results="a", gradient=3), TypeError, "not int"),
    ("flags in a string", declare("f(Tensor a) -> Tensor", results="a", flags="-O0"), TypeError,
     r"a list of compiler flags, such as \['-O0'\], not a string"),
    ("AOT kernel on PyTorch's tensors", lambda: fails.on_torch(torch.ones(2)), TypeError, "runs in MindSpore only"),
    ("gradient without results", declare("f(Tensor a) -> Tensor", gradient="a: grad"), ValueError, "needs results="),
    ("operator that nobody registered", lambda: kernels.registered("nowhere::f"), ValueError,
     "nobody has registered an operator 'nowhere::f'"),
    ("AOT function that returns a number", lambda: kernels.aot(PLAIN, "Fails(Tensor x) -> int"), ValueError,
     "an AOT function returns no number but its status"),
    ("list of results beside an argument that is changed", declare("f(Tensor(a!) x) -> Tensor[]"), ValueError,
     "has results other than tensors and numbers, or than one list of tensors"),
    ("operator that writes to a list", lambda: kernels.registered("aten::_foreach_abs_"), ValueError,
     r"writes to 'self', which has to be a Tensor for that, not List\[Tensor\]"),
    ("size of no tensor in a gradient line",
     declare("f(Tensor a, int n) -> Tensor", results="a", gradient="a: g(grad, n.shape[0])"), ValueError,
     r"uses 'n\.shape\[0\]', which is none of: a, n, grad"),
]  # fmt: skip

WITH_ONE_BUILD: list[tuple[str, Callable[[], Any], type[Exception], str]] = [
    ("number for a tensor", use(throws, 3), TypeError, r"custom::throws\(\): argument 'x' .* must be Tensor, not int"),
    ("argument too many", use(throws, X, 3), TypeError, r"takes 1 positional arguments but 2 were given"),
    ("kernel's own check", use(throws, X), RuntimeError, "throws: x must have one dimension, not 2"),
    ("shape that was not declared", use(wrong_shape, X), RuntimeError,
     r"custom::wrong_shape: result 0 is Float \[4, 3\], but Float \[2, 3\] was"),
    ("dtype that was not declared", use(wrong_dtype, X), RuntimeError,
     r"custom::wrong_dtype: result 0 is Double \[2, 3\], but Float \[2, 3\] was"),
    ("number of results that was not declared", use(one_result, X, 1), RuntimeError,
     "custom::split.*: it gave 1 results, but 3 were"),
    ("results= with a tensor too many", use(two_results, X), ValueError,
     r"results= returned 2 tensor\(s\), but the schema has 1 result"),
    ("results= without tensors", use(no_tensor, X), TypeError, "results= returned int, but it has to return tensors"),
    ("no gradient", differentiate(no_gradient, X), RuntimeError, "has no gradient: declare one with gradient="),
    ("wrong number of gradients", differentiate(too_few, X, ms.Tensor(X.asnumpy())), ValueError,
     r"gave 1 gradient\(s\), but the kernel has 2 tensor"),
    ("argument without a gradient", differentiate(lambda b: half_a_line(b, b), X), RuntimeError,
     "custom::sum_and_difference.* has no gradient for 'b': give one in gradient="),
    ("gradient of a wrong shape", differentiate(transposed, X), ValueError,
     r"the gradient of 'x' is Float32 \(3, 2\), but the tensor is Float32 \(2, 3\)"),
    ("gradient of a wrong dtype", differentiate(halved, X), ValueError, "the gradient of 'x' is Float16"),
    ("backward kernel with a wrong shape", differentiate(wrong_backward, X), RuntimeError,
     r"custom::wrong_backward: result 0 is Float \[4, 3\], but Float \[2, 3\] was"),
    ("AOT kernel that fails", use(fails, X), RuntimeError, "custom::Fails: it returned 7, not 0"),
]  # fmt: skip

IDS = [row[0] for row in WITHOUT_A_COMPILER + WITH_ONE_BUILD]


@pytest.mark.parametrize("mistake", WITHOUT_A_COMPILER + WITH_ONE_BUILD, ids=IDS)
def test_a_mistake_gets_its_message(mistake: tuple[str, Callable[[], Any], type[Exception], str]) -> None:
    _, make, expected, message = mistake
    with pytest.raises(expected, match=message) as caught:
        make()
    assert type(caught.value) is expected
    assert "Exception raised from" not in str(caught.value)
    np.testing.assert_array_equal((X + X).asnumpy(), 2 * X.asnumpy())  # the process is as well as before


def aot_source(body: str) -> str:
    return f'extern "C" int Kernel({AOT_PARAMETERS}) {{ {body} }}\n'


FUNCTION = "#include <ATen/core/Tensor.h>\nat::Tensor kernel(const at::Tensor &x, int64_t n) { return x; }\n"

# Name, form, source, schema, gradient, and what the first lines of the message are.
SOURCES: list[tuple[str, str, str, str, str | None, str]] = [
    ("error in the source", "aot", aot_source("return\n  unknown;"), "Kernel(Tensor x) -> Tensor", None,
     r"kernel: compiling kernel\.cpp failed:\n  \S*kernel\.cpp:2:\d+: error: .unknown. was not declared"),
    ("function without extern C", "aot", aot_source("return 0;").replace('extern "C" ', ""),
     "Kernel(Tensor x) -> Tensor", None, "kernel: Kernel is declared and used, but none of the sources defines it"),
    ("function that is only declared", "aot", "int helper(double);\n" + aot_source("return helper(1.0);"),
     "Kernel(Tensor x) -> Tensor", None,
     r"kernel: helper\(double\) is declared and used, but none of the sources defines it"),
    ("backward function that is not there", "extension", FUNCTION, "kernel(Tensor x, int n) -> Tensor",
     "x: kernel_backward(grad)", r"kernel: kernel\.cpp has no function 'kernel_backward'"),
    ("schema with an argument less", "extension", FUNCTION, "kernel(Tensor x) -> Tensor", None,
     r"kernel: compiling kernel\.cpp failed:\n  kernel: the schema has 1 argument\(s\), the function has another"),
    ("schema with another type", "extension", FUNCTION, "kernel(Tensor x, float n) -> Tensor", None,
     r"kernel: compiling kernel\.cpp failed:\n  kernel: argument 'n' is float in the schema, but of another type"),
]  # fmt: skip


@pytest.mark.parametrize("row", SOURCES, ids=[row[0] for row in SOURCES])
def test_a_mistake_in_a_source_gets_its_message(row: tuple[Any, ...], tmp_path: pathlib.Path) -> None:
    _, form, text, schema, gradient, message = row
    source = tmp_path / "kernel.cpp"
    source.write_text(text)
    kernel = getattr(kernels, form)(source, schema, results="x", gradient=gradient)
    arguments = (X,) if "n)" not in schema else (X, 1 if "int" in schema else 1.0)
    for _ in range(2):  # and again when it is used again
        with pytest.raises(kernels.KernelError) as caught:
            kernel(*arguments)
        assert re.match(message, str(caught.value)), caught.value


def test_no_compiler(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "kernel.cpp"
    source.write_text(aot_source("return 0;"))
    monkeypatch.setenv("CXX", "g++-of-nowhere")
    with pytest.raises(kernels.KernelError, match="needs 'g\\+\\+-of-nowhere' to compile kernels"):
        kernels.aot(source, "Kernel(Tensor x) -> Tensor", results="x")(X)


def test_a_kernel_for_cuda_alone_on_the_cpu(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "kernel.cu"
    source.write_text("")
    with pytest.raises(kernels.KernelError, match="kernel has no sources for the CPU: give them in sources="):
        kernels.aot(schema="Kernel(Tensor x) -> Tensor", results="x", cuda=source)(X)


def test_a_registered_operator_without_meta_function_in_graph_mode() -> None:
    library = torch.library.Library("bridge_mistakes", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x + x, "CPU")
    double = kernels.registered("bridge_mistakes::double")
    np.testing.assert_array_equal(double(X).asnumpy(), 2 * X.asnumpy())

    @ms.jit
    def call(x):
        return double(x)

    with pytest.raises(RuntimeError, match="bridge_mistakes::double works in PyNative mode only: nothing tells"):
        call(X)
    with pytest.raises(RuntimeError, match="bridge_mistakes::double has no gradient"):
        ms.grad(lambda x: double(x).sum())(X).asnumpy()


REGISTRATION = """
#include <ATen/core/Tensor.h>
#include <torch/library.h>

at::Tensor keep(const at::Tensor &x, int64_t n) { return x.clone(); }

TORCH_LIBRARY(bridge_mistaken, m) { m.def("keep(Tensor x, int n) -> Tensor"); }
TORCH_LIBRARY_IMPL(bridge_mistaken, CPU, m) { m.impl("keep", &keep); }
"""


def test_a_registration_that_pytorch_refuses(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "keep.cpp"
    source.write_text(REGISTRATION.replace("int n)", "float n)"))
    with pytest.raises(kernels.KernelError, match="keep: PyTorch refuses what the sources register:") as caught:
        kernels.registered("bridge_mistaken::keep", source)
    assert "expected schema" in str(caught.value).lower() or "inferred" in str(caught.value).lower(), caught.value


def test_an_operator_is_not_registered_twice(tmp_path: pathlib.Path) -> None:
    source = tmp_path / "keep.cpp"
    source.write_text(REGISTRATION)
    for _ in range(2):
        keep = kernels.registered("bridge_mistaken::keep", source)
        np.testing.assert_array_equal(keep(X, 1).asnumpy(), X.asnumpy())
    source.write_text(REGISTRATION + "// changed\n")
    with pytest.raises(kernels.KernelError, match="bridge_mistaken::keep is registered already, by another library"):
        kernels.registered("bridge_mistaken::keep", source)
    with pytest.raises(ValueError, match="nobody has registered an operator 'bridge_mistaken::other'"):
        kernels.registered("bridge_mistaken::other")


def test_a_namespace_belongs_to_one_library(tmp_path: pathlib.Path) -> None:
    whole, second, fragment = (tmp_path / f"{name}.cpp" for name in ("whole", "second", "fragment"))
    text = REGISTRATION.replace("bridge_mistaken", "bridge_shared")
    whole.write_text(text)
    second.write_text(text.replace("keep", "hold"))
    fragment.write_text(text.replace("keep", "hold").replace("TORCH_LIBRARY(", "TORCH_LIBRARY_FRAGMENT("))
    kernels.registered("bridge_shared::keep", whole)
    with pytest.raises(kernels.KernelError, match="Only a single TORCH_LIBRARY can be used to register the namespace"):
        kernels.registered("bridge_shared::hold", second)
    hold = kernels.registered("bridge_shared::hold", fragment)
    np.testing.assert_array_equal(hold(X, 1).asnumpy(), X.asnumpy())


def test_mistakes_in_graph_mode() -> None:
    def total(x):
        return transposed(x).sum()

    with pytest.raises(ValueError, match=r"the gradient of 'x' is Float32 \(3, 2\), but the tensor is"):
        ms.jit(ms.grad(total))(X)

    def no_gradient_total(x):
        return no_gradient(x).sum()

    with pytest.raises(RuntimeError, match="has no gradient: declare one with gradient="):
        ms.jit(ms.grad(no_gradient_total))(X)

    @ms.jit
    def call(x):
        return wrong_shape(x)

    with pytest.raises(RuntimeError, match=r"custom::wrong_shape: result 0 is Float \[4, 3\]"):
        call(X).asnumpy()
