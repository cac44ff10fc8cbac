"""What a compiler, the linker or the loader said, in the form in which users read it: the first error on top."""

from __future__ import annotations

import re
import shutil
import subprocess

from bridge.kernels.errors import KernelError

# What PyTorch's headers or the bridge's stumble over, and the sentence for it.
_SENTENCES = (
    (
        r"overloaded function|no matches converting function|declaration of .* has no initializer|"
        r"cannot resolve address|missing template arguments|cannot determine which instance",
        'a function that is overloaded or a template has to be named exactly: function="f<float>", or '
        'function="static_cast<at::Tensor (*)(const at::Tensor &, double)>(f)"',
    ),
)


def first_error(output: str) -> str:
    """The line of a compiler's or linker's output that says what is wrong."""
    lines = output.splitlines()
    for pattern in (r": (fatal )?error: |^error: ", r"undefined reference|cannot find|multiple definition"):
        for line in lines:
            if re.search(pattern, line):
                return line.strip()
    return lines[0].strip() if lines else "it said nothing"


def failed(name: str, doing: str, output: str, command: list[str]) -> KernelError:
    """The error for a command that failed."""
    asserted = re.search(r'static assertion failed(?:: | with ")(.*?)"?$', output, re.MULTILINE)
    first = asserted[1] if asserted else first_error(output)
    for pattern, sentence in _SENTENCES:
        if not asserted and re.search(pattern, first):
            first = f"{first}\n  {sentence}"
    return KernelError(
        f"{name}: {doing} failed:\n  {first}\n\nEverything that the compiler said:\n{output}\n\nThe command was:\n"
        f"{' '.join(command)}"
    )


def demangled(symbol: str) -> str:
    """A C++ symbol as in the source, where binutils are there to tell."""
    if not shutil.which("c++filt"):
        return symbol
    return subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=False).stdout.strip()


def undefined(name: str, symbols: list[str], mindspores_strings: bool) -> KernelError:
    """The error for symbols that nobody defines."""
    words = ", ".join(map(demangled, symbols))
    if mindspores_strings and any(re.match(r"_ZNK?(3c10|2at|5torch)", symbol) for symbol in symbols):
        return KernelError(
            f"{name}: a source includes custom_aot_extra.h, so all are compiled with MindSpore's std::string, which "
            f"PyTorch's functions do not have: {words}. Bring the function by kernels.extension instead, which passes "
            "attributes as C++ arguments"
        )
    verb = "is" if len(symbols) == 1 else "are"
    pronoun = "it" if len(symbols) == 1 else "them"
    return KernelError(f"{name}: {words} {verb} declared and used, but none of the sources defines {pronoun}")


def load_error(name: str, error: str) -> KernelError:
    """The error for a library that cannot be loaded."""
    missing = re.search(r"undefined symbol: (\w+)", error)
    return (
        undefined(name, [missing[1]], False)
        if missing
        else KernelError(f"{name}: the library cannot be loaded: {error}")
    )
