"""What groups and pods of the KAI family hear while they wait, and when they go."""

from __future__ import annotations

import pytest

from tests.unit.kai_site import RACK, ZONE, Site
from tests.unit.pod_site import NODES


@pytest.mark.parametrize(
    ("levels", "told"),
    [
        ((ZONE, "example.com/row"), "no node has the label example.com/row, and only nodes with"),
        (("a/b", "a/c"), "no node has the labels a/b, a/c, and only nodes"),
    ],
)
def test_who_requires_a_topology_that_no_node_is_in_hears_which_labels_are_missing(
    levels: tuple[str, ...], told: str
) -> None:
    site = Site()
    site.topology("bare", levels=levels)
    within = {"topology": "bare", "requiredTopologyLevel": levels[-1]}
    site.group("g", minMember=2, topologyConstraint=within)
    for name in ("p", "q"):
        site.pod(name, "g")
    site.run(4)
    assert told in site.waits("g")[1] and "Label the nodes" in site.waits("g")[1]
    assert site.said("p") == site.waits("g")[1]


def test_labels_that_no_node_has_all_of_are_told() -> None:
    site = Site((0,))
    site.node("n", "r0", "z0")
    site.store.patch(NODES, "", "n", {"metadata": {"labels": {ZONE: None}}})
    site.node("m", "r0", "z0")
    site.store.patch(NODES, "", "m", {"metadata": {"labels": {RACK: None}}})
    site.topology()
    site.group("g", topologyConstraint={"topology": "hall", "requiredTopologyLevel": RACK})
    site.pod("p", "g")
    site.run(4)
    assert "no node has the labels of all levels of topology hall at once" in site.waits("g")[1]
    site.store.patch(NODES, "", "n", {"metadata": {"labels": {ZONE: "z0"}}})
    site.run(4)
    assert site.on("p") == ["n"]


def test_a_queue_that_holds_others_is_not_said_to_be_missing() -> None:
    site = Site()
    site.queue("top")
    site.queue("team", parentQueue="top")
    site.queue("hen", parentQueue="egg")
    site.queue("egg", parentQueue="hen")
    for queue in ("top", "hen"):
        site.group(f"in-{queue}", queue=queue)
        site.pod(queue, f"in-{queue}")
    site.run(4)
    reason, words = site.waits("in-top")
    assert reason == "QueueDoesNotExist" and "because it holds other queues" in words
    assert "go round in a circle" in site.waits("in-hen")[1]


def test_who_makes_room_hears_for_whom() -> None:
    site = Site((1,))
    amounts = {"quota": 1000, "limit": -1, "overQuotaWeight": 1}
    free = {"quota": -1, "limit": -1}
    for queue in ("a", "b"):
        site.queue(queue, resources={"cpu": amounts, "memory": free, "gpu": free})
    for name, queue in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        site.group(name, queue=queue)
        site.pod(f"{name}-pod", name)
        site.run(4)
        site.phase(f"{name}-pod", "Running")
    told = [words for name in ("a1-pod", "a2-pod") for reason, words in site.events(name)
            if reason == "Preempted"]  # fmt: skip
    assert told == ["Preempted: it makes room for PodGroup default/b1"]
