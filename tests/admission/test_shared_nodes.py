"""Nodes in several flavors and topologies: usage in one counts in all."""

from __future__ import annotations

from bayplan.model.change import NodeLost
from tests.admission.world import World

TWO_VIEWS = """
topology hosts rack host
topology racks rack
flavor fine topology=hosts
flavor coarse topology=racks
node n1 rack=r1 : cpu=2
queue a : fine/cpu=9
queue b : coarse/cpu=9
"""


def test_two_flavors_that_see_one_node_share_it_in_one_round() -> None:
    world = World("""
        topology t rack host
        flavor f topology=t
        flavor g topology=t
        node n1 rack=r1 : cpu=2
        queue a : f/cpu=9
        queue b : g/cpu=9
        gang one in a : x2 cpu=1
        gang two in b at=1 : x2 cpu=1
    """)
    world.round()
    assert world.running() == {"one"}
    world.settle()
    assert world.running() == {"one"}


def test_a_topology_that_ends_at_racks_sees_what_was_taken_on_hosts_in_the_same_round() -> None:
    world = World(TWO_VIEWS + "gang one in a : x2 cpu=1\ngang two in b at=1 : x2 cpu=1")
    world.round()
    assert world.running() == {"one"}
    world.settle()
    assert world.running() == {"one"}


def test_a_topology_of_hosts_sees_what_was_taken_in_racks_in_the_same_round() -> None:
    world = World(TWO_VIEWS + "gang one in b : x2 cpu=1\ngang two in a at=1 : x2 cpu=1")
    world.round()
    assert world.running() == {"one"}
    world.settle()
    assert world.running() == {"one"}


def test_pods_that_are_promised_a_rack_leave_hosts_of_it_to_gangs_of_other_topologies() -> None:
    world = World(TWO_VIEWS + "node n2 rack=r1 : cpu=2\nnode n3 rack=r2 : cpu=1")
    world.draw("gang one in b : x2 cpu=1")  # both pods fit on one of the two hosts of its rack
    world.settle()
    world.draw("gang two in a : x2 cpu=1\ngang three in a at=1 : x2 cpu=1")
    world.settle()
    assert world.running() == {"one", "two"}
    world.finish("one")
    world.settle()
    assert world.running() == {"two", "three"}


def test_topologies_that_end_at_different_levels_above_the_host_see_each_other() -> None:
    views = TWO_VIEWS.replace("topology hosts rack host", "topology hosts block")
    views = views.replace("rack=r1", "block=b1 rack=r1")
    world = World(views + "gang one in b : x2 cpu=1\ngang two in a at=1 : x2 cpu=1")
    world.round()
    assert world.running() == {"one"}
    world.settle()
    assert world.running() == {"one"}


def test_a_rack_named_like_a_host_elsewhere_takes_nothing_there() -> None:
    world = World("""
        topology hosts rack host
        topology racks rack
        flavor fine topology=hosts label:kind=fine
        flavor coarse topology=racks label:kind=coarse
        node same rack=r1 kind=fine : cpu=2
        node other rack=same kind=coarse : cpu=2
        queue a : fine/cpu=9
        queue b : coarse/cpu=9
        gang one in b : x2 cpu=1
        gang two in a at=1 : x2 cpu=1
    """)
    world.round()
    assert world.running() == {"one", "two"}


def test_nodes_whose_name_is_not_their_host_label_are_accounted_for_whenever_they_come() -> None:
    world = World(TWO_VIEWS.replace("node n1 rack=r1", "node x rack=r1 host=n1"))
    world.draw("gang one by a : x2 cpu=1 > fine @ n1=2\ngang two in b : x2 cpu=1")
    world.settle()
    assert world.waiting() == {"two"}
    world.see(NodeLost("x"))
    world.finish("one")
    world.draw("node x rack=r1 host=n1 : cpu=2")
    world.settle()
    assert world.running() == {"two"}


def test_a_gang_known_before_its_node_can_be_preempted_there() -> None:
    world = World("topology t rack host\nflavor f topology=t\nqueue q within=lower : f/cpu=9")
    world.draw("gang low by q prio=-1 : x2 cpu=1 > f @ n1=2")
    world.draw("node n1 rack=r1 : cpu=2")
    world.draw("gang high in q prio=1 : x2 cpu=1")
    world.settle()
    assert world.running() == {"high"}


def test_a_gang_that_came_before_its_node_is_accounted_for_all_the_same() -> None:
    world = World(TWO_VIEWS.replace("node n1 rack=r1 : cpu=2", ""))
    world.draw("gang one by a : x2 cpu=1 > fine @ n1=2\ngang two in b : x2 cpu=1")
    world.draw("node x rack=r1 host=n1 : cpu=2")
    world.settle()
    assert world.waiting() == {"two"}
    world.finish("one")
    world.settle()
    assert world.running() == {"two"}
