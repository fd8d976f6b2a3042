"""Summaries of queues, namespace queues, shared quota and topologies are correct and cheap."""

from __future__ import annotations

from fractions import Fraction
from math import inf
from time import process_time

import pytest

from bayplan.model.change import CheckSeen, FlavorLost, NamespaceQueueSeen, NodeSeen, QueuedGangLost
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.plan import Plan, ReportNotAdmitted, Requeue
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import CheckState, CheckStatus, Delayed
from bayplan.model.quota import Check, NamespaceQueue, Preemption, StopPolicy, VictimPolicy
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.model.summary import Flaw, QueueFault
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.state.reports.counters import QueueCounters
from bayplan.state.reports.summaries import summaries
from tests.support.admission_worlds import demand, queue, racks, see, share_quota, stop, world

SMALL = queue(nominal=1000)
WAITS = CheckStatus("check", CheckState.PENDING)


def test_gangs_are_counted_by_how_far_they_have_come() -> None:
    state = world(queue())
    see(
        state,
        demand("waiting"),
        demand("reserving", given="q", cpu=2000, verdicts=(WAITS,)),
        demand("placing", given="q", cpu=500, delayed=Delayed.PENDING),
        demand("admitted", given="q", cpu=3000, admitted=True),
        demand("inactive", active=False),
        demand("astray", entrance=("ns", "nowhere")),
    )
    told = summaries(state).queues["q"]
    counts = told.counts
    assert (counts.pending, counts.reserving, counts.admitted) == (1, 3, 1)
    assert (counts.unchecked, counts.unplaced) == (1, 1)
    assert counts.rejected == {RejectionReason.TO_BE_EVALUATED: 1}
    (cell,) = told.cells
    assert (cell.flavor, cell.resource, cell.reserved, cell.used) == ("f", "cpu", 5500, 3000)
    assert told.wanted == {"cpu": 1000}
    assert told.active


def test_a_namespace_queue_counts_its_own_gangs_only() -> None:
    state = world(queue())
    state.apply(NamespaceQueueSeen(NamespaceQueue("ns", "other", "q")))
    see(
        state,
        demand("a", given="q", admitted=True),
        demand("b", given="q", cpu=2000, entrance=("ns", "other")),
        demand("c", entrance=("ns", "other")),
    )
    told = summaries(state)
    main, other = told.namespace_queues["ns", "main"], told.namespace_queues["ns", "other"]
    assert (main.counts.pending, main.counts.reserving, main.counts.admitted) == (0, 1, 1)
    assert (other.counts.pending, other.counts.reserving, other.counts.admitted) == (1, 1, 0)
    assert [(cell.reserved, cell.used) for cell in main.cells + other.cells] == [(1000, 1000), (2000, 0)]
    assert told.queues["q"].counts.reserving == 2


def test_what_a_decision_believes_counts_at_once() -> None:
    state = world(SMALL)
    see(state, demand("a", created=1.0, queued=1.0), demand("b", created=2.0, queued=2.0))
    state.apply(NamespaceQueueSeen(NamespaceQueue("ns", "main", "q")))
    for _ in range(3):
        plan = decide_admissions(state.snapshot(state.heads(10.0)), Profile(), 10.0)
        state.assume(plan, 10.0)
    counts = summaries(state).queues["q"].counts
    assert (counts.ready, counts.inadmissible, counts.reserving) == (0, 1, 1)
    assert counts.rejected == {RejectionReason.NO_QUOTA_NOW: 1}


def test_shapes_are_counted_once_however_many_gangs_have_them() -> None:
    state = world(queue())
    see(state, *(demand(f"small-{n}") for n in range(5)), demand("large", cpu=9000))
    refused = demand("small-0")
    refusal = Rejection(RejectionReason.NO_QUOTA_NOW)
    state.assume(Plan((ReportNotAdmitted(refused, refusal, Requeue.ON_EVENT),)), 0.0)
    told = summaries(state).queues["q"]
    assert (told.ready_shapes, told.inadmissible_shapes) == (1, 1)
    assert (told.counts.ready, told.counts.inadmissible) == (1, 5)


def test_in_a_strict_queue_no_gang_is_inadmissible() -> None:
    state = world(queue(strict=True))
    see(state, demand("a"), demand("b"))
    state.assume(Plan((ReportNotAdmitted(demand("a"), Rejection(RejectionReason.NO_QUOTA_NOW)),)), 0.0)
    assert summaries(state).queues["q"].counts.ready == 2


def test_gangs_of_a_stopped_namespace_queue_are_not_pending() -> None:
    state = world(queue())
    see(state, demand("a"), demand("b", given="q"))
    stop(state)
    told = summaries(state)
    assert told.queues["q"].counts.pending == 0
    assert told.queues["q"].counts.reserving == 1
    assert told.namespace_queues["ns", "main"].stopped and not told.namespace_queues["ns", "main"].active


def test_what_is_missing_is_named() -> None:
    state = world(queue(checks={"b": (), "a": (), "c": ()}, stop=StopPolicy.HOLD), topology="t")
    see(state, demand("a"))
    state.apply(CheckSeen(Check("c", active=False)))
    told = summaries(state)
    assert told.queues["q"].faults == (
        QueueFault(Flaw.STOPPED, ("q",)),
        QueueFault(Flaw.CHECK_MISSING, ("a", "b")),
        QueueFault(Flaw.CHECK_INACTIVE, ("c",)),
        QueueFault(Flaw.TOPOLOGY_MISSING, ("f", "t")),
    )
    assert told.queues["q"].counts.inadmissible == 1
    entrance = told.namespace_queues["ns", "main"]
    assert entrance.queue_known and not entrance.queue_active
    state.apply(FlavorLost("f"))
    assert QueueFault(Flaw.FLAVOR_MISSING, ("f",)) in summaries(state).queues["q"].faults


def test_a_flaw_that_has_no_name_here_still_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    state = world(queue())
    monkeypatch.setattr(state, "flaws", lambda _: iter([("unheard_of", "x")]))
    assert summaries(state).queues["q"].faults == (QueueFault(Flaw.OTHER, ("x",)),)


def test_a_namespace_queue_without_a_queue_says_so() -> None:
    state = world()
    state.apply(NamespaceQueueSeen(NamespaceQueue("ns", "main", "gone")))
    see(state, demand("a"))
    told = summaries(state).namespace_queues["ns", "main"]
    assert not told.queue_known and told.counts.pending == 1 and told.cells == ()


def test_a_queue_among_others_borrows_and_one_alone_does_not() -> None:
    for parent, borrowed in (("", 0), ("top", 500)):
        state = world(queue(parent=parent, nominal=1000))
        see(state, demand("a", given="q", cpu=1500))
        (cell,) = summaries(state).queues["q"].cells
        assert cell.borrowed(cell.reserved) == borrowed


def test_shares_are_those_that_decisions_compare() -> None:
    weightless = queue("z", "mid", 0, Fraction(0))
    state = world(queue("a", "mid", 1000, Fraction(2)), queue("b", "mid", 3000), weightless)
    share_quota(state, "mid", "top", 1000)
    share_quota(state, "top", cpu=2000)
    see(state, demand("one", given="a", cpu=4000), demand("two", given="z", cpu=100))
    told = summaries(state)
    assert told.queues["a"].share == pytest.approx(1000 * 3000 / 7000 / 2)
    assert told.queues["b"].share == 0
    assert told.queues["z"].share == inf
    assert summaries(state, fair=False).queues["a"].share is None


def test_shared_quota_sums_up_what_is_below_it() -> None:
    state = world(queue("a", "mid", 1000), queue("b", "top", 2000), queue("c", "", 5000))
    share_quota(state, "mid", "top", 500)
    share_quota(state, "top")
    see(state, demand("one", given="a", cpu=700, admitted=True), demand("two", given="b", cpu=300))
    told = summaries(state)
    top, mid = told.shared["top"], told.shared["mid"]
    assert [(cell.quota, cell.reserved) for cell in top.cells + mid.cells] == [(3500, 1000), (1500, 700)]
    assert (top.admitted, mid.admitted, top.path, mid.path) == (1, 1, (), ("top",))
    assert told.queues["a"].path == ("mid", "top")


def test_levels_say_how_large_a_gang_still_fits() -> None:
    state = world(queue(nominal=100_000), topology="t")
    racks(state, {"r1": 2, "r2": 4})
    see(state, demand("a", given="q", cpu=3000, host="r1-0"), demand("b", given="q", cpu=4000, host="r2-0"))
    state.apply(NodeSeen(Node("r2-1", {"rack": "r2", HOSTNAME: "r2-1"}, {"cpu": 4000}, ready=False)))
    rack, host = summaries(state).levels
    assert (rack.level, rack.domains, host.level, host.domains) == ("rack", 2, HOSTNAME, 5)
    cpu = {
        level.level: next(room for room in level.capacities if room.resource == "cpu")
        for level in (rack, host)
    }
    assert (cpu["rack"].free, cpu["rack"].largest) == (13_000, 8000)
    assert cpu["rack"].fragmentation == pytest.approx(1 - 8000 / 12_000)
    assert (cpu[HOSTNAME].free, cpu[HOSTNAME].largest, cpu[HOSTNAME].fragmentation) == (13_000, 4000, 0)


def test_an_empty_data_centre_is_not_fragmented_and_one_without_nodes_is_nothing() -> None:
    state = world(queue(), topology="t")
    racks(state, {})
    assert [level.domains for level in summaries(state).levels] == [0, 0]
    racks(state, {"r1": 3, "r2": 1})
    assert all(room.fragmentation == 0 for level in summaries(state).levels for room in level.capacities)


def test_objects_in_use_are_those_that_others_reference() -> None:
    state = world(queue(checks={"check": ()}), topology="t")
    told = summaries(state)
    assert [*told.flavors_in_use, *told.checks_in_use, *told.topologies_in_use] == ["f", "check", "t"]


def test_counting_again_costs_little() -> None:
    rule = Preemption(within=VictimPolicy.LOWER_OR_NEWER)  # every gang is a shape of its own
    state = world(queue(nominal=10**9, preemption=rule))
    see(state, *(demand(f"w{n}", cpu=n) for n in range(7500)))
    see(state, *(demand(f"h{n}", cpu=n, given="q", admitted=True) for n in range(7500)))
    census = QueueCounters()
    summaries(state, census)
    for n in range(100):
        state.apply(QueuedGangLost(demand(f"w{n}").gang.source))
    best = inf
    for _ in range(5):
        began = process_time()
        told = summaries(state, census)
        best = min(best, process_time() - began)
    assert told.queues["q"].counts.pending == 7400
    assert told == summaries(state)
    assert best < 0.1, "seconds; a few milliseconds on a machine that has nothing else to do"


def test_queues_in_which_no_gang_is_left_are_forgotten_by_the_counters() -> None:
    state, counters = world(queue()), QueueCounters()
    for number in range(50):
        name = f"team-{number}"
        state.apply(NamespaceQueueSeen(NamespaceQueue("ns", name, "q")))
        waiting, holding = (
            demand(f"waits-{number}", entrance=("ns", name)),
            demand(f"holds-{number}", entrance=("ns", name), given="q", cpu=1000),
        )
        see(state, waiting, holding)
        counters.count(state)
        assert set(counters.namespace_queues) == {("ns", name)} and set(counters.queues) == {"q"}
        state.apply_all([QueuedGangLost(waiting.gang.source), QueuedGangLost(holding.gang.source)])
    counters.count(state)
    assert counters.namespace_queues == {} and counters.queues == {}
