"""numa/*preemption*: zones as they would be without some pods, and whether a pod fits then."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kube.encode.numa_messages import WHY_NOT, no_eviction, sentence
from bayplan.dialects.nrt.numa_placement import HEAD, METADATA, VECTOR, encoded_vector
from bayplan.model.node import Node
from bayplan.model.numa import EvictionUnknown, NumaStalenessPolicy, OverReserve
from bayplan.placement.numa.alignment import why_unaligned
from bayplan.placement.numa.columns import zone_columns
from bayplan.placement.numa.evictions import zones_after_eviction, zones_without
from bayplan.placement.numa.reports import RunningPod, container_zones_of
from tests.conformance.numa_objects import USUAL, Object, nodes_of, wants_of, zones_of
from tests.conformance.registry import Check
from tests.support.numa_plugin_arguments import PREEMPTION_MODES, numa_settings


def check_simulation(case: Object) -> list[str]:
    """The zones afterwards, or why there are none."""
    report = zones_of(_typed(case["nodeResourceTopology"]))
    found = zones_without(report, _pods(case["victims"]), _seats(case["numaPlacement"]))
    error = case["expected"]["error"] or ""
    if isinstance(found, EvictionUnknown):
        return [] if WHY_NOT[found] == error else [f"want {error!r}, got {WHY_NOT[found]!r}"]
    wanted = zones_of(_typed(case["expected"]["nodeResourceTopology"]))
    return [] if not error and found == wanted else [f"want {error or wanted}, got {found}"]


def check_filter(case: Object) -> list[str]:
    """The verdict in a dry run, and whether the node is remembered as one that refused."""
    nodes, victims = nodes_of([case["node"]]), _pods(case["victims"])
    care = NumaStalenessPolicy(
        OverReserve.RESERVE, simulate_evictions=PREEMPTION_MODES[case["preemptionMode"]]
    )
    report = zones_of(case["nodeResourceTopology"])
    found = zones_after_eviction(report, victims, _seats(case["numaPlacement"]), care)
    reasons: list[str] = []
    if isinstance(found, EvictionUnknown):
        reasons = [no_eviction(found)]
    else:
        columns = zone_columns(nodes, {report.node: found})
        why = why_unaligned(columns, 0, nodes[0].name, wants_of(case["pod"]), USUAL)
        reasons = [] if why is None else [sentence(why.cause)]
    got = {"code": "Unschedulable" if reasons else "Success", "reasons": reasons}
    wrong = [] if got == case["expected"] else [f"want {case['expected']}, got {got}"]
    dry_run = care.simulates_evictions and victims
    marked = [nodes[0].name] if reasons and not dry_run else []
    if marked != (case["observedMaybeOverReserved"] or []):
        wrong.append(f"refusals: want {case['observedMaybeOverReserved']}, got {marked}")
    return wrong


def check_story(case: Object) -> list[str]:
    """A pod that fills a zone yields to one of higher priority, if it is known where it sits."""
    _, care, problems = numa_settings(case)
    assert not problems
    zones = case["node"]["zones"]
    victim = RunningPod(("default", "victim"), wants_of(_guaranteed(case["victim"])))
    report = zones_of(_reported(case, zones))
    may_yield = case["preFilterEnabled"] and case["victimPriority"] < case["preemptorPriority"]
    found = zones_after_eviction(
        report, [victim] if may_yield else [], container_zones_of(report, [victim]), care
    )
    assert not isinstance(found, EvictionUnknown), found
    columns = zone_columns([Node("n", {}, {"cpu": 6000, "memory": 6 << 30})], {"n": found})
    good = why_unaligned(columns, 0, "n", wants_of(_guaranteed(case["preemptor"])), USUAL) is None
    want = case["expected"]["victimEvictedAndPreemptorScheduled"]
    return [] if good is want else [f"want {want}, got {good}"]


def _reported(case: Object, zones: list[Object]) -> Object:
    """The report of such a node; where the victim sits is told as exporters tell it."""
    busy = next(number for number, zone in enumerate(zones) if zone.get("victimFillsZone"))
    idle = next(number for number in range(len(zones)) if number != busy)
    placed = case["nrtHasNumaPlacement"]
    told = f"{HEAD}::ve=leb89::cc=1::nn={len(zones)}::bn={idle}"
    policy = {"name": "topologyManagerPolicy", "value": "single-numa-node"}
    return {
        "metadata": {"name": "n"},
        "attributes": [policy, {"name": METADATA, "value": told}] if placed else [policy],
        "zones": [
            {
                "name": f"node-{number}",
                "type": "Node",
                "attributes": [{"name": VECTOR, "value": encoded_vector([0])}]
                if placed and number == busy
                else [],
                "resources": [
                    {
                        "name": name,
                        "allocatable": zone[name],
                        "available": "0" if number == busy else zone[name],
                    }
                    for name in ("cpu", "memory")
                ],
            }
            for number, zone in enumerate(zones)
        ],
    }


def _guaranteed(amounts: Object) -> Object:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}]}}


def _typed(wire: Object) -> Object:
    """The tables leave out what kind of zone it is; the function does not ask."""
    return {**wire, "zones": [{**zone, "type": "Node"} for zone in wire["zones"] or ()]}


def _pods(wires: list[Object] | None) -> list[RunningPod]:
    found = []
    for wire in wires or ():
        meta: Any = wire["metadata"]
        found.append(RunningPod((meta.get("namespace", ""), meta.get("name", "")), wants_of(wire)))
    return found


def _seats(placed: list[Object] | None) -> dict[tuple[str, str, str], int] | None:
    if placed is None:
        return None
    return {(one["namespace"], one["pod"], one["container"]): one["numaID"] for one in placed}


FILES: dict[str, Check] = {
    "numa/preemption_simulation*": check_simulation,
    "numa/filter_preemption*": check_filter,
    "numa/integration_preemption*": check_story,
}
