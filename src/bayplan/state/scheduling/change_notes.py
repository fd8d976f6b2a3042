"""What changes leave to do for the gang state machine: gangs to look at again, and what may help others."""

from __future__ import annotations

from bayplan.model.gang import Ref
from bayplan.state.scheduling.gang_state import GangState
from bayplan.state.scheduling.queue import WakeupEvent


class ChangeNotes:
    """Many changes note the same gang; its state is worked out once, when the notes are taken."""

    def __init__(self) -> None:
        self._touched: dict[Ref, bool] = {}  # gangs, and whether they changed themselves
        self._hints: set[WakeupEvent] = set()

    def touch(self, crew: GangState, own: bool) -> None:
        """The state of a gang is to be worked out again; `own`: the gang itself changed."""
        crew.note_whole()
        self.mark(crew.ref, own)

    def mark(self, ref: Ref, own: bool) -> None:
        """The same for a gang that is known by name only."""
        self._touched[ref] = own or self._touched.get(ref, False)

    def hint(self, hint: WakeupEvent, happened: bool = True) -> None:
        """Something happened that may help pending gangs."""
        if happened:
            self._hints.add(hint)

    def take_touched(self) -> list[tuple[Ref, bool]]:
        """The gangs touched since this was called last, and whether they changed themselves."""
        touched, self._touched = list(self._touched.items()), {}
        return touched

    def take_hints(self) -> set[WakeupEvent]:
        """What happened since this was called last that may help pending gangs."""
        hints, self._hints = self._hints, set()
        return hints
