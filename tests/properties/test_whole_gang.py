"""A gang with a tree is assigned as its placement by topology says, whatever the overlay has changed."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.assignment import Misfit
from bayplan.model.gang import Gang
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import HostPort, PodSignature, PodSpec
from bayplan.model.profile import Profile
from bayplan.placement.cluster.node_index import NodeSnapshot, allocatable_of, node_index_of
from bayplan.placement.cluster.node_table import table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.topology_tree import objects
from bayplan.placement.domains.scope import Located, scope_of
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.gang.beside import complete
from bayplan.placement.gang.place import place_in
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import NodeAssignment
from bayplan.placement.subgroups.whole_gang import assign_whole_gang
from tests.properties.worlds import THREE, Ask, World, asks, cluster_of, gang_of, node_of, profiles, worlds

RESOURCES = {"pods": 0, "gpu": 1, "cpu": 2}
TAKER = PodSignature(amounts=(("gpu", 1), ("pods", 1)))


def filter_input(world: World) -> FilterInput:
    nodes: list[Node] = sorted(map(node_of, world["nodes"]), key=lambda node: node.name[::-1])
    index, table = PodIndex(), table_of(objects(nodes))
    room = allocatable_of(table, RESOURCES)
    return FilterInput(NodeSnapshot(node_index_of(table, index.slots), RESOURCES, room.copy(), room), index)


def pods_of(gang: Gang, ports: tuple[HostPort, ...] = ()) -> list[Pod]:
    """Every pod that the gang asks for, with a label of its own."""
    made = []
    for pod_set in gang.root.pod_sets():
        amounts = {**pod_set.requests, "pods": 1}
        for rank in range(pod_set.count):
            name = f"{pod_set.name}-{rank}"
            labels, asked = (("index", str(rank)),), tuple(sorted(amounts.items()))
            wants = PodSpec(PodSignature(labels=labels, amounts=asked, rules=pod_set.rules, ports=ports))
            made.append(Pod(PodKey("ns", name), name, amounts, pod_set=pod_set.name, rank=rank, spec=wants))
    return made


@st.composite
def gangs(draw: st.DrawFn) -> tuple[World, Gang, Profile, list[int]]:
    """A world, a gang, how to place it, and nodes on which something sits already."""
    members: list[Ask] = [
        draw(asks(THREE, name, pods=5)) for name in draw(st.sampled_from((("a",), ("a", "b"))))
    ]
    used_rows = draw(st.lists(st.integers(0, 7), max_size=4))
    return draw(worlds(THREE)), gang_of(*members), draw(profiles()), used_rows


def seated(
    world: World, gang: Gang, profile: Profile, used_rows: list[int], pending: list[Pod], bound: list[Pod]
) -> tuple[NodeOverlay, NodeAssignment | Misfit]:
    overlay = NodeOverlay(filter_input(world))
    for number, at in enumerate(used_rows):
        overlay.add_pod(PodKey("ns", f"taker-{number}"), TAKER, at % len(overlay))
    snapshot = cluster_of(world).snapshot()
    return overlay, assign_whole_gang(overlay, snapshot, gang.root, pending, bound, profile=profile)


def expected(
    world: World, gang: Gang, profile: Profile, used_rows: list[str], pending: list[Pod], bound: list[Pod]
) -> dict[str, list[str]] | Misfit:
    """Nodes in rank order by pod set, from a cluster in which the takers have run all along."""
    cluster = cluster_of(world)
    for name in used_rows:
        cluster.use_node(name, dict(TAKER.amounts))
    scope = scope_of(cluster.snapshot(), profile)
    found: dict[str, Located] | Misfit
    if bound:
        nodes: dict[str, list[str]] = {}
        for pod in bound:
            nodes.setdefault(pod.pod_set, []).append(pod.node)
        found = complete(scope, gang, nodes, Counter(pod.pod_set for pod in pending))
    else:
        found = place_in(scope, gang)
    if isinstance(found, Misfit):
        return found
    nodes_of = scope.snapshot.tree.nodes
    return {
        name: [nodes_of[leaf].name for leaf in np.repeat(located.leaves, located.pods).tolist()]
        for name, located in found.items()
    }


@given(gangs(), st.lists(st.booleans(), min_size=10, max_size=10))
def test_the_same_nodes_in_the_same_order(
    asked: tuple[World, Gang, Profile, list[int]], runs: list[bool]
) -> None:
    world, gang, profile, used_rows = asked
    all_pods = pods_of(gang)
    hosts = [node["name"] for node in world["nodes"] if "rack" in node["labels"]]
    bound = [
        Pod(pod.key, pod.uid, pod.amounts, hosts[at % len(hosts)], pod_set=pod.pod_set, rank=pod.rank)
        for at, pod in enumerate(all_pods)
        if hosts and runs[at] and runs[-1]
    ]
    pending = [pod for pod in all_pods if pod.key not in {one.key for one in bound}]
    overlay, answer = seated(world, gang, profile, used_rows, pending, bound)
    names = [overlay.node(at % len(overlay)) for at in used_rows]
    right = expected(world, gang, profile, names, pending, bound)
    if isinstance(right, Misfit) or isinstance(answer, Misfit):
        assert answer == right
        assert overlay.checkpoint() == len(used_rows)
        return
    assert not answer.unsure
    for name, nodes in right.items():
        mine = [pod.key for pod in pending if pod.pod_set == name]
        assert [overlay.node(answer.rows[key]) for key in mine if key in answer.rows] == nodes
        assert set(answer.unassigned) >= set(mine[len(nodes) :])
    assert all(overlay.row_of(key) == row for key, row in answer.rows.items())


@given(gangs())
def test_pods_with_a_port_never_share_a_node(asked: tuple[World, Gang, Profile, list[int]]) -> None:
    world, gang, profile, used_rows = asked
    pending = pods_of(gang, ports=(HostPort(80),))
    overlay, answer = seated(world, gang, profile, used_rows, pending, [])
    if isinstance(answer, Misfit):
        return
    if len(list(gang.root.pod_sets())) == 1:
        assert not answer.unsure
    rows = list(answer.rows.values())
    assert len(set(rows)) == len(rows)
    labels = [overlay.filter_input.node_snapshot.node_index.table.nodes[row].labels for row in rows]
    assert all(HOSTNAME in one for one in labels)
