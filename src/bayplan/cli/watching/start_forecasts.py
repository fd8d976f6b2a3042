"""Expected starts for the dashboard: made again from time to time, in a thread of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from bayplan.cli.live.gangs import ClusterOutlook
from bayplan.cli.live.state import Live
from bayplan.cli.starts.past_runs import JournalRuns
from bayplan.cli.starts.queued_gangs import outlook_starts
from bayplan.cli.starts.scheduled_gangs import ScheduledForecast
from bayplan.model.gang import Ref
from bayplan.runtime.core.clock import Clock, timer
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.journal import Damaged, JournalReader
from bayplan.simulation.forecast.expected_starts import ExpectedStart, kept

PACE_SECONDS = 10.0  # between two forecasts
PACE_FACTOR = 9.0  # times the duration of making one: at most a tenth of a core
Look = Callable[[JournalRuns], tuple[Live, ClusterOutlook, ScheduledForecast]]
"""The cluster as it is now; the outlook has a state of its own."""


class StartForecasts:
    """Keeps the forecasts of one cluster; `run` in one thread, everything else from any thread."""

    def __init__(
        self, look: Look, containment: Containment, clock: Clock, journal: Path | None = None
    ) -> None:
        self._look, self._containment, self._clock = look, containment, clock
        self._reader = None if journal is None else JournalReader(journal)
        self.past = JournalRuns()
        self._is_new = threading.Event()
        self.starts: Mapping[Ref, ExpectedStart] = {}

    def run(self, stop: threading.Event) -> None:
        """Forecast again and again, until it is stopped."""
        while not stop.is_set():
            seconds = timer(self._clock)
            with self._containment.unit("forecast", "dashboard"):
                self.forecast()
            stop.wait(max(PACE_SECONDS, PACE_FACTOR * seconds()))

    def forecast(self) -> None:
        """Make all forecasts again; those that hardly moved stay as they were."""
        self._read_journal()
        live, cluster, scheduled = self._look(self.past)
        starts = scheduled.starts() | outlook_starts(live, cluster, self.past.runs.values())
        found = kept(self.starts, starts, live.now)
        if found != self.starts:
            self.starts = found
            self._is_new.set()

    def _read_journal(self) -> None:
        """Read what is new. Of a journal that cannot be read further, what was read is kept."""
        if self._reader is not None:
            try:
                for entry in self._reader.read():
                    self.past.follow(entry)
            except (Damaged, OSError):
                self._reader = None  # the view of time says what is wrong with it

    def take_news(self) -> bool:
        """Whether there are new forecasts since the last call."""
        if not self._is_new.is_set():
            return False
        self._is_new.clear()
        return True
