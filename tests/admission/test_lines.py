"""Pending queues: order, overtaking, and that no gang waits for an unrelated event."""

from __future__ import annotations

from dataclasses import replace

from bayplan.model.change import NamespaceQueueSeen, QueuedGangLost, QueuedGangSeen
from bayplan.model.plan import ReportNotAdmitted
from bayplan.model.profile import Profile
from bayplan.model.quota import NamespaceQueue, StopPolicy
from bayplan.scheduling.admission.cycle import decide_admissions
from tests.admission.drawing import demand
from tests.admission.world import World

ONE_QUEUE = """
flavor f
queue q strict : f/cpu=4
"""


def test_the_first_gang_of_a_strict_queue_blocks_the_others() -> None:
    world = World(ONE_QUEUE + "gang big in q at=0 : cpu=5\ngang small in q at=1 : cpu=1")
    world.settle()
    assert world.running() == set()


def test_gangs_created_in_the_same_second_are_ordered_by_number() -> None:
    world = World(ONE_QUEUE)
    for number in (10, 3, 2, 11):
        world.draw(f"gang group-{number}-a in q at=0 : cpu=2")
    world.settle()
    assert world.running() == {"group-2-a", "group-3-a"}


def test_the_first_gang_of_an_ordinary_queue_is_overtaken_by_gangs_that_fit() -> None:
    world = World(
        ONE_QUEUE.replace(" strict", "") + "gang big in q at=0 : cpu=5\ngang small in q at=1 : cpu=1"
    )
    world.settle()
    assert world.running() == {"small"}


def test_a_gang_of_an_excluded_namespace_blocks_no_gang_even_in_a_strict_queue() -> None:
    world = World("""
        flavor f
        queue q strict namespaces=dep:eng : f/cpu=4
        namespace sales dep=sales
        namespace eng dep=eng
        gang sales/first in q at=0 : cpu=1
        gang eng/second in q at=1 : cpu=1
    """)
    world.settle()
    assert world.running() == {"eng/second"}


def test_a_stopped_namespace_queue_blocks_no_gang_even_in_a_strict_queue() -> None:
    world = World(ONE_QUEUE + "entrance a/shut q stop=hold\nentrance a/open q")
    world.draw("gang a/first door=shut at=0 : cpu=1\ngang a/second door=open at=1 : cpu=2")
    world.settle()
    assert world.running() == {"a/second"}


def test_a_stopped_namespace_queue_does_not_reject_equal_gangs_of_an_active_one() -> None:
    world = World("flavor f\nqueue q : f/cpu=4\nentrance a/shut q stop=hold\nentrance a/open q")
    world.draw("gang a/first door=shut at=0 : cpu=1\ngang a/second door=open at=1 : cpu=1")
    world.settle()
    assert world.running() == {"a/second"}
    world.see(NamespaceQueueSeen(NamespaceQueue("a", "shut", "q", StopPolicy.OPEN)))
    world.settle()
    assert world.running() == {"a/first", "a/second"}


def test_what_an_elastic_gang_is_refused_says_nothing_about_a_plain_one() -> None:
    world = World("""
        topology t rack host
        flavor f topology=t
        node n1 rack=r1 : cpu=4
        queue q : f/cpu=4
        gang grows in q elastic at=0 : x2 cpu=1 required=rack
        gang plain in q at=1 : x2 cpu=1 required=rack
    """)
    world.settle()
    assert world.running() == {"plain"}


def test_a_gang_with_finished_pods_is_not_taken_for_one_that_needs_them_all() -> None:
    world = World("flavor f\nqueue q : f/cpu=2")
    whole = demand("whole in q at=0 : x3 cpu=1")
    rest = demand("rest in q at=1 : x1 cpu=1")
    world.draw("entrance /q q")
    world.see(QueuedGangSeen(whole))
    world.see(
        QueuedGangSeen(replace(rest, shape=whole.shape))
    )  # the same pod sets, two of the pods have finished
    world.settle()
    assert world.running() == {"rest"}


def test_a_gang_that_is_queued_again_is_not_lost() -> None:
    world = World("flavor f\nqueue q : f/cpu=1\ngang holder by q : cpu=1 > f\ngang waits in q at=0 : cpu=1")
    world.settle()
    world.see(QueuedGangSeen(replace(world.demand("waits"), queued=world.now + 1)))
    world.finish("holder")
    world.settle()
    assert world.running() == {"waits"}


def test_no_gang_is_reported_twice_in_a_cycle() -> None:
    world = World("flavor f\nqueue q : f/cpu=1\ngang a in q at=0 : cpu=2\ngang b in q at=1 : cpu=2")
    for active in (False, True):
        world.see(QueuedGangSeen(replace(world.demand("b"), active=active)))
    told = [
        action.queued_gang.gang.source.name
        for action in world.round().actions
        if isinstance(action, ReportNotAdmitted)
    ]
    assert sorted(told) == ["a", "b"]


def test_a_preemptor_that_no_longer_fits_does_not_block_its_queue() -> None:
    world = World("""
        flavor f
        queue q within=lower : f/cpu=4
        gang low by q prio=-1 : cpu=4 > f
        gang high in q prio=1 : cpu=4
    """)
    world.round()  # low is evicted
    world.draw("queue q within=lower : f/cpu=2")
    world.draw("gang small in q : cpu=2")
    world.settle()
    assert "small" in world.running()


def test_a_preemptor_may_move_to_another_queue() -> None:
    world = World("""
        flavor f
        queue q within=lower : f/cpu=4
        queue other : f/cpu=4
        entrance a/door q
        gang a/low by q prio=-1 : cpu=4 > f
        gang a/high door=door prio=1 : cpu=4
    """)
    world.round()
    world.see(NamespaceQueueSeen(NamespaceQueue("a", "door", "other")))
    world.settle()
    assert world.running() >= {"a/high"}
    admitted = world.demand("a/high").admission
    assert admitted is not None and admitted.queue == "other"
    assert world.evicted() == ["a/low"]


def test_gangs_blocked_by_a_preemptor_that_gave_up_are_tried() -> None:
    world = World("""
        flavor f
        cohort all
        queue one in all within=lower : f/cpu=4
        queue two in all : f/cpu=0
        gang low by one prio=-1 : cpu=2 > f
        gang high in one prio=1 : cpu=4
        gang meek in two at=5 : cpu=2
    """)
    world.round()
    assert world.evicted() == ["low"]
    assert world.running() == set()
    world.see(QueuedGangLost(demand("high in one : cpu=4").gang.source))
    world.settle()
    assert world.running() >= {"meek"}


def test_waiting_for_victims_to_leave_burns_no_rounds() -> None:
    world = World("""
        flavor f
        cohort all
        queue one in all within=lower : f/cpu=4
        queue two in all : f/cpu=0
        gang low by one prio=-1 : cpu=2 > f
        gang high in one prio=1 : cpu=4
        gang meek in two at=5 : cpu=2
    """)
    world.settle()
    assert world.running() == {"high"}
    assert world.waiting() == {"low", "meek"}


def test_a_flavor_that_became_free_while_the_others_were_tried_is_tried_again() -> None:
    """A gang tries one flavor per cycle; events in between must not be missed."""
    world = World("""
        topology t rack host
        flavor first topology=t label:kind=first
        flavor second topology=t label:kind=second
        node n1 rack=r1 kind=first : cpu=2
        node n2 rack=r2 kind=second : cpu=1
        queue q : first/cpu=4 second/cpu=4
        gang holder by q : cpu=2 > first @ n1=1
        gang waits in q at=0 : cpu=2
    """)
    world.round()
    assert world.running() == {"holder"}
    world.finish("holder")
    world.settle()
    assert world.running() == {"waits"}
    assert world.overlooked() == []


def test_gangs_of_a_rejected_shape_wait_and_wake_together() -> None:
    world = World("flavor f\nqueue q : f/cpu=2\ngang holder by q : cpu=2 > f")
    world.draw("\n".join(f"gang g{n} in q at={n} : cpu=1" for n in range(5)))
    plan = world.round()
    assert len(plan.actions) == 5
    assert world.round().actions == ()
    world.finish("holder")
    world.settle()
    assert world.running() == {"g0", "g1"}


def test_no_gang_overtakes_a_preemptor_whose_victims_left() -> None:
    """Not even a gang of another queue with higher priority: it would have to preempt itself."""
    world = World("""
        topology t rack host
        flavor f topology=t
        node n1 rack=r1 : cpu=2
        queue one within=lower : f/cpu=9
        queue two : f/cpu=9
        gang low by one prio=-1 : x2 cpu=1 > f @ n1=2
        gang high in one prio=1 : x2 cpu=1
    """)
    world.round()
    assert world.evicted() == ["low"]
    world.draw("gang proud in two prio=2 : cpu=1")
    world.settle()
    assert world.running() == {"high"}


def test_capacity_reserved_for_a_deleted_gang_is_free_for_others() -> None:
    world = World("""
        topology t rack host
        flavor f topology=t
        node n1 rack=r1 : cpu=3
        queue one : f/cpu=9
        queue two : f/cpu=9
        gang holder by one : cpu=1 > f @ n1=1
        gang large in one prio=1 : x3 cpu=1 required=host
        gang small in two : cpu=1 required=host
    """)
    world.settle()
    world.finish("large")
    world.settle()
    assert world.running() == {"holder", "small"}


def test_a_gang_that_lost_capacity_to_a_borrower_of_the_same_cycle_reclaims_it() -> None:
    world = World("""
        topology t rack host
        flavor f topology=t
        node n1 rack=r1 : cpu=3
        cohort all
        queue own in all reclaim=any : f/cpu=3
        queue none in all : f/cpu=0
        queue aside in all : f/cpu=3
        gang first in aside prio=2 : x2 cpu=1
        gang owner in own prio=1 : x3 cpu=1 required=host
    """)
    world.settle()
    assert world.running() == {"first"}
    world.finish("first")
    world.draw("gang quick in aside prio=3 : x2 cpu=1\ngang borrower in none prio=4 : x2 cpu=1")
    world.settle()
    assert world.overlooked() == []


def test_a_reservation_does_not_block_a_gang_of_higher_priority() -> None:
    world = World(
        """
        topology t rack host
        flavor f topology=t
        node n1 rack=r1 : cpu=3
        queue one in all : f/cpu=9
        queue two : f/cpu=9
        gang holder by one : cpu=1 > f @ n1=1
        gang large in one prio=-1 : x3 cpu=1 required=host
        gang small in two : cpu=1 required=host
        """,
        Profile(fair_sharing=True),
    )
    world.settle()
    assert world.running() == {"holder", "small"}


def test_a_flavor_lost_to_another_gang_of_the_round_is_looked_at_again() -> None:
    """It would have fitted there; now a gang of lower priority has to be preempted there."""
    world = World("""
        flavor f
        flavor g
        cohort all
        queue one in all within=lower : f/cpu=3 g/cpu=0
        queue two in all : f/cpu=1 g/cpu=0
        gang low by one prio=-1 : cpu=2 > f
        gang quick in two prio=5 : cpu=1
        gang high in one prio=1 : cpu=2
    """)
    world.settle()
    assert world.running() == {"quick", "high"}


def test_gangs_whose_writes_failed_are_not_equivalent() -> None:
    world = World("flavor f\nqueue q : f/cpu=4")
    world.draw("gang large in q prio=1 : cpu=3\ngang small in q : cpu=1")
    for name in ("large", "small"):
        plan = decide_admissions(world.state.snapshot(world.state.heads(world.now)), world.profile, world.now)
        world.state.assume(plan, world.now)
        world.state.admission_failed(world.demand(name).gang.source, world.now)
    world.draw("gang other by q : cpu=2 > f")
    world.now += 60
    world.settle()
    assert world.running() == {"other", "small"}
