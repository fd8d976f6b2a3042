"""One gang as its charter and its pods make it: who waits, who stands, and what is in its way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.charter import Charter
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.standstill import Hindrance, Standstill


class Part(StrEnum):
    """What a pod is to its gang."""

    NONE = "none"  # it is leaving, or another scheduler looks for its node
    WAITING = "waiting"
    GATED = "gated"  # waiting, but something holds it back
    STANDING = "standing"  # it has a node, or did its part there
    FAILED = "failed"


@dataclass(slots=True)
class Crew:
    """What is known of one gang, or of one lone pod. Counts are kept, so that no event looks at all pods."""

    ref: Ref
    lone: bool = False
    charter: Charter | None = None
    parts: dict[PodKey, Part] = field(default_factory=dict)
    seen: dict[PodKey, int] = field(default_factory=dict)  # pods are numbered as they come
    waiting: dict[PodKey, None] = field(default_factory=dict)  # held back or not
    gated: dict[PodKey, None] = field(default_factory=dict)
    standing: dict[PodKey, None] = field(default_factory=dict)
    failed: dict[PodKey, None] = field(default_factory=dict)
    out: dict[PodKey, None] = field(default_factory=dict)  # being bound
    unsure: dict[PodKey, float] = field(default_factory=dict)  # nobody knows how its write ended, since when
    victims: dict[PodKey, None] = field(default_factory=dict)  # on their way out for it
    trouble: float | None = None  # when a bind has failed
    fresh: bool = False  # it changed while it was being bound
    left: Standstill | None = None  # why some of its pods stay behind while the others are bound
    heard: Mapping[str, int] = field(default_factory=dict)  # what had happened when it was decided on
    told: Standstill | None = None
    noted: Standstill | None = None  # of what is in its way, what was offered to be told
    noted_at: float = float("-inf")
    begun: bool = False  # it had its minimum once
    recorded: bool = False  # that it has begun was written down, or is being
    broken: bool = False  # a bind failed before it had
    ordered: tuple[Pod, ...] | None = None  # those that wait, in order; made when asked for

    def take(self, key: PodKey, part: Part) -> bool:
        """A pod has this part now. Whether it had another."""
        before = self.parts.get(key)
        if before is part:
            return False
        if before is not None:
            self._drop(key)
        self.parts[key] = part
        self.ordered = None
        if part in (Part.WAITING, Part.GATED):
            self.waiting[key] = None
        if part is Part.GATED:
            self.gated[key] = None
        elif part is Part.STANDING:
            self.standing[key] = None
        elif part is Part.FAILED:
            self.failed[key] = None
        return True

    def lose(self, key: PodKey) -> None:
        """A pod is no more, or belongs to another gang."""
        self._drop(key)
        self.parts.pop(key, None)
        self.seen.pop(key, None)
        self.out.pop(key, None)
        self.ordered = None

    def _drop(self, key: PodKey) -> None:
        for pods in (self.waiting, self.gated, self.standing, self.failed):
            pods.pop(key, None)

    def note_whole(self) -> None:
        """Once it had its minimum, and nobody is being bound, it has begun for good."""
        if not self.begun and not self.out and self.charter is not None and self.charter.is_gang:
            self.begun = len(self.standing) >= self.charter.minimum

    @property
    def there(self) -> int:
        return len(self.waiting) + len(self.standing)

    @property
    def is_partial(self) -> bool:
        """Whether it has started in part, never was whole, and pods of it wait."""
        minimum = 0 if self.charter is None else self.charter.minimum
        return not self.begun and bool(self.waiting) and 0 < len(self.standing) < minimum

    @property
    def is_unrecorded(self) -> bool:
        """Whether it has begun, and that is still to be put on record."""
        charter = self.charter
        if self.lone or charter is None or charter.started or self.recorded or charter.tree is not None:
            return False
        return len(self.standing) >= max(charter.minimum, 1)


def part_of(pod: Pod) -> Part:
    """What a pod, as we believe it to be, is to its gang."""
    if pod.leaving:
        return Part.NONE
    if pod.takes_room or pod.did_its_part:
        return Part.STANDING
    if pod.over:
        return Part.FAILED
    if not pod.ours:
        return Part.NONE
    return Part.GATED if pod.gated else Part.WAITING


def hindrance(crew: Crew) -> Standstill | None:
    """What keeps a gang from being tried at all. A flaw that is the name of a hindrance is that one."""
    charter, there = crew.charter, crew.there
    if charter is None:
        return Standstill(Hindrance.NO_CHARTER, there=there, about=crew.ref.name)
    if charter.flaw:
        known = charter.flaw == Hindrance.NO_GROUP
        what = Hindrance.NO_GROUP if known else Hindrance.FLAWED
        about = crew.ref.name if known else charter.flaw
        return Standstill(what, charter.minimum, there, about=about)
    counted = there + len(crew.failed) if charter.tree is not None else there
    if counted < charter.minimum:
        return Standstill(Hindrance.TOO_FEW, charter.minimum, there)
    if charter.desired > there and not crew.standing:
        return Standstill(Hindrance.TOO_FEW, charter.desired, there)
    if crew.gated:  # whoever is let go first must not start without the others
        first = min(crew.gated, key=lambda key: (key.namespace, key.name))
        return Standstill(Hindrance.GATED, charter.minimum, there, pod=first)
    return None


def in_order(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """As they are tried."""
    return tuple(sorted(pods, key=_order))


def _order(pod: Pod) -> tuple[str, int, float, str, str]:
    return (pod.pod_set, pod.rank, pod.created, pod.key.namespace, pod.key.name)


def was_whole(crew: Crew, pods: Mapping[PodKey, Pod]) -> bool:
    """Whether a gang that stands in part must have been whole before anybody looked.

    All pods of its minimum are there before the first of them starts. If fewer of those that are there now
    are as old as that, others have gone since.
    """
    starts = [pods[key].started for key in crew.standing if pods[key].started]
    if crew.charter is None or not starts:
        return False
    first = min(starts)
    return sum(pods[key].created <= first for key in (*crew.waiting, *crew.standing)) < crew.charter.minimum
