"""gang/unit_*_topologyaware: the domains that a gang with a topology key may be placed in."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kube.decode.node_fields import node
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.gang import GangSpec, Locality, Ref
from bayplan.model.node import HOSTNAME, Node
from bayplan.model.pod import Pod, PodKey
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.one_domain import candidate_domains
from bayplan.scheduling.attempt.gang import bound_rows
from bayplan.state.scheduling.snapshot import SchedulingCandidate
from tests.support.gang_snapshots import look

Obj = dict[str, Any]


def check(case: Obj) -> list[str]:
    """Only some nodes may be used; pods of the gang may stand on others."""
    usable = [_node(one) for one in case["placementNodes"]]
    others = [_node(one) for one in case.get("otherNodes") or []]
    constraints = case["podGroup"]["spec"].get("schedulingConstraints", {}).get("topology") or []
    want = case.get("wantPlacementNodes")
    if not constraints:  # then there is nothing to choose between
        return [] if list((want or {}).values()) == [[one.name for one in usable]] else [f"want {want}"]
    key = constraints[0]["key"]
    gang = Ref("test", "PodGroup", "", "gang")
    standing = tuple(
        Pod(PodKey("", name), name, {}, where, gang=gang)
        for name, where in (case.get("scheduledPodGroupPods") or {}).items()
    )
    candidate = SchedulingCandidate(GangSpec(gang, locality=Locality(required=key)), (), standing)
    with NodeOverlay(look([*usable, *others]).filter_input) as floor:
        rows = bound_rows(floor, candidate, key)
        if rows is None or case["wantStatus"]:
            return [] if rows is None and case["wantStatus"] else [f"want {case['wantStatus']}, got {rows}"]
        within = floor.mask_of(one.name for one in usable)
        found = candidate_domains(floor, (), key, rows, need=0, allowed_nodes=within)
        got = {area.value: [one.name for one in usable if area.nodes[floor.row(one.name)]] for area in found}
    return [] if got == want else [f"want {want}, got {got}"]


def _node(given: Obj) -> Node:
    labels = {HOSTNAME: given["metadata"]["name"], **(given["metadata"].get("labels") or {})}
    return node(Field({**given, "metadata": {**given["metadata"], "labels": labels}}))


FILES = {"gang/unit_*_topologyaware": check}
