"""The latest change of every object, from which a state is rebuilt after a failure."""

from __future__ import annotations

from dataclasses import replace

from bayplan.model.change import (
    ImagesSeen,
    NamespaceLost,
    NamespaceSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    Started,
)
from bayplan.model.pod import Pod, PodKey
from bayplan.runtime.core.latest_objects import LatestObjects
from tests.support.model_objects import node

KEY = PodKey("ns", "a")
POD = PodSeen(Pod(KEY, "u1", {"cpu": 1}, "n1"))
NODE = NodeSeen(node("n1", {}, cpu=8))


def test_the_latest_change_of_every_object_is_known_in_order_of_arrival() -> None:
    known = LatestObjects()
    later = PodSeen(replace(POD.pod, finished=True))
    known.note([POD, NODE, NamespaceSeen("ns", {}), later])
    assert list(known) == [later, NODE, NamespaceSeen("ns", {})]
    assert known.pod(KEY) == later and known.pod(PodKey("ns", "b")) is None
    assert POD in known and PodLost(KEY) in known and NodeLost("n2") not in known


def test_a_deleted_object_is_forgotten_and_a_node_with_its_images() -> None:
    known = LatestObjects()
    known.note([POD, NODE, ImagesSeen("n1", {"image": 1}), NamespaceSeen("ns", {})])
    known.note([PodLost(KEY), NodeLost("n1"), NamespaceLost("ns"), NodeLost("unknown")])
    assert list(known) == [] and len(known) == 0


def test_objects_of_different_kinds_with_the_same_name_are_told_apart() -> None:
    known = LatestObjects()
    known.note([NodeSeen(node("ns", {}, cpu=1)), NamespaceSeen("ns", {}), PodSeen(replace(POD.pod))])
    known.note([NamespaceLost("ns")])
    assert [type(change) for change in known] == [NodeSeen, PodSeen]


def test_after_a_start_nothing_is_known() -> None:
    known = LatestObjects()
    known.note([POD, NODE, Started()])
    assert list(known) == []
