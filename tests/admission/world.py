"""A simulated cluster: cycles are decided, the API accepts them, victims terminate, gangs finish."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bayplan.model.change import (
    Change,
    CheckLost,
    CheckSeen,
    FlavorLost,
    FlavorSeen,
    NamespaceLost,
    NamespaceQueueLost,
    NamespaceQueueSeen,
    NamespaceSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    QueuedGangLost,
    QueuedGangSeen,
    QueueLost,
    QueueSeen,
    QuotaNodeLost,
    QuotaNodeSeen,
    TopologyLost,
    TopologySeen,
)
from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Admit, EvictGang, Plan, ReportNotAdmitted
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.rejection import Rejection
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.state.admission.state import AdmissionState
from tests.admission.drawing import NOW, drawn

LEAVING_SECONDS = 5.0
ROUNDS_MAX = 500
IDLE_MAX = 5  # cycles at one time without a change; more would be a busy loop


class World:
    """The API's objects, our state of them, and a clock that moves only when the test waits."""

    def __init__(self, text: str = "", profile: Profile | None = None) -> None:
        self.state = AdmissionState()
        self.profile = profile or Profile()
        self.now = NOW
        self.objects: dict[object, Change] = {}
        self.plans: list[Plan] = []
        self.going: dict[Ref, float] = {}  # evicted gangs, and when they will be gone
        self.draw(text)

    # ── the API ───────────────────────────────────────────────────────────────────────────────────

    def draw(self, text: str) -> None:
        """Objects are added or changed."""
        for change in drawn(text):
            if isinstance(change, NamespaceQueueSeen) and _key(change) in self.objects:
                continue
            self.see(change)

    def see(self, change: Change) -> None:
        """The API reports a change."""
        if _is_loss(change):
            self.objects.pop(_key(change), None)
        else:
            self.objects[_key(change)] = change
        self.state.apply(change)

    def demand(self, name: str) -> QueuedGang:
        found = self.objects[QueuedGangSeen, self._ref(name)]
        assert isinstance(found, QueuedGangSeen)
        return found.queued_gang

    def demands(self) -> list[QueuedGang]:
        return [change.queued_gang for change in self.objects.values() if isinstance(change, QueuedGangSeen)]

    def finish(self, name: str) -> None:
        """A gang finishes."""
        self.going.pop(self._ref(name), None)
        self.see(QueuedGangLost(self._ref(name)))

    def _ref(self, name: str) -> Ref:
        namespace, _, own = name.rpartition("/")
        return Ref("kueue", "Workload", namespace, own)

    # ── rounds ────────────────────────────────────────────────────────────────────────────────────

    def round(self) -> Plan:
        """One decision, and the API accepts all of it."""
        heads = self.state.heads(self.now)
        plan = decide_admissions(self.state.snapshot(heads), self.profile, self.now)
        self.state.assume(plan, self.now)
        self.plans.append(plan)
        for action in plan.actions:
            if self.refuses(action):
                continue
            match action:
                case Admit(queued, admission):
                    given = replace(queued, admission=admission, failed_nodes=())
                    self.see(QueuedGangSeen(replace(given, reserved=self.now, admitted=True)))
                case EvictGang(queued):
                    self.going.setdefault(action.gang, self.now + LEAVING_SECONDS)
                    known = self.objects[QueuedGangSeen, action.gang]
                    assert isinstance(known, QueuedGangSeen)
                    self.see(QueuedGangSeen(replace(known.queued_gang, evicted=True)))
        return plan

    def refuses(self, action: Action) -> bool:
        """Whether a write fails; the API of this world never rejects anything."""
        return False

    def settle(self) -> None:
        """Cycles until nothing is left to do or to wait for."""
        idle = 0
        for _ in range(ROUNDS_MAX):
            due = min([self.state.next_due(self.now), *self.going.values()])
            if due == float("inf"):
                return
            idle = 0 if due > self.now else idle
            self.now = max(self.now, due)
            self._let_go()
            if self.state.next_due(self.now) <= self.now:
                before = self.state.generation
                plan = self.round()
                idle = 0 if self.state.generation > before else idle + 1
                assert idle <= IDLE_MAX, f"decides again and again, to no avail: {plan.actions}"
        raise AssertionError("never comes to rest")

    def _let_go(self) -> None:
        for ref in [ref for ref, when in self.going.items() if when <= self.now]:
            del self.going[ref]
            known = self.objects[QueuedGangSeen, ref]
            assert isinstance(known, QueuedGangSeen)
            self.see(
                QueuedGangSeen(replace(known.queued_gang, admission=None, evicted=False, admitted=False))
            )

    # ── looking ───────────────────────────────────────────────────────────────────────────────────

    def running(self) -> set[str]:
        """Gangs with quota that are not being evicted."""
        return {named(d) for d in self.demands() if d.admission is not None and not d.evicted}

    def waiting(self) -> set[str]:
        return {named(queued) for queued in self.demands()} - self.running()

    def evicted(self) -> list[str]:
        """All evicted gangs, in order."""
        return [named(a.queued_gang) for plan in self.plans for a in plan.actions if isinstance(a, EvictGang)]

    def told(self, name: str) -> Rejection | None:
        """The reason reported last for a gang."""
        for plan in reversed(self.plans):
            for action in plan.actions:
                if isinstance(action, ReportNotAdmitted) and named(action.queued_gang) == name:
                    return action.rejection
        return None

    def hosts(self, name: str) -> dict[str, int]:
        """Pods by domain, all pod sets together."""
        admission, found = self.demand(name).admission, dict[str, int]()
        for given in admission.pod_sets if admission is not None else ():
            for share in given.assignment.shares if given.assignment is not None else ():
                found["/".join(share.values)] = found.get("/".join(share.values), 0) + share.count
        return found

    def fresh(self, changes: Iterable[Change] | None = None) -> AdmissionState:
        """A fresh state of the same objects."""
        state = AdmissionState()
        for change in changes if changes is not None else self.objects.values():
            state.apply(change)
        return state

    def overlooked(self) -> list[str]:
        """Pending gangs that a freshly started scheduler would admit or preempt for."""
        state = self.fresh()
        helped: list[str] = []
        for _ in range(ROUNDS_MAX):
            heads = state.heads(self.now)
            if not heads:
                break
            plan = decide_admissions(state.snapshot(heads), self.profile, self.now)
            helped += [named(a.queued_gang) for a in plan.actions if isinstance(a, Admit | EvictGang)]
            if helped:
                break
            state.assume(plan, self.now)
        return helped


def named(queued: QueuedGang) -> str:
    source = queued.gang.source
    return f"{source.namespace}/{source.name}" if source.namespace else source.name


def _is_loss(change: Change) -> bool:
    return type(change) in _LOSSES


_LOSSES: dict[type, type] = {
    NodeLost: NodeSeen,
    TopologyLost: TopologySeen,
    FlavorLost: FlavorSeen,
    QuotaNodeLost: QuotaNodeSeen,
    QueueLost: QueueSeen,
    CheckLost: CheckSeen,
    NamespaceLost: NamespaceSeen,
    NamespaceQueueLost: NamespaceQueueSeen,
    QueuedGangLost: QueuedGangSeen,
    PodLost: PodSeen,
}


def _key(change: Change) -> object:
    """The identity of an object, in additions and deletions."""
    kind = _LOSSES.get(type(change), type(change))
    match change:
        case NamespaceQueueSeen(namespace_queue):
            return kind, (namespace_queue.namespace, namespace_queue.name)
        case NamespaceQueueLost(namespace, name):
            return kind, (namespace, name)
        case QueuedGangSeen(queued):
            return kind, queued.gang.source
        case QueuedGangLost(ref):
            return kind, ref
        case PodSeen(pod):
            return kind, pod.key
        case PodLost(key):
            return kind, key
        case NodeSeen(thing) | QuotaNodeSeen(thing):
            return kind, thing.name
        case TopologySeen(topology):
            return kind, topology.name
        case FlavorSeen(flavor):
            return kind, flavor.name
        case QueueSeen(queue):
            return kind, queue.name
        case CheckSeen(check):
            return kind, check.name
        case _:
            return kind, change.name  # type: ignore[union-attr]
