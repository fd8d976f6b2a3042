"""The journal of a replica, decided on again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def check_replay(journal: Path) -> None:
    """`bayplan replay` comes to the same decisions."""
    command = [sys.executable, "-m", "bayplan", "replay", "--quiet", str(journal)]
    replayed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
