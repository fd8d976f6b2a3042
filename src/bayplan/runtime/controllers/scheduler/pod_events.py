"""Tells those who wait why: conditions and events, behind everything that starts pods, and never twice.

Gangs change their minds faster than an API server takes notes. What a pod is to be told waits here until
there is room for it on the way; meanwhile the pod may get a node, or a newer reason replace the older one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bayplan.dialects.api import Ended, Write, WriteOutcome
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey
from bayplan.runtime.core.containment import UNCONTAINED, Containment

PATIENCE_SECONDS = 2.0  # pods of a gang come one after the other: only who waits longer is told so
IN_FLIGHT_MAX = 64
TRIES_MAX = 3
NEVER = float("inf")

Whom = PodKey | Ref


@dataclass(frozen=True, slots=True, eq=False)
class PendingNotice:
    """Something to say, how it is written, and when at the earliest."""

    whom: Whom
    words: str
    writes: Callable[[float], Iterator[Write]]
    due: float


@dataclass(frozen=True, slots=True)
class NoticeWriteTag:
    """Marks a write of ours: whom it tells what."""

    whom: Whom
    words: str
    tries: int = 1


class PodEventPublisher:
    """Two lines, each in the order of time: what is said at once, and what only after a while."""

    def __init__(self) -> None:
        self.prompt: deque[PendingNotice] = deque()
        self.patient: deque[PendingNotice] = deque()
        self.latest: dict[Whom, PendingNotice] = {}  # what is still to be said
        self.said: dict[Whom, str] = {}
        self.news: deque[tuple[PodKey, Callable[[], Write]]] = deque()  # good ones: they wait for quiet
        self.in_flight = 0

    def tell(
        self, whom: Whom, words: str, writes: Callable[[float], Iterator[Write]], now: float, at_once: bool
    ) -> None:
        """Say this soon, instead of anything that was to be said before."""
        waiting = self.latest.get(whom)
        if waiting is not None and waiting.words == words:
            return
        if waiting is None and self.said.get(whom) == words:
            return
        tell = PendingNotice(whom, words, writes, now if at_once else now + PATIENCE_SECONDS)
        self.latest[whom] = tell
        (self.prompt if at_once else self.patient).append(tell)

    def drop(self, whom: Whom) -> None:
        """Nothing more needs to be said."""
        self.latest.pop(whom, None)
        self.said.pop(whom, None)

    def announce(self, whom: PodKey, write: Callable[[], Write]) -> None:
        """Say this when there is nothing better to do."""
        self.news.append((whom, write))

    def writes(
        self, now: float, containment: Containment = UNCONTAINED, busy: bool = False
    ) -> Iterator[Write]:
        """As much of what is due as there is room for; good news only while pods need not be bound.

        What cannot be put into a write is said when the same whom is to be told something again.
        """
        for line in (self.prompt, self.patient):
            while line and line[0].due <= now and self.in_flight < IN_FLIGHT_MAX:
                tell = line.popleft()
                if self.latest.get(tell.whom) is tell:
                    del self.latest[tell.whom]
                    self.said[tell.whom] = tell.words
                    writes, done = containment.attempt(tell.writes(now), "tell", *_titled(tell.whom))
                    if not done:
                        del self.said[tell.whom]
                    for write in writes:
                        self.in_flight += 1
                        marked = isinstance(write.tag, NoticeWriteTag)
                        yield write if marked else replace(write, tag=NoticeWriteTag(tell.whom, tell.words))
        while self.news and not busy and self.in_flight < IN_FLIGHT_MAX:
            whom, made = self.news.popleft()
            found, _ = containment.attempt(_once(made), "tell", *_titled(whom))
            self.in_flight += len(found)
            yield from (replace(write, tag=NoticeWriteTag(whom, "")) for write in found)

    def ended(self, outcome: WriteOutcome, now: float) -> None:
        """A write ended; perhaps one of ours. What nobody took in, as far as we know, is said a few times."""
        write, tag = outcome.write, outcome.write.tag
        if not isinstance(tag, NoticeWriteTag):
            return
        self.in_flight -= 1
        still = tag.whom not in self.latest and self.said.get(tag.whom) == tag.words
        unheard = outcome.ended in (Ended.TIMED_OUT, Ended.CONFLICT)
        if unheard and still and tag.tries < TRIES_MAX:
            again = replace(write, tag=replace(tag, tries=tag.tries + 1))
            tell = PendingNotice(tag.whom, tag.words, lambda _: iter((again,)), now + PATIENCE_SECONDS)
            self.latest[tag.whom] = tell
            self.patient.append(tell)

    def next_due(self) -> float:
        """When something is to be said; what waits for others to end needs no clock."""
        for line in (self.prompt, self.patient):
            while line and self.latest.get(line[0].whom) is not line[0]:
                line.popleft()
        if self.in_flight >= IN_FLIGHT_MAX:
            return NEVER
        return min((line[0].due for line in (self.prompt, self.patient) if line), default=NEVER)


def _titled(whom: Whom) -> tuple[str, str]:
    kind = whom.kind if isinstance(whom, Ref) else "Pod"
    return kind, f"{whom.namespace}/{whom.name}"


def _once(made: Callable[[], Write]) -> Iterator[Write]:
    yield made()
