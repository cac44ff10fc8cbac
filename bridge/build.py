"""Kernels of your own in a wheel: compiled by setup.py, with no compiler where it is installed.

    # setup.py
    from bridge.build import ATenExtension, BuildKernels

    setup(
        packages=["my_package"],
        ext_modules=[
            ATenExtension("my_package.my_kernels", ["csrc/sigmoid.cpp"],
                          {"sigmoid(Tensor x) -> Tensor": "x: sigmoid_backward(grad, result)"}),
        ],
        cmdclass={"build_ext": BuildKernels},
    )

    # my_package/__init__.py
    sigmoid = kernels.extension(HERE / "my_kernels.so", "sigmoid(Tensor x) -> Tensor", results="x",
                                gradient="x: sigmoid_backward(grad, result)")

The library finds PyTorch's and the bridge's by name, among what is loaded, and so holds no path. It fits the releases
of PyTorch and of the bridge that it was built with.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

from setuptools import Extension
from setuptools.command.build_ext import build_ext

from bridge.kernels.declaration import Initial
from bridge.kernels.declaring import functions_of
from bridge.kernels.libraries import build_into
from bridge.kernels.shims import Form
from bridge.kernels.sources import DeviceLibrary, Sources, paths
from bridge.kernels.toolchain import flags_by_device
from bridge.op.table import Variant


class ATenExtension(Extension):
    """A library of kernels.

    Args:
        name: where it goes: "my_package.my_kernels" is my_package/my_kernels.so.
        sources: C++ files, and `.cu` files if `cuda`.
        kernels: schema line -> gradient line, or None for a kernel without one or with a Python function.
        form: "extension" or "aot", as the functions of bridge.kernels.
        initial: see bridge.kernels.aot.
        cuda: whether it is for the GPU.
        flags: for the compilers.

    Raises:
        ValueError, FileNotFoundError: as bridge.kernels.aot.
    """

    def __init__(
        self,
        name: str,
        sources: Sources,
        kernels: Mapping[str, str | None],
        form: Form = "extension",
        initial: Initial = None,
        cuda: bool = False,
        flags: Sequence[str] = (),
    ) -> None:
        files = paths(sources)
        super().__init__(name, [str(path) for path in files])
        device: Variant = "CUDA" if cuda else "CPU"
        self.library = DeviceLibrary(device, files, flags_by_device(flags, (), ())[device], elsewhere=False)
        self.functions = functions_of(form, kernels, initial)


class BuildKernels(build_ext):
    """setuptools' build_ext, which builds ATenExtensions too."""

    def get_ext_filename(self, fullname: str) -> str:
        """A library that Python does not import has no tag of a Python release in its name."""
        ours = {ext.name for ext in self.extensions if isinstance(ext, ATenExtension)}
        ours |= {name.rpartition(".")[2] for name in ours}
        return f"{fullname.replace('.', '/')}.so" if fullname in ours else super().get_ext_filename(fullname)

    def build_extension(self, ext: Extension) -> None:
        if not isinstance(ext, ATenExtension):
            super().build_extension(ext)
            return
        target = pathlib.Path(self.get_ext_fullpath(ext.name)).absolute()
        target.parent.mkdir(parents=True, exist_ok=True)
        build_into(ext.library.recipe(ext.functions), target, int(self.parallel or 2))
