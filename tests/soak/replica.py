"""`bayplan run` with a clock that can jump: a file that the environment names says by how many seconds."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bayplan.cli.commands.main import main

OFFSET_FILE = "BAYPLAN_SOAK_CLOCK"
LOOK_SECONDS = 0.5


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


if __name__ == "__main__":
    if name := os.environ.get(OFFSET_FILE):
        jumping(Path(name))
    sys.exit(main())
