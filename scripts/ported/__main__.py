"""The command: the package's docstring has examples."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import traceback

from . import __doc__ as description
from . import files
from .compare import MODES, compare
from .file import File


def all_files() -> list[File]:
    names = sorted(module.name for module in pkgutil.iter_modules(files.__path__))
    return [importlib.import_module(f"{files.__name__}.{name}").FILE for name in names]


def verdict(file: File, mode: str) -> str:
    """What the table says of a file in a mode: whether it is equal, or how many results differ and why."""
    if mode in file.not_for:
        return f"not ported: {file.not_for[mode]}"
    try:
        differences = compare(file, mode)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:100]}"
    print(*(f"  {file.name}, {mode}: {line}" for line in differences), sep="\n", file=sys.stderr)
    if not differences:
        return "equal"
    return f"{len(differences)} differ: {file.differs.get(mode, 'not expected')}"


def is_expected(file: File, mode: str, found: str) -> bool:
    """Whether a verdict is what the file says: equal, or different for the reason that it gives, or not tried."""
    if mode in file.not_for:
        return True
    return found.endswith(f" differ: {file.differs[mode]}") if mode in file.differs else found == "equal"


def show(file: File, modes: list[str]) -> bool:
    """Print the row of a file; whether all its verdicts are expected."""
    try:
        _, counts = file.ported_text()
    except (ModuleNotFoundError, ValueError) as error:
        print(f"| {file.source} | {error} |", flush=True)
        return False
    verdicts = [verdict(file, mode) for mode in modes]
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    cells = (file.source, len(file.text().splitlines()), counts.total(), kinds, *verdicts)
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    return all(is_expected(file, *pair) for pair in zip(modes, verdicts, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="names of files; all if none is given")
    parser.add_argument("--mode", choices=MODES, help="only this one")
    parser.add_argument("--edits", action="store_true", help="print the edits, and compare nothing")
    options = parser.parse_args()
    chosen = [file for file in all_files() if not options.files or file.name in options.files]
    if options.edits:
        for file in chosen:
            for kind, edits in file.edits.items():
                print(*(f"{file.source}: {kind}: {old!r} -> {new!r}" for old, new in edits.items()), sep="\n")
        return 0
    modes = [options.mode] if options.mode else list(MODES)
    print("| file | lines | edits | kinds |", " | ".join(modes), "|")
    print("|---|---|---|---|" + "---|" * len(modes))
    return 0 if all([show(file, modes) for file in chosen]) else 1


if __name__ == "__main__":
    sys.exit(main())
