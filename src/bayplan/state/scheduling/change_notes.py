"""What applied changes leave to do for the gang state machine: gangs to recompute, and wakeup events."""

from __future__ import annotations

from bayplan.model.gang import Ref
from bayplan.state.scheduling.gang_state import GangState
from bayplan.state.scheduling.queue import WakeupEvent


class ChangeNotes:
    """Notes of touched gangs and wakeup events. Many changes touch the same gang; it is recomputed once."""

    def __init__(self) -> None:
        self._touched: dict[Ref, bool] = {}  # gang → whether the gang itself changed
        self._hints: set[WakeupEvent] = set()

    def touch(self, gang: GangState, own: bool) -> None:
        """Recompute the state of a gang; `own`: the gang itself changed."""
        gang.note_started()
        self.mark(gang.ref, own)

    def mark(self, ref: Ref, own: bool) -> None:
        """The same for a gang given by reference only."""
        self._touched[ref] = own or self._touched.get(ref, False)

    def event(self, hint: WakeupEvent, happened: bool = True) -> None:
        """Note an event that may make pending gangs schedulable."""
        if happened:
            self._hints.add(hint)

    def take_touched(self) -> list[tuple[Ref, bool]]:
        """The gangs touched since the last call, and whether they themselves changed."""
        touched, self._touched = list(self._touched.items()), {}
        return touched

    def take_events(self) -> set[WakeupEvent]:
        """The wakeup events since the last call."""
        events, self._hints = self._hints, set()
        return events
