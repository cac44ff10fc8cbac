"""Kernels of your own as MindSpore operators, in PyNative and graph mode, with gradients.

    from bridge import kernels

    add = kernels.aot("custom_add.cpp", "CustomAdd(Tensor a, Tensor b) -> Tensor", results="a",
                      gradient="a, b: CustomAddGrad(grad)")
    sigmoid = kernels.extension("sigmoid.cpp", "sigmoid(Tensor x) -> Tensor", results="x",
                                gradient="x: sigmoid_backward(grad, result)")
    nms = kernels.registered("torchvision::nms")

docs/kernels.md shows the three side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

from bridge.kernels import declaring, registration
from bridge.kernels.bprops import GradientDeclaration
from bridge.kernels.declaration import Initial
from bridge.kernels.errors import KernelError
from bridge.kernels.inference import Results
from bridge.kernels.kernel_operator import KernelOperator
from bridge.kernels.registration import RegisteredOperator
from bridge.kernels.sources import Sources
from bridge.kernels.toolchain import flags_by_device

__all__ = ["KernelError", "KernelOperator", "RegisteredOperator", "aot", "extension", "registered"]


def aot(
    sources: Sources = (),
    schema: str = "",
    *,
    results: Results = None,
    gradient: GradientDeclaration = None,
    initial: Initial = None,
    cuda: Sources = (),
    flags: Sequence[str] = (),
    cpp_flags: Sequence[str] = (),
    cuda_flags: Sequence[str] = (),
) -> KernelOperator:
    """A plain MindSpore AOT kernel: `extern "C" int NAME(int nparam, void **params, int *ndims, int64_t **shapes, const
    char **dtypes, void *stream, void *extra)`, with an `NAMEInit` beside it if it has attributes or workspaces.

    Its tensors come in the schema's order, the results after the inputs. Arguments that are not tensors are the
    primitive's attributes of the same names, which MindSpore's AotExtra reads.

    Args:
        sources: C++ files for the CPU, or one library that was built before; compiled at the first call.
        schema: as in native_functions.yaml: "CustomAdd(Tensor a, Tensor b, float alpha=1) -> Tensor".
        results: what the results look like: names of arguments of the same shape and dtype ("a", "a, b"), or a function
            of the arguments, tensors as PyTorch's `meta` tensors, that returns torch.empty(...) for each.
        gradient: a line as in derivatives.yaml ("a, b: CustomAddGrad(grad, a)"), whose functions are in the same
            sources or ATen's (aten.mul), or a function (*arguments, out, dout) that returns a gradient for each Tensor.
        initial: what the results hold before the kernel runs: "zeros" or the name of an argument to copy, for all or
            by result. By default nothing in particular.
        cuda: the sources of the CUDA variant.
        flags: for the compilers.
        cpp_flags: more, for the CPU's library.
        cuda_flags: more, for the GPU's library: nvcc gets all, g++ those that begin with -D, -U and -I.

    Raises:
        ValueError: the schema, `results`, `gradient` or `initial` cannot be read or do not fit together.
        FileNotFoundError: a source is not there.
        KernelError, at the first call: the kernel cannot be compiled or loaded.
    """
    return declaring.make("aot", sources, cuda, schema, results, gradient, initial,
                          flags_by_device(flags, cpp_flags, cuda_flags))  # fmt: skip


def extension(
    sources: Sources = (),
    schema: str = "",
    *,
    results: Results = None,
    gradient: GradientDeclaration = None,
    initial: Initial = None,
    function: str = "",
    cuda: Sources = (),
    flags: Sequence[str] = (),
    cpp_flags: Sequence[str] = (),
    cuda_flags: Sequence[str] = (),
) -> KernelOperator:
    """A function of a PyTorch extension: `at::Tensor f(const at::Tensor &a, int64_t n, double r, bool flag)`.

    It may return tensors and numbers, and fill outputs that it is given: an output is written `*, Tensor(a!) out` in
    the schema; an argument that it changes, `Tensor(a!) x`, is changed in a copy, which is a result. What is written to
    comes before what is returned. docs/kernels.md lists the C++ types.

    Args:
        sources: C++ files for the CPU, or one library that was built before; compiled at the first call.
        schema: as in native_functions.yaml: "f(Tensor a, int n, float r, bool flag=False) -> Tensor".
        results: see `aot`. None if the shapes follow from data: the kernel then works in PyNative mode only.
        gradient: see `aot`.
        initial: see `aot`; for outputs that the function fills.
        function: the function in C++, where its name in the schema is not enough: an instance of a template,
            "f<float>", or one overload, "static_cast<at::Tensor (*)(const at::Tensor &, double)>(f)".
        cuda: the sources of the CUDA variant.
        flags: for the compilers.
        cpp_flags: more, for the CPU's library.
        cuda_flags: more, for the GPU's library: nvcc gets all, g++ those that begin with -D, -U and -I.

    Raises:
        As `aot`.
    """
    return declaring.make("extension", sources, cuda, schema, results, gradient, initial,
                          flags_by_device(flags, cpp_flags, cuda_flags), function)  # fmt: skip


def registered(
    name: str,
    sources: Sources = (),
    *,
    results: Results = None,
    gradient: GradientDeclaration = None,
    cuda: Sources = (),
    flags: Sequence[str] = (),
    cpp_flags: Sequence[str] = (),
    cuda_flags: Sequence[str] = (),
) -> RegisteredOperator:
    """An operator that is registered with PyTorch, by TORCH_LIBRARY or torch.library.

    Its meta function or `results` gives the shapes; without either it works in PyNative mode only, where its run tells
    them. Its registered autograd gives the gradient. An argument that it writes to is changed in a copy, which is a
    result, before those that it returns.

    Args:
        name: "ns::name", all overloads, or "ns::name.overload".
        sources: what registers it, C++ files or a library, unless it is registered already; compiled and loaded now.
        results: see `aot`; for an operator without a meta function.
        gradient: see `aot`; instead of the registered autograd. A line may call other registered operators, "ns::f".
        cuda: what registers the CUDA kernels; compiled too if MindSpore's device is the GPU.
        flags, cpp_flags, cuda_flags: see `aot`.

    Raises:
        ValueError: nobody has registered the operator, or it has arguments of types that MindSpore has not.
        KernelError: the sources cannot be compiled, or PyTorch refuses what they register, or something else has
            registered the operator before them.
    """
    registration.load_registration(name, sources, cuda, flags_by_device(flags, cpp_flags, cuda_flags))
    return RegisteredOperator(name, tuple(registration.registered_names(name, results, gradient)))
