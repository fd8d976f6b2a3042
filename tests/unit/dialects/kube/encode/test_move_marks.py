"""Marks of a plan: written beside what is there, and found again."""

from __future__ import annotations

from bayplan.dialects.kube.decode.wire import Metadata, NodeSpecWire, NodeWire, TaintWire
from bayplan.dialects.kube.encode.move_marks import (
    PLAN,
    UNTIL,
    PlanMark,
    fence_of,
    fence_patch,
    gang_marks,
    mark_in,
)

MARK = PlanMark("p1", 1_700_000_000.0)
OTHER = TaintWire("example.com/mine", None, "NoExecute")
OURS = TaintWire(PLAN, "p1", "NoSchedule")


def tainted_node(*taints: TaintWire, **annotations: str) -> NodeWire:
    return NodeWire(Metadata(name="n", annotations=annotations), NodeSpecWire(taints=list(taints)))


def test_the_taint_of_a_plan_comes_and_goes_beside_other_taints() -> None:
    mine = {"key": "example.com/mine", "value": "", "effect": "NoExecute"}
    assert fence_patch(tainted_node(OTHER), MARK) == {
        "metadata": {"annotations": {UNTIL: "2023-11-14T22:13:20Z"}},
        "spec": {"taints": [mine, {"key": PLAN, "value": "p1", "effect": "NoSchedule"}]},
    }
    assert fence_patch(tainted_node(OTHER, OURS), None) == {
        "metadata": {"annotations": {UNTIL: None}},
        "spec": {"taints": [mine]},
    }
    assert fence_patch(tainted_node(OURS), None)["spec"] == {"taints": None}


def test_a_mark_is_found_again() -> None:
    assert fence_of(tainted_node(OTHER)) is None
    assert fence_of(tainted_node(OURS, **{UNTIL: "2023-11-14T22:13:20Z"})) == MARK
    assert mark_in("p1", {key: text or "" for key, text in gang_marks(MARK).items()}) == MARK
    assert gang_marks(None) == {PLAN: None, UNTIL: None}


def test_a_mark_without_a_readable_time_was_left_behind() -> None:
    assert mark_in("p1", None) == PlanMark("p1", 0.0)
    assert mark_in("p1", {UNTIL: "soon"}) == PlanMark("p1", 0.0)
