"""Publishes why pods and gangs are pending: conditions and events, after all bindings, each only once.

Reasons change faster than an API server accepts writes. Notices are queued here until there is capacity for
them; meanwhile the pod may get a node, or a newer reason may replace the older one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bayplan.dialects.api import Ended, Write, WriteOutcome
from bayplan.dialects.kube.encode import writes as gang_writes
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.runtime.core.containment import UNCONTAINED, Containment

DELAY_SECONDS = 2.0  # pods of a gang arrive one after the other: only a wait beyond this is published
IN_FLIGHT_MAX = 64
TRIES_MAX = 3
NEVER = float("inf")

Subject = PodKey | Ref


@dataclass(frozen=True, slots=True, eq=False)
class PendingNotice:
    """A notice, its writes, and the earliest time to publish it."""

    subject: Subject
    text: str
    writes: Callable[[float], Iterator[Write]]
    due: float


@dataclass(frozen=True, slots=True)
class NoticeWriteTag:
    """The tag of a notice's write: its subject and text."""

    subject: Subject
    text: str
    tries: int = 1


class PodEventPublisher:
    """Two queues in order of time: notices that are due at once, and those due later."""

    def __init__(self) -> None:
        self.due_now: deque[PendingNotice] = deque()
        self.due_later: deque[PendingNotice] = deque()
        self.latest: dict[Subject, PendingNotice] = {}  # notices to publish
        self.published: dict[Subject, str] = {}
        # events of bound pods, published when nothing else is due
        self.bound_events: deque[tuple[PodKey, Callable[[], Write]]] = deque()
        self.in_flight = 0

    def publish(
        self,
        subject: Subject,
        text: str,
        writes: Callable[[float], Iterator[Write]],
        now: float,
        at_once: bool,
    ) -> None:
        """Publish this notice soon, instead of an earlier one about the same subject."""
        waiting = self.latest.get(subject)
        if waiting is not None and waiting.text == text:
            return
        if waiting is None and self.published.get(subject) == text:
            return
        tell = PendingNotice(subject, text, writes, now if at_once else now + DELAY_SECONDS)
        self.latest[subject] = tell
        (self.due_now if at_once else self.due_later).append(tell)

    def drop(self, subject: Subject) -> None:
        """Drop the notice about a subject."""
        self.latest.pop(subject, None)
        self.published.pop(subject, None)

    def announce(self, subject: PodKey, write: Callable[[], Write]) -> None:
        """Publish this event when nothing else is due."""
        self.bound_events.append((subject, write))

    def writes(
        self, now: float, containment: Containment = UNCONTAINED, busy: bool = False
    ) -> Iterator[Write]:
        """The notices that are due, within the limit of writes in flight.

        Events of bound pods are only published while no binding is in flight. A notice that cannot be encoded
        is dropped; the subject's next notice is tried again.
        """
        for line in (self.due_now, self.due_later):
            while line and line[0].due <= now and self.in_flight < IN_FLIGHT_MAX:
                tell = line.popleft()
                if self.latest.get(tell.subject) is tell:
                    del self.latest[tell.subject]
                    self.published[tell.subject] = tell.text
                    writes, done = containment.attempt(tell.writes(now), "tell", *_titled(tell.subject))
                    if not done:
                        del self.published[tell.subject]
                    for write in writes:
                        self.in_flight += 1
                        marked = isinstance(write.tag, NoticeWriteTag)
                        yield write if marked else replace(write, tag=NoticeWriteTag(tell.subject, tell.text))
        while self.bound_events and not busy and self.in_flight < IN_FLIGHT_MAX:
            subject, made = self.bound_events.popleft()
            found, _ = containment.attempt(_once(made), "tell", *_titled(subject))
            self.in_flight += len(found)
            yield from (replace(write, tag=NoticeWriteTag(subject, "")) for write in found)

    def ended(self, outcome: WriteOutcome, now: float) -> None:
        """Handle the outcome of a write; a notice without a confirmed outcome is repeated a few times.

        After that the next report of its reason publishes it again.
        """
        write, tag = outcome.write, outcome.write.tag
        if not isinstance(tag, NoticeWriteTag):
            return
        self.in_flight -= 1
        still = tag.subject not in self.latest and self.published.get(tag.subject) == tag.text
        unheard = outcome.ended in (Ended.TIMED_OUT, Ended.CONFLICT)
        if not (unheard and still):
            return
        if tag.tries == TRIES_MAX:
            del self.published[tag.subject]  # the next report of the same reason tries again
        else:
            retry_at = replace(write, tag=replace(tag, tries=tag.tries + 1))
            tell = PendingNotice(tag.subject, tag.text, lambda _: iter((retry_at,)), now + DELAY_SECONDS)
            self.latest[tag.subject] = tell
            self.due_later.append(tell)

    def next_due(self) -> float:
        """When the next notice is due; notices that wait for outcomes need no timer."""
        for line in (self.due_now, self.due_later):
            while line and self.latest.get(line[0].subject) is not line[0]:
                line.popleft()
        if self.in_flight >= IN_FLIGHT_MAX:
            return NEVER
        return min((line[0].due for line in (self.due_now, self.due_later) if line), default=NEVER)


def _titled(subject: Subject) -> tuple[str, str]:
    kind = subject.kind if isinstance(subject, Ref) else "Pod"
    return kind, f"{subject.namespace}/{subject.name}"


def _once(made: Callable[[], Write]) -> Iterator[Write]:
    yield made()


def pending_pod_writes(pod: Pod, code: str, text: str, now: float) -> Iterator[Write]:
    """The condition and the event that say why a pod is pending."""
    yield gang_writes.pending_write(pod, code, text, now)
    yield gang_writes.unschedulable_event(gang_writes.about_pod(pod), text, now)
