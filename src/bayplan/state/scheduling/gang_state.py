"""The state of one gang, computed from its spec and pods: pending, bound and failed pods, and blockers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.gang import GangSpec, Group, Ref, has_minimum, part_below_minimum
from bayplan.model.pod import Pod, PodKey
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.placement.subgroups.constraint_tree import mandatory_ranks

PodSetRank = tuple[str, int]
"""A pod set and a rank in it."""
NO_RANK: PodSetRank = ("", 0)

FRUITLESS_MAX = 3  # preemptions in a row for a gang that gets no node; it pauses from then on
PAUSE_FIRST = 10.0  # it pauses for so many seconds, and for twice as long each time
PAUSE_MAX = 300.0


class MemberState(StrEnum):
    """State of a pod in its gang."""

    NONE = "none"  # terminating, or of another scheduler
    PENDING = "pending"
    GATED = "gated"  # pending, with scheduling gates
    BOUND = "bound"  # bound, or succeeded on its node
    FAILED = "failed"


@dataclass(slots=True)
class PodSetCounts:
    """Counts by pod set, limited to the pods its minimum is about: optional segments do not count."""

    minimums: dict[str, int]
    bounds: dict[str, int]  # ranks from here on do not count
    existing: dict[str, int] = field(default_factory=dict)
    gated: dict[str, int] = field(default_factory=dict)
    bound: dict[str, int] = field(default_factory=dict)
    tree: Group | None = None  # for quorum gangs: some members may be missing

    @staticmethod
    def of(
        tree: Group, pods: Iterable[tuple[PodSetRank, MemberState]], *, quorum: bool = False
    ) -> PodSetCounts:
        """The counts of a gang with these pods."""
        sets = list(tree.pod_sets())
        counts = PodSetCounts(
            {one.name: one.minimum for one in sets},
            {one.name: mandatory_ranks(one) for one in sets if one.segments},
            tree=tree if quorum else None,
        )
        for rank, part in pods:
            counts.count(rank, part, 1)
        return counts

    def count(self, slot: PodSetRank, part: MemberState, more: int) -> None:
        """Add or remove one pod."""
        name, rank = slot
        if rank >= self.bounds.get(name, rank + 1):
            return
        if part in (MemberState.PENDING, MemberState.GATED, MemberState.BOUND):
            self.existing[name] = self.existing.get(name, 0) + more
        if part is MemberState.GATED:
            self.gated[name] = self.gated.get(name, 0) + more
        elif part is MemberState.BOUND:
            self.bound[name] = self.bound.get(name, 0) + more

    def too_small(self) -> str | None:
        """The first pod set with too few pods, or group with too few members."""
        if self.tree is not None:
            part = part_below_minimum(self.tree, self.existing)
            return None if part is None else part.name
        return next(
            (name for name, minimum in self.minimums.items() if self.existing.get(name, 0) < minimum), None
        )

    def lacks_ungated(self) -> str | None:
        """The first pod set that lacks ungated pods."""
        free = {name: there - self.gated.get(name, 0) for name, there in self.existing.items()}
        if self.tree is not None and has_minimum(self.tree, free):
            return None
        held = (name for name, minimum in self.minimums.items() if free.get(name, 0) < minimum)
        return next((name for name in held if self.tree is None or self.gated.get(name)), None)

    @property
    def has_minimum(self) -> bool:
        """Whether the minimum of every pod set is bound."""
        if self.tree is not None:
            return has_minimum(self.tree, self.bound)
        return all(self.bound.get(name, 0) >= minimum for name, minimum in self.minimums.items())


@dataclass(slots=True)
class GangState:
    """State of one gang, or of a single pod. Counts are updated incrementally: no event scans all pods."""

    ref: Ref
    single: bool = False
    spec: GangSpec | None = None
    counts: PodSetCounts | None = None  # by pod set, if each pod set has its own minimum
    states: dict[PodKey, MemberState] = field(default_factory=dict)
    ranks: dict[PodKey, PodSetRank] = field(default_factory=dict)
    seen: dict[PodKey, int] = field(default_factory=dict)  # pods are numbered in order of arrival
    pending: dict[PodKey, None] = field(default_factory=dict)  # gated or not
    gated: dict[PodKey, None] = field(default_factory=dict)
    unsupported: dict[PodKey, str] = field(default_factory=dict)  # what pending pods ask in vain, by pod
    bound: dict[PodKey, None] = field(default_factory=dict)
    failed: dict[PodKey, None] = field(default_factory=dict)
    binding: dict[PodKey, None] = field(default_factory=dict)  # binding in flight
    unconfirmed: dict[PodKey, float] = field(
        default_factory=dict
    )  # bind writes with unknown result, since when
    victims: dict[PodKey, None] = field(default_factory=dict)  # pods being preempted for it
    fruitless: int = 0  # plans that preempt pods for it, since one of its pods got a node
    paused_until: float = float("-inf")  # no pod is preempted for it before
    bind_failed_at: float | None = None  # when a bind failed
    changed: bool = False  # it changed while its pods were being bound
    remaining: Rejection | None = None  # why some pods stay pending while others are bound
    event_counts: Mapping[str, int] = field(default_factory=dict)  # event counts at the time of the decision
    reported: Rejection | None = None
    blocker: Rejection | None = None  # the blocker that was reported last
    blocker_at: float = float("-inf")
    blocker_for: int = 0  # the newest pod at that time
    started: bool = False  # it had its minimum once
    start_recorded: bool = False  # the start was written, or the write is in flight
    bind_broken: bool = False  # a bind failed before it had its minimum
    repair_failed: bool = False  # it fell below its minimum, and could not be repaired in time
    ordered: tuple[Pod, ...] | None = None  # pending pods in order; computed on demand

    def set_spec(self, spec: GangSpec | None) -> None:
        """Apply a new spec."""
        before, self.spec = self.spec, spec
        if before is None or spec is None or before.uid != spec.uid:
            self.reported = self.blocker = None  # the last report was about another spec
            self.start_recorded = False
        if spec is None or spec.tree is None or not spec.has_minima:
            self.counts = None
        elif self.counts is None or before is None or _counts_key(before) != _counts_key(spec):
            pods = ((self.ranks[key], part) for key, part in self.states.items())
            self.counts = PodSetCounts.of(spec.tree, pods, quorum=spec.quorum)

    def set_pod(self, key: PodKey, part: MemberState, rank: PodSetRank = NO_RANK) -> bool:
        """Set the state and pod set of a pod. Returns whether the state changed."""
        before = self.states.get(key)
        if before is part and self.ranks[key] == rank:
            return False
        if before is not None:
            self._drop(key)
        self.states[key], self.ranks[key] = part, rank
        self.ordered = None
        if self.counts is not None:
            self.counts.count(rank, part, 1)
        if part in (MemberState.PENDING, MemberState.GATED):
            self.pending[key] = None
        if part is MemberState.GATED:
            self.gated[key] = None
        elif part is MemberState.BOUND:
            self.bound[key] = None
        elif part is MemberState.FAILED:
            self.failed[key] = None
        return True

    def set_unsupported(self, key: PodKey, what: str) -> None:
        """What a pod asks for that we cannot give, while it is pending; empty if nothing."""
        if what and key in self.pending:
            self.unsupported[key] = what
        else:
            self.unsupported.pop(key, None)

    def move_bind(self, key: PodKey, before: GangState | None) -> None:
        """A pod moves here from another gang; a bind in flight moves with it."""
        if before is not None and key in before.binding:
            self.binding[key] = None
            if key in before.unconfirmed:
                self.unconfirmed[key] = before.unconfirmed[key]

    def note_preemption(self, now: float) -> None:
        """A plan preempts pods for it. After several in a row that got it no node, it pauses.

        Its own preemptions may be why it does not fit: pods with affinity to the victims have to follow
        them, for example. Nothing else would end that.
        """
        self.fruitless += 1
        if self.fruitless >= FRUITLESS_MAX:
            seconds = PAUSE_FIRST * 2.0 ** min(self.fruitless - FRUITLESS_MAX, 10)
            self.paused_until = now + min(seconds, PAUSE_MAX)

    def note_bind(self) -> None:
        """A pod of it gets a node: preemptions are of use."""
        self.fruitless, self.paused_until = 0, float("-inf")

    def remove(self, key: PodKey) -> None:
        """A pod was deleted, or belongs to another gang."""
        self._drop(key)
        self.unsupported.pop(key, None)
        self.states.pop(key, None)
        self.ranks.pop(key, None)
        self.seen.pop(key, None)
        self.binding.pop(key, None)
        self.unconfirmed.pop(key, None)
        self.ordered = None

    def _drop(self, key: PodKey) -> None:
        for pods in (self.pending, self.gated, self.bound, self.failed):
            pods.pop(key, None)
        if self.counts is not None and key in self.states:
            self.counts.count(self.ranks[key], self.states[key], -1)

    def note_started(self) -> None:
        """Mark the gang as started once it has its minimum and no bind is in flight.

        A strict gang without any bound pod starts over.
        """
        if self.binding or self.spec is None or not self.spec.is_gang:
            return
        if not self.started:
            self.started = self.has_minimum
        elif self.spec.is_strict and not self.bound:
            self.started = False

    @property
    def has_minimum(self) -> bool:
        """Whether its minimum is bound, of every pod set if each has its own."""
        minimum = 0 if self.spec is None else self.spec.minimum
        return len(self.bound) >= minimum and (self.counts is None or self.counts.has_minimum)

    @property
    def newest(self) -> int:
        """The number of the newest existing pod."""
        return next(reversed(self.seen.values()), 0)

    @property
    def existing(self) -> int:
        return len(self.pending) + len(self.bound)

    @property
    def is_partial(self) -> bool:
        """Whether it started partially, never had its minimum, and has pending pods."""
        return not self.started and bool(self.pending) and bool(self.bound) and not self.has_minimum

    @property
    def is_below_minimum(self) -> bool:
        """Whether it is a strict gang that is partially bound, below its minimum."""
        spec = self.spec
        if spec is None or not spec.is_strict or not spec.is_gang:
            return False
        return bool(self.bound) and not self.has_minimum

    @property
    def is_unrecorded(self) -> bool:
        """Whether it has started and that is not recorded yet."""
        spec = self.spec
        if self.single or spec is None or spec.started or self.start_recorded:
            return False
        if spec.tree is not None:
            return spec.quorum and bool(self.bound) and self.has_minimum
        return len(self.bound) >= max(spec.minimum, 1)


def _counts_key(spec: GangSpec) -> tuple[object, ...]:
    """The fields of a spec that the counts depend on."""
    return spec.tree, spec.quorum


def state_of(pod: Pod) -> MemberState:
    """The state of a pod in its gang."""
    if pod.terminating:
        return MemberState.NONE
    if pod.uses_capacity or pod.done:
        return MemberState.BOUND
    if pod.finished:
        return MemberState.FAILED
    if not pod.ours:
        return MemberState.NONE
    return MemberState.GATED if pod.gated else MemberState.PENDING


def blocker_of(gang: GangState) -> Rejection | None:
    """What blocks a gang from being tried at all. A flaw that equals a rejection reason maps to it."""
    spec, there = gang.spec, gang.existing
    if spec is None:
        return Rejection(RejectionReason.NO_SPEC, existing=there, about=gang.ref.name)
    if spec.flaw:
        known = spec.flaw == RejectionReason.NO_GROUP
        what = RejectionReason.NO_GROUP if known else RejectionReason.INVALID
        about = gang.ref.name if known else spec.flaw
        return Rejection(what, spec.minimum, there, about=about)
    if gang.unsupported:  # a gang does not start without one of its pods
        pod = _first(gang.unsupported)
        about = gang.unsupported[pod]
        return Rejection(RejectionReason.UNSUPPORTED, spec.minimum, there, pod=pod, about=about)
    if gang.counts is not None:
        return _pod_set_blocker(gang, gang.counts, spec.minimum)
    counted = there + len(gang.failed) if spec.tree is not None else there
    if counted < spec.minimum:
        return Rejection(RejectionReason.TOO_FEW, spec.minimum, there)
    if spec.desired > there and not gang.bound:
        return Rejection(RejectionReason.TOO_FEW, spec.desired, there)
    spare = spec.is_strict and there - len(gang.gated) >= spec.minimum
    if gang.gated and not spare:  # pods that are ungated first must not start without the others
        return Rejection(RejectionReason.GATED, spec.minimum, there, pod=_first(gang.gated))
    return None


def _pod_set_blocker(gang: GangState, counts: PodSetCounts, minimum: int) -> Rejection | None:
    """The first pod set that lacks pods, or lacks ungated pods; pods beyond the minimum block nothing."""
    part = counts.too_small()
    if part is not None:
        if part not in counts.minimums:
            return Rejection(RejectionReason.TOO_FEW, minimum, gang.existing, part=part)
        if len(counts.minimums) == 1 and counts.tree is None:
            return Rejection(RejectionReason.TOO_FEW, minimum, counts.existing.get(part, 0))
        return Rejection(
            RejectionReason.TOO_FEW, counts.minimums[part], counts.existing.get(part, 0), part=part
        )
    part = counts.lacks_ungated()
    if part is None:
        return None
    mine = [key for key in gang.gated if gang.ranks[key][0] == part]
    named = part if len(counts.minimums) > 1 else ""
    return Rejection(RejectionReason.GATED, minimum, gang.existing, pod=_first(mine), part=named)


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
    starts = [pods[key].started for key in gang.bound if pods[key].started]
    if gang.spec is None or not starts:
        return False
    first = min(starts)
    return sum(pods[key].created <= first for key in (*gang.pending, *gang.bound)) < gang.spec.minimum
