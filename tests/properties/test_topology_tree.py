"""Ranges of rows in the topology tree, beside a search through all nodes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.placement.cluster import topology_tree as trees

VALUES = st.sampled_from(("a", "b", "c", "d", "e"))
HOSTS = Topology("hall", ("block", "rack", HOSTNAME))
RACKS = Topology("hall", ("block", "rack"))


@given(
    st.sampled_from((HOSTS, RACKS)),
    st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=30),
    st.lists(VALUES, max_size=3),
)
def test_a_path_is_found_where_a_search_through_all_rows_finds_it(
    topology: Topology, places: list[tuple[str, str, str]], wanted: list[str]
) -> None:
    keys = ("block", "rack", HOSTNAME)
    nodes = [
        Node(f"n{number}", dict(zip(keys, place, strict=True)), {}) for number, place in enumerate(places)
    ]
    tree = trees.build(topology, nodes)
    path = tuple(wanted[: len(topology.levels)])
    there = [tuple(node.labels[level] for level in topology.levels)[: len(path)] for node in tree.nodes]
    low = sum(one < path for one in there)
    assert trees.find(tree, path) == (low, low + there.count(path))
