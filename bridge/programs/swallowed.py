"""Refusals that the user's code catches, to go on without: with data PyTorch would not have raised an error there."""

from __future__ import annotations

import traceback

from bridge.programs.calls import Refusal
from bridge.programs.kept_elsewhere import is_own


class none_swallowed:
    """Inside runs a function. Raises a refusal that its code has caught, if it ends all the same."""

    def __enter__(self) -> None:
        self._before, Refusal.made = Refusal.made, []

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        made, Refusal.made = Refusal.made or [], self._before
        for refusal in made if kind is None else []:
            if any(is_own(frame.filename) for frame in traceback.extract_tb(refusal.__traceback__)):
                raise refusal
