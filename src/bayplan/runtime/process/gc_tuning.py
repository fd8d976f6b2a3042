"""How often a process that runs for long looks for garbage."""

from __future__ import annotations

import gc

YOUNG, MIDDLE, OLD = 50_000, 20, 10


def collect_rarely() -> None:
    """Look for objects in cycles less often than Python does by itself.

    Nearly everything here is freed the moment it is let go of: there are hardly any cycles to find. But there
    are millions of objects that stay, and looking through all of them again and again took a sixth of the
    time with 15,000 Workloads. It is not turned off, as libraries do leave cycles behind.
    """
    gc.set_threshold(YOUNG, MIDDLE, OLD)
