"""Values that networks find here."""

import types
from typing import Any

K = 2.0
D = {"k": 2.0}
S = {"a", "b"}
namespace = types.SimpleNamespace(k=2.0)


class Options:
    k = 2.0


class Setting:
    def __init__(self) -> None:
        self.v = 2.0

    @property
    def half(self) -> float:
        return self.v / 2


setting: Any = Setting()
