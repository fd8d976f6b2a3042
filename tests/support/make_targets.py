"""Targets of `make` that tests run: one at a time, since they share the folders build/ and dist/."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
"""The same in all processes of one run."""


@contextmanager
def making(target: str) -> Iterator[str]:
    """What `make` printed for a target; no other process makes anything until the block ends.

    A target that another process of this run has made already is not made again.
    """
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    known = folder / f".made-{target}"
    with (folder / ".making").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run, _, told = (known.read_text() if known.exists() else "").partition("\n")
        if not RUN or run != RUN:
            made = subprocess.run(["make", target], cwd=ROOT, capture_output=True, text=True, check=False)
            assert made.returncode == 0, made.stdout + made.stderr
            told = made.stdout
            known.write_text(f"{RUN}\n{told}")
        yield told
