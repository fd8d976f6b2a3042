"""Whatever happens to gangs and queues, a census that is kept up equals one taken afresh, and a recount."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bayplan.model.change import (
    FlavorLost,
    FlavorSeen,
    NamespaceQueueLost,
    NamespaceQueueSeen,
    QueuedGangLost,
    QueuedGangSeen,
    QueueLost,
    QueueSeen,
)
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Flavor, NamespaceQueue, StopPolicy
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.state.admission.queues import QueueEntryState
from bayplan.state.admission.state import AdmissionState
from bayplan.state.reports.counters import QueueCounters
from bayplan.state.reports.summaries import summaries
from tests.support.admission_worlds import demand, queue

NAMES = st.sampled_from([f"g{n}" for n in range(6)])
QUEUES = st.sampled_from(["a", "b"])
ENTRANCES = st.sampled_from(["main", "side"])


class Standings(RuleBasedStateMachine):
    """Gangs come, go, are admitted and leave while queues and entrances change."""

    def __init__(self) -> None:
        super().__init__()
        self.state, self.census, self.now = AdmissionState(), QueueCounters(), 0.0
        self.state.apply(FlavorSeen(Flavor("f")))
        for name in ("a", "b"):
            self.state.apply(QueueSeen(queue(name, "top", 2000)))
        for name, behind in (("main", "a"), ("side", "b")):
            self.state.apply(NamespaceQueueSeen(NamespaceQueue("ns", name, behind)))

    @rule(name=NAMES, way=ENTRANCES, cpu=st.sampled_from([500, 1500, 9000]), active=st.booleans())
    def hand_in(self, name: str, way: str, cpu: int, active: bool) -> None:
        self.state.apply(QueuedGangSeen(demand(name, cpu=cpu, entrance=("ns", way), active=active)))

    @rule(name=NAMES, way=ENTRANCES, given=QUEUES, admitted=st.booleans())
    def admit(self, name: str, way: str, given: str, admitted: bool) -> None:
        self.state.apply(QueuedGangSeen(demand(name, given=given, admitted=admitted, entrance=("ns", way))))

    @rule(name=NAMES)
    def withdraw(self, name: str) -> None:
        self.state.apply(QueuedGangLost(demand(name).gang.source))

    @rule()
    def decide(self) -> None:
        self.now += 1.0
        heads = self.state.heads(self.now)
        self.state.assume(decide_admissions(self.state.snapshot(heads), Profile(), self.now), self.now)

    @rule(name=NAMES)
    def fail(self, name: str) -> None:
        self.now += 1.0
        self.state.admission_failed(demand(name).gang.source, self.now)

    @rule(name=QUEUES, strict=st.booleans(), stop=st.sampled_from(list(StopPolicy)), gone=st.booleans())
    def change_queue(self, name: str, strict: bool, stop: StopPolicy, gone: bool) -> None:
        seen = QueueSeen(queue(name, "top", 2000, strict=strict, stop=stop))
        self.state.apply(QueueLost(name) if gone else seen)

    @rule(name=ENTRANCES, behind=QUEUES, stop=st.sampled_from(list(StopPolicy)), gone=st.booleans())
    def change_entrance(self, name: str, behind: str, stop: StopPolicy, gone: bool) -> None:
        seen = NamespaceQueueSeen(NamespaceQueue("ns", name, behind, stop))
        self.state.apply(NamespaceQueueLost("ns", name) if gone else seen)

    @rule(there=st.booleans())
    def change_flavor(self, there: bool) -> None:
        self.state.apply(FlavorSeen(Flavor("f")) if there else FlavorLost("f"))

    @invariant()
    def a_census_kept_up_is_one_taken_afresh(self) -> None:
        assert summaries(self.state, self.census) == summaries(self.state)

    @invariant()
    def it_is_a_recount(self) -> None:
        told = summaries(self.state)
        for name, found in told.queues.items():
            held = self._holders(name)
            assert found.counts.reserving == len(held)
            assert found.counts.admitted == sum(one.admitted for one in held)
            waiting = self._waiting("queue", name)
            assert found.counts.pending == len(waiting) == sum(found.counts.rejected.values())
            assert found.wanted["cpu"] == sum(one.requests[0].per_pod["cpu"] for one in waiting)
            account = self.state.usage.quota_tree().queues[name]
            assert {("f", "cpu"): found.cells[0].reserved} == {("f", "cpu"): 0} | +Counter(account.usage)
            assert found.active == (name not in set(self.state.inactive_queues()))
        for key, way in told.namespace_queues.items():
            held = [one for one in self._holders() if one.namespace_queue == key]
            assert (way.counts.reserving, way.counts.pending) == (
                len(held),
                len(self._waiting("entrance", key)),
            )

    def _holders(self, name: str = "") -> list[QueuedGang]:
        held = self.state.usage.by_gang.values()
        return [holding.queued_gang for holding in held if name in ("", holding.queue)]

    def _waiting(self, by: str, name: Any) -> list[QueuedGang]:
        ways = self.state.config.namespace_queues
        return [
            standing.queued_gang
            for standing in self.state.pending.entries.values()
            if standing.state in (QueueEntryState.PENDING, QueueEntryState.BACKOFF)
            and standing.queue
            and ways[standing.queued_gang.namespace_queue].stop is StopPolicy.OPEN
            and name == (standing.queue if by == "queue" else standing.queued_gang.namespace_queue)
        ]


TestStandings = Standings.TestCase
TestStandings.settings = settings(max_examples=settings().max_examples // 3)
