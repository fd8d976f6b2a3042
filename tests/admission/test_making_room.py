"""Preemption of gangs: victims free quota, flavors and placements together, computed by hand."""

from __future__ import annotations

import pytest

from bayplan.model.plan import EvictGang, EvictionReason
from bayplan.model.rejection import RejectionReason
from tests.admission.world import World

RACKS = """
topology t rack host
flavor f topology=t
node n1 rack=r1 : cpu=2
node n2 rack=r1 : cpu=2
node n3 rack=r2 : cpu=2
node n4 rack=r2 : cpu=2
queue q within=lower : f/cpu=8
"""


def test_a_victim_that_frees_quota_but_no_usable_domain_is_not_taken() -> None:
    """r1 needs both low gangs as victims, r2 has a gang of the same priority: only r1 can be freed."""
    world = World(
        RACKS
        + """
        gang low1 by q prio=-1 : x2 cpu=1 > f @ n1=2
        gang low2 by q prio=-1 : x2 cpu=1 > f @ n2=2
        gang low3 by q prio=-1 : x2 cpu=1 > f @ n3=2
        gang equal by q prio=5 : x2 cpu=1 > f @ n4=2
        gang wide in q prio=5 : x4 cpu=1 required=rack
        """
    )
    world.settle()
    assert sorted(world.evicted()) == ["low1", "low2"]
    assert world.running() == {"low3", "equal", "wide"}
    assert world.hosts("wide") == {"n1": 2, "n2": 2}


def test_quota_is_there_and_only_the_place_is_missing() -> None:
    world = World(
        RACKS.replace("f/cpu=8", "f/cpu=80")
        + """
        gang low1 by q prio=-1 : cpu=1 > f @ n1=1
        gang low2 by q prio=-1 : cpu=1 > f @ n3=1
        gang low3 by q prio=-1 : cpu=1 > f @ n4=1
        gang wide in q : x4 cpu=1 required=rack
        """
    )
    world.settle()
    assert world.evicted() == ["low1"]
    assert world.hosts("wide") == {"n1": 2, "n2": 2}


def test_no_gang_is_preempted_for_a_gang_that_no_rack_could_hold() -> None:
    world = World(
        RACKS + "gang low by q prio=-1 : cpu=1 > f @ n1=1\ngang huge in q prio=9 : x5 cpu=1 required=rack"
    )
    world.settle()
    assert world.evicted() == []
    told = world.told("huge")
    assert told is not None and told.reason is RejectionReason.NO_PLACE


def test_no_gang_is_preempted_while_another_flavor_is_free() -> None:
    world = World("""
        flavor f
        flavor g
        queue q within=lower : f/cpu=2 g/cpu=2
        gang low by q prio=-1 : cpu=2 > f
        gang high in q prio=1 : cpu=2
    """)
    world.settle()
    assert world.evicted() == []
    assert world.running() == {"low", "high"}


def test_a_queue_may_prefer_preemption_to_the_next_flavor() -> None:
    world = World("""
        flavor f
        flavor g
        queue q within=lower when_preempting=stop : f/cpu=2 g/cpu=2
        gang low by q prio=-1 : cpu=2 > f
        gang high in q prio=1 : cpu=2
    """)
    world.settle()
    assert world.evicted() == ["low"]
    assert world.running() == {"low", "high"}  # low fits in the other flavor


@pytest.mark.parametrize(
    ("policy", "priority", "leaves"),
    [
        ("", 9, False),
        ("within=lower", 0, False),
        ("within=lower", 1, True),
        ("within=newer", 0, True),
        ("within=newer", -1, False),
    ],
)
def test_victims_within_a_queue(policy: str, priority: int, leaves: bool) -> None:
    world = World(f"flavor f\nqueue q {policy} : f/cpu=1\ngang old by q at=5 : cpu=1 > f")
    world.draw(f"gang next in q prio={priority} at=0 : cpu=1")
    world.round()
    assert world.evicted() == (["old"] if leaves else [])


@pytest.mark.parametrize(
    ("policy", "priority", "leaves"),
    [
        ("", 9, False),
        ("reclaim=any", -9, True),
        ("reclaim=lower", 0, False),
        ("reclaim=lower", 1, True),
        ("reclaim=newer", 0, True),
    ],
)
def test_victims_of_a_reclaiming_queue(policy: str, priority: int, leaves: bool) -> None:
    world = World(f"flavor f\nqueue own in all {policy} : f/cpu=1\nqueue other in all : f/cpu=0")
    world.draw(f"gang guest by other at=5 : cpu=1 > f\ngang owner in own prio={priority} at=0 : cpu=1")
    plan = world.round()
    assert world.evicted() == (["guest"] if leaves else [])
    assert all(
        action.reason is EvictionReason.RECLAIM for action in plan.actions if isinstance(action, EvictGang)
    )


@pytest.mark.parametrize(("threshold", "leaves"), [("forced=0", True), ("forced=-1", False), ("", False)])
def test_victims_of_a_borrowing_queue(threshold: str, leaves: bool) -> None:
    world = World(f"""
        flavor f
        queue own in all reclaim=lower {threshold} : f/cpu=1
        queue guest in all : f/cpu=0
        queue bank in all : f/cpu=1
        gang low by guest : cpu=1 > f
        gang mine by own : cpu=1 > f
        gang more in own prio=5 : cpu=1
    """)
    plan = world.round()
    assert [action.gang.name for action in plan.actions if isinstance(action, EvictGang)] == ["low"] * leaves
    assert all(
        a.reason is EvictionReason.RECLAIM_WHILE_BORROWING for a in plan.actions if isinstance(a, EvictGang)
    )


def test_as_many_pods_as_fit_are_admitted_if_the_gang_agrees() -> None:
    world = World("flavor f\nqueue q : f/cpu=5\ngang g in q : x9 min=2 cpu=1")
    world.settle()
    admission = world.demand("g").admission
    assert admission is not None and admission.pod_sets[0].count == 5


def test_fewer_pods_rather_than_victims_is_not_the_choice_of_a_gang_that_may_preempt() -> None:
    world = World("flavor f\nqueue q within=lower : f/cpu=4\ngang low by q prio=-1 : cpu=2 > f")
    world.draw("gang g in q : x4 min=1 cpu=1")
    world.settle()
    assert world.evicted() == ["low"]
    admission = world.demand("g").admission
    assert admission is not None and admission.pod_sets[0].count == 4


def test_fewer_pods_find_a_place_where_all_of_them_do_not() -> None:
    world = World(RACKS + "gang g in q : x6 min=3 cpu=1 required=rack")
    world.settle()
    assert sum(world.hosts("g").values()) == 4


def test_a_pod_set_without_pods_needs_nothing() -> None:
    world = World(RACKS + "gang g in q : none x0 cpu=100 required=rack ; some x2 cpu=1 required=host")
    world.settle()
    assert world.running() == {"g"}
    assert sum(world.hosts("g").values()) == 2


@pytest.mark.parametrize("stop", ["hold", "drain"])
def test_a_stopped_queue_admits_no_gang_and_lends_its_quota(stop: str) -> None:
    world = World(f"flavor f\nqueue q in all stop={stop} : f/cpu=2\nqueue p in all : f/cpu=0")
    world.draw("gang mine in q : cpu=1\ngang theirs in p : cpu=2")
    world.settle()
    assert world.running() == {"theirs"}
    told = world.told("mine")
    assert told is not None and told.reason is RejectionReason.CLOSED


def test_two_preemptors_share_no_victim_and_both_get_in() -> None:
    world = World("""
        flavor f
        queue a in all within=lower reclaim=any : f/cpu=2
        queue b in all within=lower reclaim=any : f/cpu=2
        queue c in all : f/cpu=0
        gang one by c : cpu=2 > f
        gang two by c : cpu=2 > f
        gang first in a : cpu=2
        gang second in b : cpu=2
    """)
    plan = world.round()
    assert sorted(a.gang.name for a in plan.actions if isinstance(a, EvictGang)) == ["one", "two"]
    world.settle()
    assert world.running() == {"first", "second"}


def test_a_single_victim_does_for_two_preemptors() -> None:
    world = World("""
        flavor f
        queue a in all reclaim=any : f/cpu=1
        queue b in all reclaim=any : f/cpu=1
        queue c in all : f/cpu=0
        gang big by c : cpu=2 > f
        gang first in a : cpu=1
        gang second in b : cpu=1
    """)
    world.settle()
    assert world.evicted() == ["big"]
    assert world.running() == {"first", "second"}


def test_terminating_gangs_are_waited_for_before_others_are_evicted() -> None:
    world = World("""
        flavor f
        queue q within=lower : f/cpu=2
        gang going by q prio=-1 evicted : cpu=1 > f
        gang stays by q prio=-1 since=-9 : cpu=1 > f
        gang next in q : cpu=1
    """)
    world.going[world.demand("going").gang.source] = world.now + 1
    world.settle()
    assert world.evicted() == []
    assert world.running() == {"stays", "next"}


@pytest.mark.parametrize(("quota", "gone"), [(80, ["low4"]), (8, ["low1", "low4"])])
def test_a_gang_on_other_nodes_is_preempted_only_for_its_quota(quota: int, gone: list[str]) -> None:
    world = World(
        RACKS.replace("f/cpu=8", f"f/cpu={quota}")
        + """
        gang low1 by q prio=-1 : cpu=2 > f @ n1=1
        gang low2 by q prio=-1 : cpu=2 > f @ n2=1
        gang low3 by q prio=-1 : cpu=2 > f @ n3=1
        gang low4 by q prio=-1 : cpu=2 > f @ n4=1
        gang late in q : cpu=2 on:kubernetes.io/hostname=n4
        """
        + ("gang more by q prio=9 : cpu=2 > f @ n4=0" if quota == 8 else "")
    )
    world.settle()
    assert sorted(world.evicted()) == gone
    assert world.hosts("late") == {"n4": 1}
