"""Defects of other schedulers in admission and placement, each as a test; numbers are their issues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bayplan.model.change import (
    FlavorLost,
    NamespaceQueueSeen,
    NodeLost,
    PodLost,
    PodSeen,
    QueuedGangSeen,
    QueueLost,
    TopologyLost,
)
from bayplan.model.plan import Admit, EvictGang
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile, Strategy
from bayplan.model.quota import NamespaceQueue, StopPolicy
from tests.admission.drawing import NOW, demand
from tests.admission.world import World

RACKS = """
topology t rack host
flavor f topology=t
node n1 rack=r1 : cpu=2
node n2 rack=r1 : cpu=2
node n3 rack=r2 : cpu=2
node n4 rack=r2 : cpu=2
queue q : f/cpu=100
"""


def test_a_host_named_like_a_block_is_not_hidden_14232() -> None:
    world = World("""
        topology t block host
        flavor f topology=t
        node b1 block=b1 : cpu=1
        node x block=b1 : cpu=1
        node b2 block=b2 : cpu=2
        queue q : f/cpu=9
        gang one in q at=0 : x2 cpu=1 required=block
        gang two in q at=1 : x2 cpu=1 required=host
    """)
    world.settle()
    assert world.hosts("one") == {"b1": 1, "x": 1}
    assert world.hosts("two") == {"b2": 2}


def test_siblings_whose_names_start_alike_are_told_apart_14451() -> None:
    world = World("""
        topology t rack host
        flavor f topology=t
        node r1-n1 rack=r1 : cpu=1
        node r10-n1 rack=r10 : cpu=1
        node r1-n2 rack=r1 : cpu=1
        node r-1 rack=r : cpu=3
        queue q : f/cpu=9
        gang one in q at=0 : x2 cpu=1 required=rack
        gang two in q at=1 : x2 cpu=1 required=rack
    """)
    world.settle()
    assert world.hosts("one") == {"r1-n1": 1, "r1-n2": 1}
    assert world.hosts("two") == {"r-1": 2}


def test_a_replacement_does_not_take_a_node_that_was_taken_in_the_same_round_14646() -> None:
    world = World("""
        topology t rack host
        flavor f topology=t
        node n1 rack=r1 : cpu=1
        node n2 rack=r1 : cpu=1
        node n3 rack=r1 : cpu=1
        queue q : f/cpu=9
        queue p : f/cpu=9
        gang a by q failed=n1 : cpu=1 free > f @ n1=1
        gang b by p failed=n2 : cpu=1 free > f @ n2=1
    """)
    world.see(NodeLost("n1"))
    world.see(NodeLost("n2"))
    plan = world.round()
    placed = [a.admission.pod_sets[0].assignment for a in plan.actions if isinstance(a, Admit)]
    assert [place.shares[0].values for place in placed if place is not None] == [("n3",)]
    assert [a.gang.name for a in plan.actions if isinstance(a, EvictGang)] == ["b"]


def test_a_newcomer_and_a_replacement_do_not_share_a_node_14646() -> None:
    world = World("""
        topology t rack host
        flavor f topology=t
        node n2 rack=r1 : cpu=1
        queue q : f/cpu=9
        queue p : f/cpu=9
        gang a by q failed=n1 : cpu=1 free > f @ n1=1
        gang b in p : cpu=1
    """)
    world.settle()
    assert world.hosts("a") == {"n2": 1}
    assert world.waiting() == {"b"}


@pytest.mark.parametrize("levels", ["rack host", "rack"])
def test_a_flavor_that_is_deleted_and_made_again_does_not_book_twice_13612(levels: str) -> None:
    where = "n1=2" if "host" in levels else "rack:r1=2"
    world = World(f"""
        topology t {levels}
        flavor f topology=t
        node n1 rack=r1 : cpu=2
        queue q : f/cpu=100
        gang holder by q : x2 cpu=1 > f @ {where}
    """)
    world.see(FlavorLost("f"))
    world.draw("flavor f topology=t\ngang next in q : cpu=1")
    world.settle()
    assert world.waiting() == {"next"}
    world.finish("holder")
    world.settle()
    assert world.running() == {"next"}


@pytest.mark.parametrize("levels", ["rack host", "rack"])
def test_nodes_of_a_deleted_flavor_are_not_free_for_another_13612(levels: str) -> None:
    where = "n1=2" if "host" in levels else "rack:r1=2"
    world = World(f"""
        topology t {levels}
        flavor f topology=t
        flavor other topology=t
        node n1 rack=r1 : cpu=2
        queue q : f/cpu=100
        queue p : other/cpu=100
        gang holder by q : x2 cpu=1 > f @ {where}
    """)
    world.see(FlavorLost("f"))
    world.draw("gang next in p : cpu=1")
    world.settle()
    assert world.waiting() == {"next"}
    world.finish("holder")
    world.settle()
    assert world.running() == {"next"}


def test_what_is_used_does_not_leak_when_a_queue_loses_its_topology_12733() -> None:
    world = World(RACKS + "gang holder by q : x2 cpu=1 > f @ n1=2")
    world.see(TopologyLost("t"))
    world.draw("flavor f")
    world.finish("holder")
    world.draw("flavor f topology=t\ntopology t rack host\ngang next in q : x4 cpu=1 required=rack")
    world.settle()
    assert world.hosts("next") == {"n1": 2, "n2": 2}


def test_what_is_used_does_not_leak_when_the_queue_goes_before_the_gang_12733() -> None:
    world = World(RACKS + "gang holder by q : x2 cpu=1 > f @ n1=2")
    world.see(QueueLost("q"))
    world.finish("holder")
    world.draw("queue q : f/cpu=2\ngang next in q : x2 cpu=1 required=host")
    world.settle()
    assert world.running() == {"next"}
    assert world.state.usage.quota_tree().queues["q"].usage == {("f", "cpu"): 2000}


def test_pods_that_fill_no_whole_slice_are_placed_too_15640() -> None:
    world = World(RACKS.replace("cpu=2", "cpu=4") + "gang ten in q : x10 cpu=1 slice=4@rack")
    world.settle()
    assert sum(world.hosts("ten").values()) == 10


def test_a_leader_and_four_workers_find_the_only_way_to_stand_7446() -> None:
    world = World("""
        topology t rack host
        flavor f topology=t
        node a rack=r1 : cpu=2
        node b rack=r1 : cpu=4
        node c rack=r1 : cpu=3
        queue q : f/cpu=100
        gang g in q : leader cpu=1 required=rack group=x ; workers x4 cpu=2 required=rack group=x
    """)
    world.settle()
    assert world.hosts("g") == {"a": 1, "b": 2, "c": 2}


def test_a_slice_that_loses_its_node_is_mended_not_emptied_6913() -> None:
    world = World(
        RACKS
        + "node n5 rack=r1 : cpu=2\ngang g by q failed=n1 : x8 cpu=1 slice=4@rack > f @ n1=2 n2=2 n3=2 n4=2"
    )
    world.see(NodeLost("n1"))
    world.settle()
    assert world.hosts("g") == {"n2": 2, "n3": 2, "n4": 2, "n5": 2}


def test_amounts_beyond_32_bits_are_counted_right_13530() -> None:
    world = World("""
        topology t rack host
        flavor f topology=t
        node n1 rack=r1 : cpu=4 memory=8Ti tokens=9000000000000000000
        queue q : f/cpu=100 f/memory=100Ti f/tokens=9000000000000000000
        gang one in q at=0 : x2 cpu=1 memory=4Ti tokens=4000000000
        gang two in q at=1 : cpu=1 memory=1
    """)
    world.settle()
    assert world.running() == {"one"}
    world = World(
        "flavor f\nqueue q : f/cpu=3000000\ngang big in q : x3000000 cpu=1\ngang more in q : cpu=1m"
    )
    world.settle()
    assert world.running() == {"big"}


def test_ties_are_broken_by_name_not_by_order_of_arrival_13031() -> None:
    lines = [f"node n{n} rack=r{n % 3} : cpu=2" for n in range(9)]
    queues = [f"queue q{n} in all : f/cpu=1" for n in range(4)]
    gangs = [f"gang g{n} in q{n} : x3 cpu=1 required=rack" for n in range(4)]
    answers = []
    for turn in (1, -1):
        world = World("topology t rack host\nflavor f topology=t\ncohort all : f/cpu=6")
        world.draw("\n".join([*lines[::turn], *queues[::turn], *gangs[::turn]]))
        world.settle()
        answers.append({name: world.hosts(name) for name in sorted(world.running())})
    assert answers[0] == answers[1]
    assert len(answers[0]) == 3


class TestNothingWaitsForAnUnrelatedEvent:
    """13656, 13687, 13772: every event that could help a gang wakes it at once."""

    @pytest.mark.parametrize(
        "help_",
        [
            "node n5 rack=r3 : cpu=9",
            "node n1 rack=r1 : cpu=9",
            "flavor big topology=t\nnode n6 rack=r6 : cpu=9\nqueue q : f/cpu=100 big/cpu=9",
        ],
    )
    def test_more_capacity(self, help_: str) -> None:
        world = World(RACKS + "gang g in q : x5 cpu=1 required=rack")
        world.settle()
        assert world.waiting() == {"g"}
        world.draw(help_)
        world.settle()
        assert world.running() == {"g"}

    @pytest.mark.parametrize(
        "help_",
        [
            "queue q in all : f/cpu=2",
            "queue p in all : f/cpu=1",
            "cohort all : f/cpu=2",
            "cohort top : f/cpu=2\ncohort all in top",
            "cohort other : f/cpu=2\nqueue q in other : f/cpu=1",
        ],
    )
    def test_more_quota(self, help_: str) -> None:
        world = World("flavor f\ncohort all\nqueue q in all : f/cpu=1\nqueue p in all : f/cpu=0")
        world.draw("gang g in q : cpu=2")
        world.settle()
        assert world.waiting() == {"g"}
        world.draw(help_)
        world.settle()
        assert world.running() == {"g"}

    def test_a_deleted_pod(self) -> None:
        world = World("topology t rack host\nflavor f topology=t\nnode n1 rack=r : cpu=2\nqueue q : f/cpu=9")
        pod = Pod(PodKey("a", "p"), "u", {"cpu": 1000, "pods": 1}, "n1")
        world.see(PodSeen(pod))
        world.draw("gang g in q : cpu=2")
        world.settle()
        assert world.waiting() == {"g"}
        world.see(PodLost(pod.key))
        world.settle()
        assert world.running() == {"g"}

    def test_a_gang_of_another_tree_that_left_the_same_nodes(self) -> None:
        world = World(RACKS.replace("queue q", "queue p : f/cpu=9\nqueue q"))
        world.draw("gang holder by p : x8 cpu=1 > f @ n1=2 n2=2 n3=2 n4=2\ngang g in q : cpu=1")
        world.settle()
        assert world.waiting() == {"g"}
        world.finish("holder")
        world.settle()
        assert world.running() == {"g"}

    def test_a_namespace_queue_or_queue_that_is_resumed(self) -> None:
        world = World(
            "flavor f\nqueue q stop=hold : f/cpu=1\nentrance a/door q stop=hold\ngang a/g door=door : cpu=1"
        )
        world.settle()
        world.see(NamespaceQueueSeen(NamespaceQueue("a", "door", "q", StopPolicy.OPEN)))
        world.settle()
        assert world.waiting() == {"a/g"}
        world.draw("queue q : f/cpu=1")
        world.settle()
        assert world.running() == {"a/g"}

    def test_labels_of_a_namespace_that_fit_now(self) -> None:
        world = World(
            "flavor f\nqueue q namespaces=dep:eng : f/cpu=1\nnamespace a dep=sales\ngang a/g in q : cpu=1"
        )
        world.settle()
        assert world.waiting() == {"a/g"}
        world.draw("namespace a dep=eng")
        world.settle()
        assert world.running() == {"a/g"}

    def test_things_that_were_missing(self) -> None:
        world = World("queue q checks=c : f/cpu=1\ngang g in q : cpu=1")
        for line in ("topology t rack host", "node n rack=r : cpu=1", "check c", "flavor f topology=t"):
            world.settle()
            assert world.waiting() == {"g"}
            world.draw(line)
        world.settle()
        assert world.running() == {"g"}

    def test_a_gang_that_shrank(self) -> None:
        world = World("flavor f\nqueue q : f/cpu=4\ngang holder by q : x4 cpu=1 > f\ngang g in q : x2 cpu=1")
        world.settle()
        assert world.waiting() == {"g"}
        world.see(QueuedGangSeen(demand("holder by q : x4 cpu=1 > x2 cpu=f:2")))
        world.settle()
        assert world.running() == {"holder", "g"}


def test_finished_pods_use_no_capacity_and_terminating_ones_do_10076() -> None:
    world = World("topology t rack host\nflavor f topology=t\nnode n1 rack=r : cpu=2\nqueue q : f/cpu=9")
    pod = Pod(PodKey("a", "p"), "u", {"cpu": 1000, "pods": 1}, "n1")
    world.see(PodSeen(replace(pod, terminating=True)))
    world.draw("gang g in q : cpu=2")
    world.settle()
    assert world.waiting() == {"g"}
    world.see(PodSeen(replace(pod, finished=True)))
    world.settle()
    assert world.running() == {"g"}


def test_a_gang_that_cannot_fit_preempts_no_gang() -> None:
    """Seen in kube-scheduler: victims are preempted one by one, and the gang still does not fit."""
    world = World(
        RACKS.replace("queue q", "queue q within=lower")
        + """
        gang low1 by q prio=-1 : x2 cpu=1 > f @ n1=2
        gang low2 by q prio=-1 : x2 cpu=1 > f @ n3=2
        gang huge in q prio=9 : x5 cpu=1 required=rack
        """
    )
    world.settle()
    assert world.evicted() == []
    assert world.running() == {"low1", "low2"}


def test_a_gang_whose_admission_failed_releases_its_capacity_at_once() -> None:
    """Seen in kube-scheduler: a losing gang holds capacity for minutes."""
    world = World(RACKS + "gang a in q at=0 : x8 cpu=1\ngang b in q at=1 : x8 cpu=1")
    world.round()
    world.state.admission_failed(world.demand("a").gang.source, NOW)
    world.see(QueuedGangSeen(replace(world.demand("a"), admission=None, active=False)))
    world.settle()
    assert world.running() == {"b"}


def test_greedy_siblings_do_not_miss_a_placement() -> None:
    """Seen in KAI: pod sets of 3, 4 and 3 on racks with capacity for 6 and 4."""
    world = World(
        """
        topology t rack host
        flavor f topology=t
        node n1 rack=r1 : cpu=6
        node n2 rack=r2 : cpu=4
        queue q : f/cpu=100
        gang g in q : a x3 cpu=1 required=rack ; b x4 cpu=1 required=rack ; c x3 cpu=1 required=rack
        """,
        Profile(required=Strategy.EXACT),
    )
    world.settle()
    assert world.hosts("g") == {"n1": 6, "n2": 4}
