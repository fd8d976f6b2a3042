"""Shadow decisions compared with what the running scheduler did, gang by gang, from a journal.

A gang counts from the moment it was seen pending. Our start is the first plan that binds or admits it, or
that preempts pods for it; the start of the running scheduler is the entry at which enough of its pods have a
node, or its Workload has quota. Decisions after the first of its pods has a node are not compared: the rest
of the gang is then placed beside pods that the running scheduler chose hosts for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.cli.live.replay import body_of
from bayplan.dialects.api import Ended
from bayplan.model.change import (
    Change,
    GangSpecSeen,
    NodeSeen,
    PodSeen,
    QueuedGangSeen,
    TopologySeen,
)
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME
from bayplan.model.plan import (
    Admit,
    Bind,
    EvictGang,
    Nominate,
    Plan,
    PreemptPod,
    ReportNotAdmitted,
    ReportUnschedulable,
)
from bayplan.model.pod import Pod, PodKey
from bayplan.model.queued_gang import Admission, QueuedGang
from bayplan.model.rejection import Rejection
from bayplan.runtime.core.controller import Settled
from bayplan.runtime.core.journal import Damaged, EntryKind, JournalEntry
from bayplan.state.scheduling.single_pod import single_pod_ref

SAME_SECONDS = 1.0
"""Starts that are not further apart count as simultaneous: both schedulers collect events for a while."""
Hosts = Mapping[str, int]
"""Host, or the path of a domain → its pods."""


class Verdict(StrEnum):
    """How our decision differs from that of the running scheduler."""

    EARLIER = "earlier"  # we would have started it earlier
    SAME = "same time"
    ONLY_OURS = "only here"  # we would have started it, the running scheduler has not
    REFUSED = "refused"  # the running scheduler started it, we would not have
    PENDING = "pending"  # neither started it
    UNCOMPARED = "not compared"  # the running scheduler began to start it before our first decision


class Closeness(StrEnum):
    """How close together the pods are, compared with the running scheduler."""

    CLOSER = "closer"
    EQUAL = "equal"
    FARTHER = "farther"
    UNKNOWN = ""  # one of the two has not placed all of them


@dataclass(frozen=True, slots=True)
class GangComparison:
    """One gang: when and where it started here and there."""

    gang: Ref
    pods: int
    seen: float
    verdict: Verdict
    ours: float | None = None  # when we would have started it
    theirs: float | None = None
    closeness: Closeness = Closeness.UNKNOWN
    our_domains: tuple[int, ...] = ()  # how many domains of each level, hosts last
    their_domains: tuple[int, ...] = ()
    reason: str = ""  # of our last refusal before it started
    preempts: int = 0  # pods that we would have preempted for it
    partial_seconds: float = 0.0  # for how long the running scheduler had bound too few of its pods

    @property
    def earlier(self) -> float | None:
        """By how many seconds we would have started it earlier."""
        return None if self.ours is None or self.theirs is None else self.theirs - self.ours


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """All gangs of a journal, and when it begins and ends."""

    gangs: tuple[GangComparison, ...]
    begin: float
    end: float
    levels: tuple[str, ...] = ()

    def having(self, verdict: Verdict) -> list[GangComparison]:
        return [one for one in self.gangs if one.verdict is verdict]


@dataclass(slots=True)
class _History:
    """What the journal tells of one gang so far."""

    gang: Ref
    seen: float
    minimum: int = 0
    pods: set[PodKey] = field(default_factory=set)
    bound: dict[PodKey, str] = field(default_factory=dict)  # by the running scheduler
    first_bound: float | None = None
    ours: float | None = None
    theirs: float | None = None
    our_hosts: dict[str, int] = field(default_factory=dict)
    their_hosts: dict[str, int] = field(default_factory=dict)
    count: int = 0  # of a Workload
    reason: str = ""
    preempts: int = 0

    @property
    def is_undecided(self) -> bool:
        """Whether neither scheduler has begun to start it."""
        return self.ours is None and self.theirs is None and self.first_bound is None


def compare(entries: Iterable[JournalEntry]) -> ShadowReport:
    """The report of a journal. Raises Damaged if it is not of a shadow."""
    comparing = _Comparing()
    for entry in entries:
        comparing.read(entry)
    return comparing.report()


class _Comparing:
    """Reads the entries of a journal in order."""

    def __init__(self) -> None:
        self.histories: dict[Ref, _History] = {}
        self.ignored: set[Ref] = set()  # they ran before the shadow saw them
        self.minimums: dict[Ref, int] = {}
        self.labels: dict[str, Mapping[str, str]] = {}
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.begin = self.end = 0.0

    def read(self, entry: JournalEntry) -> None:
        self.begin, self.end = self.begin or entry.now, entry.now
        if entry.kind is EntryKind.CHANGE:
            self._change(body_of(entry, Change), entry.now)
        elif entry.kind is EntryKind.PLAN:
            self._plan(body_of(entry, Plan), entry.now)
        elif entry.kind is EntryKind.OUTCOME and body_of(entry, Settled).ended is Ended.DONE:
            raise Damaged(
                f"entry {entry.sequence} is of a write that was made; this journal is not of a shadow: "
                "write one with `bayplan run --shadow --journal DIR`"
            )

    def _change(self, change: Change, now: float) -> None:
        match change:
            case NodeSeen(node):
                self.labels[node.name] = node.labels
            case TopologySeen(topology):
                self.topologies[topology.name] = topology.levels
            case GangSpecSeen(spec):
                self.minimums[spec.source] = spec.minimum
            case PodSeen(pod) if pod.ours:
                self._pod(pod, now)
            case QueuedGangSeen(queued):
                self._queued(queued, now)

    def _pod(self, pod: Pod, now: float) -> None:
        ref = pod.gang or single_pod_ref(pod.key)
        bound = bool(pod.node) and not pod.unbound
        known = self._history(ref, now, is_pending=not bound)
        if known is None or known.theirs is not None:
            return
        known.pods.add(pod.key)
        if not bound or pod.key in known.bound:
            return
        known.bound[pod.key] = pod.node
        known.first_bound = known.first_bound or now
        if len(known.bound) >= max(self.minimums.get(ref, 0), 1):
            known.theirs, known.their_hosts = now, _counts(known.bound.values())

    def _queued(self, queued: QueuedGang, now: float) -> None:
        ref = queued.gang.source
        known = self._history(ref, now, is_pending=queued.admission is None)
        if known is None or known.theirs is not None:
            return
        known.count = sum(pod_set.count for pod_set in queued.gang.root.pod_sets())
        if queued.admission is not None:
            known.theirs, known.their_hosts = now, self._domains(queued.admission)

    def _history(self, ref: Ref, now: float, *, is_pending: bool) -> _History | None:
        """What is known of a gang; None if it was never seen pending."""
        if ref not in self.histories and not is_pending:
            self.ignored.add(ref)
        if ref in self.ignored:
            return None
        return self.histories.setdefault(ref, _History(ref, now))

    def _plan(self, plan: Plan, now: float) -> None:
        nodes: dict[Ref, dict[PodKey, str]] = {}  # bound, or nominated while victims terminate
        victims: dict[Ref, int] = {}
        for action in plan.actions:
            match action:
                case Bind(gang, pod, node) | Nominate(gang, pod, node) if node:
                    nodes.setdefault(gang, {})[pod.key] = node
                case PreemptPod(by=gang, undoes=False):
                    victims[gang] = victims.get(gang, 0) + 1
                case EvictGang(queued, by=QueuedGang() as by):
                    pods = sum(pod_set.count for pod_set in queued.gang.root.pod_sets())
                    victims[by.gang.source] = victims.get(by.gang.source, 0) + pods
                case Admit(queued, admission):
                    self._start(queued.gang.source, self._domains(admission), now)
                case ReportUnschedulable() | ReportNotAdmitted():
                    self._refuse(action.gang, action.rejection)
        for gang in {**nodes, **victims}:
            if gang in self.histories:
                known = self.histories[gang]
                known.preempts = max(known.preempts, victims.get(gang, 0))
                self._start(gang, _counts({**known.bound, **nodes.get(gang, {})}.values()), now)

    def _start(self, gang: Ref, hosts: Hosts, now: float) -> None:
        known = self.histories.get(gang)
        if known is not None and known.is_undecided:
            known.ours, known.our_hosts = now, dict(hosts)

    def _refuse(self, gang: Ref, rejection: Rejection) -> None:
        known = self.histories.get(gang)
        if known is not None and known.is_undecided:
            misfit = rejection.misfit
            known.reason = str(misfit.code if misfit is not None else rejection.reason)

    def _domains(self, admission: Admission) -> dict[str, int]:
        """The pods of each host, or of each domain of a topology that ends above the host."""
        found: dict[str, int] = {}
        for pod_set in admission.pod_sets:
            for share in pod_set.assignment.shares if pod_set.assignment is not None else ():
                levels = pod_set.assignment.levels if pod_set.assignment is not None else ()
                name = share.values[-1] if levels and levels[-1] == HOSTNAME else "/".join(share.values)
                found[name] = found.get(name, 0) + share.count
        return found

    # ── the report ─────────────────────────────────────────────────────────────────────────────────

    def report(self) -> ShadowReport:
        hosts = {host for one in self.histories.values() for host in (*one.our_hosts, *one.their_hosts)}
        levels = next(
            (levels for _, levels in sorted(self.topologies.items()) if self._have(hosts, levels)), ()
        )
        gangs = sorted(self.histories.values(), key=lambda one: (one.seen, one.gang.namespace, one.gang.name))
        return ShadowReport(tuple(self._compared(one, levels) for one in gangs), self.begin, self.end, levels)

    def _have(self, hosts: Iterable[str], levels: Iterable[str]) -> bool:
        """Whether the hosts have the labels of all levels above the host."""
        above = [level for level in levels if level != HOSTNAME]
        return bool(above) and all(level in self.labels.get(host, {}) for host in hosts for level in above)

    def _compared(self, one: _History, levels: tuple[str, ...]) -> GangComparison:
        ours, theirs = self._spans(one.our_hosts, levels), self._spans(one.their_hosts, levels)
        is_whole = sum(one.our_hosts.values()) == sum(one.their_hosts.values()) > 0
        closeness = Closeness.UNKNOWN
        if is_whole:
            closeness = Closeness.CLOSER if ours < theirs else Closeness.FARTHER
            closeness = Closeness.EQUAL if ours == theirs else closeness
        started = one.theirs if one.theirs is not None else self.end
        return GangComparison(
            one.gang,
            one.count or len(one.pods),
            one.seen,
            _verdict(one),
            one.ours,
            one.theirs,
            closeness,
            ours,
            theirs,
            "" if one.ours is not None else one.reason,
            one.preempts,
            started - one.first_bound if one.first_bound is not None and len(one.pods) > 1 else 0.0,
        )

    def _spans(self, hosts: Hosts, levels: tuple[str, ...]) -> tuple[int, ...]:
        """In how many domains of each level the pods are, from the top, hosts last."""
        if not hosts:
            return ()
        above = [level for level in levels if level != HOSTNAME]
        paths = [tuple(self.labels.get(host, {}).get(level, "") for level in above) for host in hosts]
        return (*(len({path[: depth + 1] for path in paths}) for depth in range(len(above))), len(hosts))


def _verdict(one: _History) -> Verdict:
    if one.ours is None:
        if one.theirs is None:
            return Verdict.PENDING
        return Verdict.REFUSED if one.reason else Verdict.UNCOMPARED
    if one.theirs is None:
        return Verdict.ONLY_OURS
    return Verdict.SAME if one.theirs - one.ours <= SAME_SECONDS else Verdict.EARLIER


def _counts(hosts: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for host in hosts:
        found[host] = found.get(host, 0) + 1
    return found
