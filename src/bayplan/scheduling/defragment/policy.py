"""When moves are worth it, and how many of them: budget, hysteresis and the gain that is expected."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class DefragmentPolicy:
    """Limits of defragmentation without a person. Times are in seconds."""

    waits: float = 900.0  # a gang has to wait so long before others move for it
    again_after: float = 1800.0  # and so long until moves for it are searched again
    moves_per_hour: int = 12
    gpu_hours_per_day: float = 500.0  # of work done again
    gain_ratio: float = 2.0  # the gain expected has to be so many times the loss
    least_run_time: float = 600.0  # a gang runs so long before it moves

    def __post_init__(self) -> None:
        assert self.gain_ratio > 0, self

    def cost_below(self, gpus: float, waited: float) -> int:
        """The loss, in GPU-seconds, from which moves are not worth it for a gang that waits.

        A gang that has waited for some time is expected to wait as long again: nothing better is known
        without a forecast. So the longer it waits, the more others may lose for it.
        """
        return max(int(gpus * waited / self.gain_ratio), 0)


class MoveBudget:
    """What was spent of the budget, and which gangs were tried when."""

    def __init__(self, policy: DefragmentPolicy) -> None:
        self.policy = policy
        self.last: dict[str, float] = {}  # by gang: when moves for it were searched
        self.moves: deque[tuple[float, int]] = deque()  # when, and how many
        self.losses: deque[tuple[float, int]] = deque()  # when, and GPU-seconds

    def may_try(self, gang: str, since: float, now: float) -> bool:
        """Whether moves may be searched for a gang that has waited since then."""
        if now - since < self.policy.waits:
            return False
        last = self.last.get(gang)
        return last is None or now - last >= self.policy.again_after

    def tried(self, gang: str, now: float) -> None:
        """Moves were searched for a gang. Gangs that were not tried for a day are forgotten."""
        self.last[gang] = now
        if len(self.last) > 1000:
            self.last = {name: at for name, at in self.last.items() if now - at < 24 * HOUR}

    def has_moves(self, now: float) -> bool:
        """Whether at least one more move is allowed in this hour."""
        _forget(self.moves, now - HOUR)
        return sum(count for _, count in self.moves) < self.policy.moves_per_hour

    def spend(self, moves: int, lost: int, now: float) -> bool:
        """Take the moves of a plan from the budget; false, and nothing is taken, if they exceed it."""
        _forget(self.moves, now - HOUR)
        _forget(self.losses, now - 24 * HOUR)
        if sum(count for _, count in self.moves) + moves > self.policy.moves_per_hour:
            return False
        if sum(amount for _, amount in self.losses) + lost > self.policy.gpu_hours_per_day * HOUR:
            return False
        self.moves.append((now, moves))
        self.losses.append((now, lost))
        return True


def _forget(entries: deque[tuple[float, int]], before: float) -> None:
    while entries and entries[0][0] <= before:
        entries.popleft()
