"""The fewest victims are chosen, and capacity is reserved for the preemptor."""

from __future__ import annotations

import pytest

from bayplan.model.plan import EvictGang
from bayplan.model.profile import Profile
from tests.admission.world import World

RACKS = """
    topology t rack host
    flavor f topology=t
    node a1 rack=a : cpu=2
    node a2 rack=a : cpu=2
    node b1 rack=b : cpu=2
    node b2 rack=b : cpu=2
    queue q within=lower : f/cpu=99
"""


def evicted(world: World) -> list[str]:
    return [a.gang.name for plan in world.plans for a in plan.actions if isinstance(a, EvictGang)]


def test_the_domain_that_needs_fewer_victims_is_freed() -> None:
    """By age alone the victims would be the newest gangs, all three of rack a; one of rack b suffices."""
    world = World(
        RACKS
        + """
        gang a-one by q since=-10 prio=1 : x1 cpu=1 > f @ a1=1
        gang a-two by q since=-11 prio=1 : x1 cpu=1 > f @ a1=1
        gang a-three by q since=-12 prio=1 : x2 cpu=1 > f @ a2=2
        gang b-all by q since=-99 prio=1 : x4 cpu=1 > f @ b1=2 b2=2
        gang big in q prio=5 : x4 cpu=1 required=rack
        """
    )
    world.settle()
    assert evicted(world) == ["b-all"]
    assert world.hosts("big") == {"b1": 2, "b2": 2}


def test_fewer_victims_are_never_bought_with_more_important_ones() -> None:
    world = World(
        RACKS
        + """
        gang a-one by q since=-10 prio=1 : x2 cpu=1 > f @ a1=2
        gang a-two by q since=-11 prio=1 : x2 cpu=1 > f @ a2=2
        gang b-all by q since=-99 prio=3 : x4 cpu=1 > f @ b1=2 b2=2
        gang big in q prio=5 : x4 cpu=1 required=rack
        """
    )
    world.settle()
    assert sorted(evicted(world)) == ["a-one", "a-two"]


def test_many_victims_are_found_and_none_too_many() -> None:
    hosts = "\n".join(f"node n{number:02d} rack=r : cpu=1" for number in range(40))
    small = "\n".join(
        f"gang s{number:02d} by q since=-{number + 1} : cpu=1 > f @ n{number:02d}=1" for number in range(40)
    )
    world = World(
        f"""
        topology t rack host
        flavor f topology=t
        queue q within=lower : f/cpu=99
        {hosts}
        {small}
        gang big in q prio=5 : x25 cpu=1
        """
    )
    world.settle()
    assert len(evicted(world)) == len(set(evicted(world))) == 25
    assert sum(world.hosts("big").values()) == 25


STARVED = (
    RACKS
    + """
    gang old by q prio=9 : x2 cpu=1 > f @ a1=1 b1=1
    gang big in q at=0 : x4 cpu=1 required=rack
    gang one in q at=1 : x2 cpu=1
    gang two in q at=2 : x2 cpu=1
"""
)


def test_without_reservations_small_gangs_take_what_a_large_one_waits_for() -> None:
    world = World(STARVED)
    world.settle()
    assert world.hosts("one") and world.hosts("two")


def test_a_reserved_domain_is_kept_and_the_rest_is_used() -> None:
    world = World(STARVED, Profile(reserve=True))
    world.settle()
    kept = {kept.domains[0][0] for kept in world.state.reservations.by_topology.values()}
    assert kept == {"a"}, "of equals the first"
    assert set(world.hosts("one")) <= {"b1", "b2"}, "what does not delay the large one is used"
    assert not world.hosts("two"), "there is no room for it but in what is kept"
    world.finish("old")
    world.settle()
    assert sum(world.hosts("big").values()) == 4
    assert {host[0] for host in world.hosts("big")} == {"a"}
    assert not world.state.reservations.by_topology


def test_a_more_important_gang_does_not_heed_a_reservation() -> None:
    world = World(STARVED, Profile(reserve=True))
    world.settle()
    world.draw("gang urgent in q prio=3 : x2 cpu=1")
    world.settle()
    assert sum(world.hosts("urgent").values()) == 2


def test_a_reservation_goes_with_the_gang_that_gives_up() -> None:
    world = World(STARVED, Profile(reserve=True))
    world.settle()
    world.finish("big")
    world.settle()
    assert not world.state.reservations.by_topology
    assert world.hosts("two"), "a gang that the reservation kept out is tried again"


QUOTA = """
    flavor f
    cohort all
    queue q in all : f/cpu=8
    queue other in all : f/cpu=8
    gang first by q : x4 cpu=1 > f
    gang second by q : x4 cpu=1 > f
    gang lent by other : x8 cpu=1 > f
    gang big in q at=0 : x6 cpu=1
"""


@pytest.mark.parametrize("reserve", [False, True])
def test_small_gangs_use_what_reserved_quota_leaves_over_and_no_more(reserve: bool) -> None:
    world = World(QUOTA, Profile(reserve=reserve))
    world.settle()
    world.draw("gang one in q at=1 : x2 cpu=1\ngang two in q at=2 : x2 cpu=1")
    world.finish("first")
    world.settle()
    assert "one" in world.running(), "of 8 CPUs the large gang leaves 2"
    assert ("two" in world.running()) is not reserve
    world.finish("second")
    world.settle()
    assert ("big" in world.running()) is reserve


@pytest.mark.parametrize("reserve", [False, True])
def test_another_queue_does_not_borrow_reserved_quota_and_keeps_its_own(reserve: bool) -> None:
    world = World(QUOTA, Profile(reserve=reserve))
    world.settle()
    world.finish("first")
    world.draw("gang borrows in other at=1 : x2 cpu=1")
    world.settle()
    assert ("borrows" in world.running()) is not reserve
    world.finish("lent")
    world.settle()
    assert "borrows" in world.running()


def test_resources_without_quota_are_refused_or_left_out_of_account() -> None:
    text = """
        flavor f
        queue q : f/cpu=9
        gang one in q : x1 cpu=1 example.com/gpu=2
    """
    strict, lax = World(text), World(text, Profile(ignore_uncovered=True))
    strict.settle()
    lax.settle()
    assert strict.demand("one").admission is None
    given = lax.demand("one").admission
    assert given is not None and given.pod_sets[0].flavors == {"cpu": "f"}
