"""Publishes why pods and gangs are pending: conditions and events, after all bindings, each only once.

Reasons change faster than an API server accepts writes. Notices are queued here until there is capacity for
them; meanwhile the pod may get a node, or a newer reason may replace the older one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bayplan.dialects.api import Ended, Write, WriteOutcome
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey
from bayplan.runtime.core.containment import UNCONTAINED, Containment

PATIENCE_SECONDS = 2.0  # pods of a gang arrive one after the other: only a wait beyond this is published
IN_FLIGHT_MAX = 64
TRIES_MAX = 3
NEVER = float("inf")

Whom = PodKey | Ref


@dataclass(frozen=True, slots=True, eq=False)
class PendingNotice:
    """A notice, its writes, and the earliest time to publish it."""

    whom: Whom
    words: str
    writes: Callable[[float], Iterator[Write]]
    due: float


@dataclass(frozen=True, slots=True)
class NoticeWriteTag:
    """The tag of a notice's write: its subject and text."""

    whom: Whom
    words: str
    tries: int = 1


class PodEventPublisher:
    """Two queues in order of time: notices that are due at once, and those due later."""

    def __init__(self) -> None:
        self.prompt: deque[PendingNotice] = deque()
        self.patient: deque[PendingNotice] = deque()
        self.latest: dict[Whom, PendingNotice] = {}  # notices to publish
        self.said: dict[Whom, str] = {}
        # events of bound pods, published when nothing else is due
        self.news: deque[tuple[PodKey, Callable[[], Write]]] = deque()
        self.in_flight = 0

    def tell(
        self, whom: Whom, words: str, writes: Callable[[float], Iterator[Write]], now: float, at_once: bool
    ) -> None:
        """Publish this notice soon, instead of an earlier one about the same subject."""
        waiting = self.latest.get(whom)
        if waiting is not None and waiting.words == words:
            return
        if waiting is None and self.said.get(whom) == words:
            return
        tell = PendingNotice(whom, words, writes, now if at_once else now + PATIENCE_SECONDS)
        self.latest[whom] = tell
        (self.prompt if at_once else self.patient).append(tell)

    def drop(self, whom: Whom) -> None:
        """Drop the notice about a subject."""
        self.latest.pop(whom, None)
        self.said.pop(whom, None)

    def announce(self, whom: PodKey, write: Callable[[], Write]) -> None:
        """Publish this event when nothing else is due."""
        self.news.append((whom, write))

    def writes(
        self, now: float, containment: Containment = UNCONTAINED, busy: bool = False
    ) -> Iterator[Write]:
        """The notices that are due, within the limit of writes in flight.

        Events of bound pods are only published while no binding is in flight. A notice that cannot be encoded
        is dropped; the subject's next notice is tried again.
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
        """Handle the outcome of a write; a notice without a confirmed outcome is repeated a few times."""
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
        """When the next notice is due; notices that wait for outcomes need no timer."""
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
