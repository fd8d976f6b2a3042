"""How long a gang will run: draws from past runs of its owner, name and shape, bounded by its limit.

Past runs are compared by the part of the limit that they used, because users ask for a multiple of what they
use, and each user for much the same multiple. Without a limit the seconds themselves are compared.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RUNS_KEPT = 30
"""Past runs kept for one owner, name or shape: recent ones predict better than old ones."""
RUNS_KEPT_OF_ALL = 2000
RUNS_NEEDED = 3
"""With fewer past runs that are alike, a wider group is asked."""
GROUPS_MAX = 50_000
_LAST_PART = re.compile(r"[-_.]?([0-9]+|(?=[a-z]*[0-9])[a-z0-9]{5,10})$")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What is known of a run before it ends."""

    owner: str
    name: str = ""  # of the series it belongs to, see `series`
    shape: str = ""  # equal for gangs with equal requests
    limit: float | None = None  # seconds after which it ends, or after which its owner expects it to end


def series(name: str) -> str:
    """The name without numbers or random letters at its end: `train-17` and `train-x7k2p` are one series."""
    while (found := _LAST_PART.search(name)) is not None and found.start():
        name = name[: found.start()]
    return name


class RunTimeHistory:
    """Past runs by group, the most recent ones of each."""

    def __init__(self) -> None:
        self._groups: dict[tuple[object, ...], deque[tuple[float, float]]] = {}
        self._parts: deque[float] = deque(maxlen=RUNS_KEPT_OF_ALL)  # of their limits, by runs of all owners
        self.runs = 0

    def learn(self, request: RunRequest, seconds: float) -> None:
        """A run has ended after so many seconds."""
        assert seconds >= 0, seconds
        self.runs += 1
        limit = request.limit or 0.0
        for group in _groups_of(request):
            known = self._groups.pop(group, None) or deque(maxlen=RUNS_KEPT)
            known.append((seconds, limit))
            self._groups[group] = known  # at the end: groups without news are dropped first
        while len(self._groups) > GROUPS_MAX:
            del self._groups[next(iter(self._groups))]
        if limit:
            self._parts.append(min(1.0, seconds / limit))

    def samples(self, request: RunRequest, elapsed: float = 0.0) -> Floats | None:
        """Run times that the gang may have, given how long it has run already; None if nothing is known."""
        for group in _groups_of(request):
            known = self._groups.get(group)
            if known is None or len(known) < RUNS_NEEDED:
                continue
            found = [value for one in known if (value := _scaled(one, request.limit)) > elapsed]
            if len(found) >= RUNS_NEEDED:
                return np.array(found)
        if request.limit is None:
            return None
        found = [part * request.limit for part in self._parts if part * request.limit > elapsed]
        if found:
            return np.array(found)
        return np.array([request.limit]) if request.limit > elapsed else None


def _groups_of(request: RunRequest) -> Iterator[tuple[object, ...]]:
    """The groups of runs that a request belongs to, the most alike first."""
    owner, name, shape = request.owner, request.name, request.shape
    yield "limit", owner, name, shape, request.limit
    yield "name, shape", owner, name, shape
    if name:
        yield "name", owner, name
    yield "shape", owner, shape
    yield "owner", owner


def _scaled(run: tuple[float, float], limit: float | None) -> float:
    """The seconds of a past run, as if it had had this limit."""
    seconds, past = run
    if limit is None:
        return seconds
    return min(limit, seconds * limit / past if past else seconds)
