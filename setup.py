"""Builds the shims with the package, whose requirements bridge/_versions.py has; all else stands in pyproject.toml."""

import os
import pathlib
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(pathlib.Path(__file__).parent))  # a build back end does not put the project on the path

from aten_ops.versions import PYTHON, REQUIREMENTS


class BuildShims(build_ext):
    """Generate and compile; `--parallel N` or BRIDGE_JOBS sets the number of compilers that run at once (2)."""

    def run(self) -> None:
        from aten_ops.build import build

        root = pathlib.Path(__file__).parent if self.inplace else pathlib.Path(self.build_lib)
        build(root / "bridge", jobs=int(self.parallel or os.environ.get("BRIDGE_JOBS", 2)))

    def get_outputs(self) -> list[str]:
        package = pathlib.Path(self.build_lib) / "bridge"
        suffixes = (".so", ".h", ".json", ".pyi", ".txt")
        return [str(p) for p in package.rglob("*") if p.is_file() and p.suffix in suffixes]

    def get_source_files(self) -> list[str]:
        return []


setup(
    ext_modules=[Extension("bridge.lib", sources=[])],
    cmdclass={"build_ext": BuildShims},
    install_requires=REQUIREMENTS,
    python_requires=PYTHON,
)
