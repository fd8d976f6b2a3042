"""How long the loop lets events gather between two steps.

The longer a burst lasts, the more of its events are handled in one step: each step costs something
whatever happened, and on a busy machine the API server needs the CPU as well.
"""

from __future__ import annotations

GATHER_SECONDS_MIN = 0.004
GATHER_SECONDS_MAX = 0.02


class BurstPace:
    """The pauses after waits for events; a single event is never kept waiting."""

    def __init__(self) -> None:
        self._gather = GATHER_SECONDS_MIN

    def pause(self, waited: float, spent: float) -> float:
        """How long to gather events, `waited` seconds after the last step, which took `spent` seconds."""
        in_burst = waited < GATHER_SECONDS_MIN
        pause = max(spent, self._gather if in_burst else 0.0)
        self._gather *= 2.0 if in_burst else 0.5
        self._gather = min(max(self._gather, GATHER_SECONDS_MIN), GATHER_SECONDS_MAX)
        return min(pause, GATHER_SECONDS_MAX)
