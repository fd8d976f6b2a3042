"""The state of one gang, computed from its spec and pods: pending, bound and failed pods, and blockers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bayplan.model.gang import GangSpec, Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.scheduling_rejection import RejectionReason, SchedulingRejection
from bayplan.state.scheduling.subgroup_counts import NO_RANK, MemberState, PodSetCounts, PodSetRank

__all__ = ["GangState", "MemberState", "had_minimum", "hindrance", "in_order", "part_of"]


@dataclass(slots=True)
class GangState:
    """State of one gang, or of a single pod. Counts are updated incrementally: no event scans all pods."""

    ref: Ref
    lone: bool = False
    charter: GangSpec | None = None
    counts: PodSetCounts | None = None  # by pod set, if each pod set has its own minimum
    parts: dict[PodKey, MemberState] = field(default_factory=dict)
    seats: dict[PodKey, PodSetRank] = field(default_factory=dict)
    seen: dict[PodKey, int] = field(default_factory=dict)  # pods are numbered in order of arrival
    waiting: dict[PodKey, None] = field(default_factory=dict)  # gated or not
    gated: dict[PodKey, None] = field(default_factory=dict)
    standing: dict[PodKey, None] = field(default_factory=dict)
    failed: dict[PodKey, None] = field(default_factory=dict)
    out: dict[PodKey, None] = field(default_factory=dict)  # binding in flight
    unsure: dict[PodKey, float] = field(default_factory=dict)  # bind writes with unknown result, since when
    victims: dict[PodKey, None] = field(default_factory=dict)  # pods being preempted for it
    trouble: float | None = None  # when a bind failed
    fresh: bool = False  # it changed while its pods were being bound
    left: SchedulingRejection | None = None  # why some pods stay pending while others are bound
    heard: Mapping[str, int] = field(default_factory=dict)  # event counts at the time of the decision
    told: SchedulingRejection | None = None
    noted: SchedulingRejection | None = None  # the blocker that was reported last
    blocker_at: float = float("-inf")
    blocker_for: int = 0  # the newest pod at that time
    begun: bool = False  # it had its minimum once
    start_recorded: bool = False  # the start was written, or the write is in flight
    broken: bool = False  # a bind failed before it had its minimum
    spent: bool = False  # it fell below its minimum, and could not be repaired in time
    ordered: tuple[Pod, ...] | None = None  # pending pods in order; computed on demand

    def rule(self, spec: GangSpec | None) -> None:
        """Apply a new spec."""
        before, self.charter = self.charter, spec
        if before is None or spec is None or before.uid != spec.uid:
            self.told = self.noted = None  # the last report was about another spec
            self.start_recorded = False
        if spec is None or spec.tree is None or not spec.has_minima:
            self.counts = None
        elif self.counts is None or before is None or _counts_key(before) != _counts_key(spec):
            pods = ((self.seats[key], part) for key, part in self.parts.items())
            self.counts = PodSetCounts.of(spec.tree, pods, quorum=spec.quorum)

    def take(self, key: PodKey, part: MemberState, rank: PodSetRank = NO_RANK) -> bool:
        """Set the state and pod set of a pod. Returns whether the state changed."""
        before = self.parts.get(key)
        if before is part and self.seats[key] == rank:
            return False
        if before is not None:
            self._drop(key)
        self.parts[key], self.seats[key] = part, rank
        self.ordered = None
        if self.counts is not None:
            self.counts.count(rank, part, 1)
        if part in (MemberState.WAITING, MemberState.GATED):
            self.waiting[key] = None
        if part is MemberState.GATED:
            self.gated[key] = None
        elif part is MemberState.STANDING:
            self.standing[key] = None
        elif part is MemberState.FAILED:
            self.failed[key] = None
        return True

    def move_bind(self, key: PodKey, before: GangState | None) -> None:
        """A pod moves here from another gang; a bind in flight moves with it."""
        if before is not None and key in before.out:
            self.out[key] = None
            if key in before.unsure:
                self.unsure[key] = before.unsure[key]

    def lose(self, key: PodKey) -> None:
        """A pod was deleted, or belongs to another gang."""
        self._drop(key)
        self.parts.pop(key, None)
        self.seats.pop(key, None)
        self.seen.pop(key, None)
        self.out.pop(key, None)
        self.unsure.pop(key, None)
        self.ordered = None

    def _drop(self, key: PodKey) -> None:
        for pods in (self.waiting, self.gated, self.standing, self.failed):
            pods.pop(key, None)
        if self.counts is not None and key in self.parts:
            self.counts.count(self.seats[key], self.parts[key], -1)

    def note_started(self) -> None:
        """Mark the gang as started once it has its minimum and no bind is in flight.

        A strict gang without any bound pod starts over.
        """
        if self.out or self.charter is None or not self.charter.is_gang:
            return
        if not self.begun:
            self.begun = self.has_minimum
        elif self.charter.is_strict and not self.standing:
            self.begun = False

    @property
    def has_minimum(self) -> bool:
        """Whether its minimum is bound, of every pod set if each has its own."""
        minimum = 0 if self.charter is None else self.charter.minimum
        return len(self.standing) >= minimum and (self.counts is None or self.counts.has_minimum)

    @property
    def newest(self) -> int:
        """The number of the newest existing pod."""
        return next(reversed(self.seen.values()), 0)

    @property
    def there(self) -> int:
        return len(self.waiting) + len(self.standing)

    @property
    def is_partial(self) -> bool:
        """Whether it started partially, never had its minimum, and has pending pods."""
        return not self.begun and bool(self.waiting) and bool(self.standing) and not self.has_minimum

    @property
    def has_fallen(self) -> bool:
        """Whether it is a strict gang that is partially bound, below its minimum."""
        spec = self.charter
        if spec is None or not spec.is_strict or not spec.is_gang:
            return False
        return bool(self.standing) and not self.has_minimum

    @property
    def is_unrecorded(self) -> bool:
        """Whether it has started and that is not recorded yet."""
        spec = self.charter
        if self.lone or spec is None or spec.started or self.start_recorded:
            return False
        if spec.tree is not None:
            return spec.quorum and bool(self.standing) and self.has_minimum
        return len(self.standing) >= max(spec.minimum, 1)


def _counts_key(spec: GangSpec) -> tuple[object, ...]:
    """The fields of a spec that the counts depend on."""
    return spec.tree, spec.quorum


def part_of(pod: Pod) -> MemberState:
    """The state of a pod in its gang."""
    if pod.leaving:
        return MemberState.NONE
    if pod.takes_room or pod.did_its_part:
        return MemberState.STANDING
    if pod.over:
        return MemberState.FAILED
    if not pod.ours:
        return MemberState.NONE
    return MemberState.GATED if pod.gated else MemberState.WAITING


def hindrance(gang: GangState) -> SchedulingRejection | None:
    """What blocks a gang from being tried at all. A flaw that equals a rejection reason maps to it."""
    spec, there = gang.charter, gang.there
    if spec is None:
        return SchedulingRejection(RejectionReason.NO_CHARTER, there=there, about=gang.ref.name)
    if spec.flaw:
        known = spec.flaw == RejectionReason.NO_GROUP
        what = RejectionReason.NO_GROUP if known else RejectionReason.FLAWED
        about = gang.ref.name if known else spec.flaw
        return SchedulingRejection(what, spec.minimum, there, about=about)
    if gang.counts is not None:
        return _pod_set_blocker(gang, gang.counts, spec.minimum)
    counted = there + len(gang.failed) if spec.tree is not None else there
    if counted < spec.minimum:
        return SchedulingRejection(RejectionReason.TOO_FEW, spec.minimum, there)
    if spec.desired > there and not gang.standing:
        return SchedulingRejection(RejectionReason.TOO_FEW, spec.desired, there)
    spare = spec.is_strict and there - len(gang.gated) >= spec.minimum
    if gang.gated and not spare:  # pods that are ungated first must not start without the others
        return SchedulingRejection(RejectionReason.GATED, spec.minimum, there, pod=_first(gang.gated))
    return None


def _pod_set_blocker(gang: GangState, counts: PodSetCounts, minimum: int) -> SchedulingRejection | None:
    """The first pod set that lacks pods, or lacks ungated pods; pods beyond the minimum block nothing."""
    part = counts.too_small()
    if part is not None:
        if part not in counts.minima:
            return SchedulingRejection(RejectionReason.TOO_FEW, minimum, gang.there, part=part)
        if len(counts.minima) == 1 and counts.tree is None:
            return SchedulingRejection(RejectionReason.TOO_FEW, minimum, counts.there.get(part, 0))
        return SchedulingRejection(
            RejectionReason.TOO_FEW, counts.minima[part], counts.there.get(part, 0), part=part
        )
    part = counts.lacks_ungated()
    if part is None:
        return None
    mine = [key for key in gang.gated if gang.seats[key][0] == part]
    named = part if len(counts.minima) > 1 else ""
    return SchedulingRejection(RejectionReason.GATED, minimum, gang.there, pod=_first(mine), part=named)


def _first(keys: Iterable[PodKey]) -> PodKey:
    return min(keys, key=lambda key: (key.namespace, key.name))


def in_order(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Pods in the order in which they are tried."""
    return tuple(sorted(pods, key=_order))


def _order(pod: Pod) -> tuple[str, int, float, str, str]:
    return (pod.pod_set, pod.rank, pod.created, pod.key.namespace, pod.key.name)


def had_minimum(gang: GangState, pods: Mapping[PodKey, Pod]) -> bool:
    """Whether a partially bound gang must have had its minimum before this process started.

    All pods of the minimum exist before the first one starts. If fewer existing pods are as old as that,
    others have been deleted since.
    """
    starts = [pods[key].started for key in gang.standing if pods[key].started]
    if gang.charter is None or not starts:
        return False
    first = min(starts)
    return sum(pods[key].created <= first for key in (*gang.waiting, *gang.standing)) < gang.charter.minimum
