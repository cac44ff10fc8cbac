"""Whether later calls of a function do what its first call does, where that leaves something elsewhere than in tensors.

A graph does the same in each call, and leaves nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from bridge.programs.attributes import Attributes
from bridge.programs.counters import Counters, Noted
from bridge.programs.plan import Origin, Plan
from bridge.programs.settings import is_layers_own
from bridge.programs.stand_ins import Place, StandIns, is_stand_in

_NAMED = 8  # so many attributes are looked at for the one that an error names

Captured = tuple[Plan, Origin]


def do_the_same(one: Captured, other: Captured) -> bool:
    """Whether two captures are of programs that do the same with the same."""
    return one[0] == other[0] or (one[0].tree == other[0].tree and one[1].folded() == other[1].folded())


class LaterCalls:
    """The calls of a function after a first one.

    Args:
        modules: those that the function runs. Their attributes are as the first call has left them, and so they are
            afterwards, but where a later call does something else.
        capture: captures a call with what there is then.
        found: what the first call was captured as.
        before: what that has found.
        changed: the names of what it has left.
    """

    def __init__(
        self,
        modules: Sequence[torch.nn.Module],
        capture: Callable[[], Captured],
        found: Captured,
        before: Attributes,
        changed: Sequence[str],
    ) -> None:
        self._modules = modules
        self._capture = capture
        self._found = found
        self._before = before
        self._after = Attributes(modules)
        self._changed = changed

    def name_of_use(self, new: set[str], is_for_many: bool) -> str:
        """The name of what the first call leaves and a later one does something else by; empty if there is none. Notes
        in the plan what the calls overwrite, and what stays as the first one leaves it.

        Args:
            new: of attributes, those that hold tensors which each call makes anew.
            is_for_many: whether the plan is for many sizes or numbers: such are alike if each begins with the same.
        """
        own, unknown = self._found[0], self._found[1].kept.unknown
        places = None if own.leaves_elsewhere or unknown else self._before.places_set()
        own.overwrites = places is not None and self._does_without(places)
        if own.overwrites:
            return ""
        name = self._differs_now(may_go_back=not own.leaves_elsewhere)
        if not (name or is_for_many or own.leaves_elsewhere or unknown):
            once = {*self._before.changed()} - {*self._after.changed()}
            # Hooks stay with no graph, and what goes with them, or with data of one call, would be half.
            if once.isdisjoint(new) and not any(map(is_layers_own, once)):
                own.remembers = sorted(once)
        return name

    def _is_as_found(self) -> bool:
        return do_the_same(self._capture(), self._found)

    def _does_without(self, places: Sequence[Place]) -> bool:
        """Whether the function does the same without what is in these places, and puts it nowhere else."""
        try:
            with StandIns(places) as left:
                does = self._is_as_found()
            return does and not left.are_used and not Attributes(self._modules).hold(is_stand_in)
        except Exception:
            return False
        finally:
            self._after.restore()

    def _differs_now(self, may_go_back: bool) -> str:
        """The name of what the function uses of what its calls change, if a later call does something else; else empty.

        PyTorch keeps what it has found without data, and a later capture may lay memory out otherwise for that: so the
        first call is captured again, too. What counts calls may do something much later (counters.py).

        Args:
            may_go_back: whether all that has changed can be put back.
        """
        noted = Noted(self._before.roots_then(), self._after.roots)
        try:
            with noted:
                now = self._capture()
            if do_the_same(now, self._found):
                counters = noted.later()
                # What is put from one place to another is there for a later call, too.
                if not {*self._after.changed()} <= {*counters.names}:
                    self._after.give_data(now[1].data_of)
                    second = Attributes(self._modules)
                    if not self._is_as_found():
                        return self._after.changed()[0]
                    second.restore()
                return self._differs_later(counters)
            if may_go_back:
                self._before.restore()
                self._found = self._capture()
                if do_the_same(self._found, now):
                    return ""
        except Exception:
            pass
        return self._used() if may_go_back else self._changed[0]

    def _differs_later(self, counters: Counters) -> str:
        """The name of a counter for which the function does something else in a later call; empty if there is none."""
        now, names = Attributes(self._modules), counters.names

        def differs_once() -> bool:
            try:
                with counters:
                    return not self._is_as_found()
            except (Exception, SystemExit):
                return True
            finally:
                now.restore()

        def differs() -> bool:
            return any(differs_once() for _ in counters.rounds())

        if not names or not differs():
            return ""
        for name in names[:_NAMED] if len(names) > 1 else ():
            counters.change_only(name)
            if differs():
                return name
        return names[0]

    def _used(self) -> str:
        """The first name with which alone, as the first call has left it, the next call does something else."""
        for name in self._changed[:_NAMED] if len(self._changed) > 1 else ():
            self._before.restore()
            self._after.restore_only(name)
            try:
                does = self._is_as_found()
            except Exception:
                does = False
            if not does:
                return name
        return self._changed[0]
