"""`bayplan run` with a clock that can jump: a file that the environment names says by how many seconds.

It keeps its whole journal, however large, so that all of it can be replayed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bayplan.cli.commands.main import main
from bayplan.runtime.core.journal import FileJournal

OFFSET_FILE = "BAYPLAN_SOAK_CLOCK"
LOOK_SECONDS = 0.5
JOURNAL_FILES = 100_000


def jumping(path: Path) -> None:
    """From now on the wall clock of this process is off by what the file says."""
    real, monotonic = time.time, time.monotonic
    known = [0.0, monotonic()]

    def shifted() -> float:
        if monotonic() >= known[1]:
            known[1] = monotonic() + LOOK_SECONDS
            try:
                known[0] = float(path.read_text())
            except (OSError, ValueError):
                known[0] = 0.0
        return real() + known[0]

    time.time = shifted


def keeping_the_journal() -> None:
    """No file of the journal is deleted."""
    defaults = FileJournal.__init__.__kwdefaults__
    assert defaults is not None
    defaults["files_max"] = JOURNAL_FILES


if __name__ == "__main__":
    keeping_the_journal()
    if name := os.environ.get(OFFSET_FILE):
        jumping(Path(name))
    sys.exit(main())
