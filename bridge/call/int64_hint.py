"""What an error says besides PyTorch's words where PyTorch takes int64 only, as for labels."""

from __future__ import annotations

import re

_WANTS_INT64 = re.compile(
    r"expected target dtype to be Long or Byte, but got \w+|expected scalar type Long but found U?Int\w*"
    r"|is only applicable to index tensor of type LongTensor"
    r"|\"nll_loss\w*\" not implemented for 'U?Int\w*'"
)
_HINT = ": cast it by `.astype(mindspore.int64)`"


def with_hint(words: str) -> str:
    """The words of an error, with what to write if PyTorch wants int64."""
    found = _WANTS_INT64.search(words)
    if found is None or _HINT in words:
        return words
    return f"{words[: found.end()]}{_HINT}{words[found.end() :].removeprefix('.')}"


def give_hint(error: BaseException) -> None:
    """Have an error that has words only say that too."""
    if len(error.args) == 1 and isinstance(error.args[0], str):
        error.args = (with_hint(error.args[0]),)
