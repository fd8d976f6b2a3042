"""numa/cache* and integration_cache*: what is believed of zones between two reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bayplan.dialects.nrt.fingerprint import fingerprint_of
from bayplan.model.node import Node
from bayplan.model.numa import (
    NodeZones,
    NumaStalenessPolicy,
    OverReserve,
    TopologyManagerScope,
    Whose,
    ZoneRules,
)
from bayplan.placement.numa import reports
from bayplan.placement.numa.alignment import aligned
from bayplan.placement.numa.capacity import with_copies
from bayplan.placement.numa.columns import NumaColumns, zone_columns
from bayplan.placement.numa.fingerprint import pods_fingerprint
from bayplan.placement.numa.reports import EMPTY_VIEW, NumaView, RunningPod
from bayplan.placement.numa.resources import pinned_containers
from bayplan.placement.numa.score import zone_scores
from tests.conformance.numa_objects import SCORES, USUAL, Object, pod_of, topology_of, wants_of, zones_of
from tests.conformance.numa_parts import compared
from tests.conformance.registry import Check, ForFile
from tests.support.numa_plugin_arguments import INFORMER_MODES, RESYNC_METHODS, RESYNC_SCOPES

CAUTIONS = {
    "OverReserve": OverReserve.RESERVE,
    "DiscardReserved": OverReserve.SKIP,
    "Passthrough": OverReserve.NONE,
}
PEER_CARE = NumaStalenessPolicy(OverReserve.RESERVE, accept_early=False)
"""The peer looks at nodes only after they refused somebody."""


@dataclass(slots=True)
class Cache:
    """Beliefs by node, as the peer's program keeps them."""

    care: NumaStalenessPolicy = PEER_CARE
    beliefs: dict[str, NumaView] = field(default_factory=dict)
    generation: int = 0

    def of(self, node: str) -> NumaView:
        return self.beliefs.get(node, EMPTY_VIEW)

    def put(self, report: NodeZones) -> None:
        self.beliefs[report.node] = replace(self.of(report.node), report=report)

    def flush(self, found: dict[str, NumaView]) -> None:
        self.beliefs.update(found)
        self.generation += bool(found)

    def desynced(self) -> Object:
        in_doubt = [name for name, one in self.beliefs.items() if reports.in_doubt(one, self.care)]
        resettled = [name for name, one in self.beliefs.items() if one.settings_changed]
        return {"configChanged": resettled, "generation": self.generation, "maybeOverReserved": in_doubt}


# ── traces ─────────────────────────────────────────────────────────────────────────────────────────


def check_trace(case: Object) -> list[str]:
    """Every operation in turn; what Resync does inside is done by ours at its beginning."""
    cache = Cache()
    wrong: list[str] = []
    inside = False
    for number, op in enumerate(case["ops"]):
        name, args = op["op"], op["args"] or {}
        inside = name == "Resync:begin" or (inside and name != "Resync:end")
        if inside and name != "Resync:begin":
            continue
        got = OPERATIONS[name](cache, args)
        if op["result"] is not None and not _same(got, op["result"]):
            wrong.append(f"{number} {name}: want {op['result']}, got {got}")
    return wrong


def _same(got: Object, want: Object) -> bool:
    if "maybeOverReserved" in want:
        return {
            key: sorted(value) if isinstance(value, list) else value for key, value in got.items()
        } == want
    if "nodeResourceTopology" in want:
        wire = want["nodeResourceTopology"]
        zones = None if wire is None else zones_of(wire)
        return bool(got["zones"] == zones and got["fresh"] == want["fresh"]) and (
            zones is None or got["generation"] == want.get("generation", got["generation"])
        )
    return all(got.get(key) == value for key, value in want.items())


def _start(cache: Cache, args: Object) -> Object:
    cache.care = replace(
        PEER_CARE,
        counted=RESYNC_METHODS[args["resyncMethod"]],
        follow_settings=RESYNC_SCOPES[args["resyncScope"]],
    )
    for wire in args["nodeResourceTopologies"]:
        cache.put(zones_of(wire))
    return {}


def _reserve(cache: Cache, args: Object) -> Object:
    name = args["nodeName"]
    cache.beliefs[name] = reports.with_reservation(
        cache.of(name), _name(args["pod"]), wants_of(args["pod"]), cache.care
    )
    return {}


def _release(cache: Cache, args: Object) -> Object:
    cache.beliefs[args["nodeName"]] = reports.without_reservation(
        cache.of(args["nodeName"]), _name(args["pod"])
    )
    return {}


def _read(cache: Cache, args: Object) -> Object:
    zones, fresh = reports.current_zones(cache.of(args["nodeName"]), cache.care)
    return {"zones": zones, "fresh": fresh, "generation": cache.generation}


def _resync(cache: Cache, args: Object) -> Object:
    cache.flush(_caught_up(cache, args))
    return {}


def _caught_up(cache: Cache, args: Object) -> dict[str, NumaView]:
    latest = [zones_of(wire) for wire in args["apiNodeResourceTopologies"]]
    return reports.accept_reports(
        cache.beliefs, {one.node: one for one in latest}, _running(args["pods"], cache.care), cache.care
    )


def _flush(cache: Cache, args: Object) -> Object:
    flushed = [zones_of(wire) for wire in args["nodeResourceTopologies"]]
    cache.flush({report.node: NumaView(report) for report in flushed})
    return {"generation": cache.generation}


def _mark(change: Callable[[NumaView], NumaView]) -> Callable[[Cache, Object], Object]:
    def mark(cache: Cache, args: Object) -> Object:
        cache.beliefs[args["nodeName"]] = change(cache.of(args["nodeName"]))
        return {}

    return mark


def _put(cache: Cache, args: Object) -> Object:
    cache.put(zones_of(args["nodeResourceTopology"]))
    return {}


OPERATIONS: dict[str, Callable[[Cache, Object], Object]] = {
    "NewOverReserve": _start,
    "UpdateNRT": _put,
    "ReserveNodeResources": _reserve,
    "UnreserveNodeResources": _release,
    "NodeMaybeOverReserved": _mark(reports.with_rejection),
    "NodeHasForeignPods": _mark(reports.with_foreign_pod),
    "GetCachedNRTCopy": _read,
    "GetDesyncedNodes": lambda cache, _: cache.desynced(),
    "MakeNRTUpdatesForNodes": lambda cache, args: {"updatedNodes": list(_caught_up(cache, args))},
    "FlushNodes": _flush,
    "Resync:begin": _resync,
    "Resync:end": lambda cache, _: {"generation": cache.generation},
}


def _name(pod: Object) -> tuple[str, str]:
    meta = pod.get("metadata") or {}
    return meta.get("namespace", ""), meta.get("name", "")


def _running(pods: Iterable[Object] | None, care: NumaStalenessPolicy) -> dict[str, list[RunningPod]]:
    found: dict[str, list[RunningPod]] = {}
    for wire in pods or ():
        pod = pod_of(wire)
        node, phase = pod.spec.node_name or "", pod.status.phase or ""
        if reports.is_counted(care, node=node, phase=phase):
            found.setdefault(node, []).append(RunningPod(_name(wire), wants_of(wire)))
    return found


# ── tables ─────────────────────────────────────────────────────────────────────────────────────────


def table_check(path: Path) -> Check:
    """One function of the peer after the other; the watcher's cases build on each other."""
    watched = Cache()

    def check(case: Object) -> list[str]:
        if case["func"] == "hasExclusiveResources":
            return ["no counterpart"]
        if case["func"] == "Watcher.ProcessEvent":
            got: Any = _watched(watched, case)
        else:
            got = TABLES[case["func"]](case)
        return [] if got == case["expected"] else [f"want {case['expected']}, got {got}"]

    return check


def _watched(cache: Cache, case: Object) -> Object:
    for wire in case["cachedNodeResourceTopologies"]:
        if cache.of(wire["metadata"]["name"]).report is None:
            cache.put(zones_of(wire))
    report = zones_of(case["eventObject"])
    cache.beliefs[report.node] = reports.report_received(cache.of(report.node), report, cache.care)
    return {"nodesWithAttrUpdate": cache.desynced()["configChanged"]}


def _cached(case: Object) -> Object:
    cache = Cache(replace(PEER_CARE, over_reserve=CAUTIONS[case["cache"]]))
    for wire in case["nodeResourceTopologies"] or ():
        cache.put(zones_of(wire))
    if case["hasForeignPods"]:
        cache.beliefs[case["nodeName"]] = reports.with_foreign_pod(cache.of(case["nodeName"]))
    got = _read(cache, case)
    expected: Object = case["expected"]
    return expected if _same(got, expected) else got


def _stranger(case: Object) -> bool:
    spec = case["pod"]["spec"]
    ours = not spec.get("nodeName") or spec.get("schedulerName") in (case["schedulerProfileNames"] or ())
    care = replace(PEER_CARE, foreign_pods=Whose.EXCLUSIVE if case["exclusiveOnly"] else Whose.ALL)
    return reports.is_foreign_pod(wants_of(case["pod"]), case["nrtResources"], care, ours=ours)


def _pod_data(case: Object) -> Object:
    """The peer remembers pinned containers only if evictions are imagined; ours always knows them."""
    found = _running(case["pods"], replace(PEER_CARE, count_starting=INFORMER_MODES[case["informer"]]))
    expected: dict[str, list[Object]] = case["expected"]
    for node, pods in expected.items():
        ours = {pod.name: pinned_containers(pod.request, ()) for pod in found.get(node, ())}
        for pod in pods:
            pinned = ours.pop((pod["Namespace"], pod["Name"]), None)
            exclusive = pod["ExclusiveResources"] == 2 or bool(pod["PinnedContainers"])
            if pinned is None or bool(pinned) is not exclusive:
                return {"pinned": pinned}
            if pod["PinnedContainers"] and tuple(pod["PinnedContainers"]) != pinned:
                return {"pinned": pinned}
        if ours:
            return {"more": list(ours)}
    return expected if found.keys() == expected.keys() else {"nodes": list(found)}


def _fingerprint(case: Object) -> Object:
    wire = case["nodeResourceTopology"]
    if "fingerprint" in case["expected"]:
        return {"fingerprint": fingerprint_of(topology_of(wire))[0]}
    care = replace(PEER_CARE, counted=RESYNC_METHODS[case["resyncMethod"]])
    return {"onlyExclusiveResources": reports.counts_exclusive_only(zones_of(wire), care)}


def _checked(case: Object) -> Object:
    pods = [(pod["Namespace"], pod["Name"]) for pod in case["pods"] or ()]
    return {"error": compared(case["fingerprint"], pods_fingerprint(pods))}


TABLES: dict[str, Callable[[Object], Any]] = {
    "GetCachedNRTCopy": _cached,
    "IsForeignPod": _stranger,
    "makeNodeToPodDataMap": _pod_data,
    "podFingerprintForNodeTopology": _fingerprint,
    "checkPodFingerprintForNode": _checked,
}


# ── whole stories ──────────────────────────────────────────────────────────────────────────────────


def check_story(case: Object) -> list[str]:
    """Pods come and go; those that wait are tried again after a new report where the story has one."""
    rules = replace(USUAL, score=SCORES[case["scoringStrategy"]])
    cache = Cache(replace(PEER_CARE, period=case["cacheResyncPeriodSeconds"]))
    for wire in case["nodeResourceTopologies"]:
        cache.put(zones_of(wire))
    running: dict[str, list[RunningPod]] = {}
    for step in case["steps"]:
        if step["op"] != "create":
            continue  # a pod that ended: only the next report tells what it leaves behind
        cache.care = replace(cache.care, over_reserve=CAUTIONS[step["cache"]])
        placed = _schedule(cache, step["pod"], rules, running)
        if placed == "" and case["test"] != "TestTopologyCachePluginWithoutUpdates":
            _report_again(cache, case["test"], running, rules)
            placed = _schedule(cache, step["pod"], rules, running)
        want = step["expectedNode"]
        if placed != want and not (want == "*" and placed):
            return [f"{step['pod']['metadata']['name']}: want {want!r}, got {placed!r}"]
    return []


def _schedule(cache: Cache, wire: Object, rules: ZoneRules, running: dict[str, list[RunningPod]]) -> str:
    """Put a pod on the best node that can align it, if there is one."""
    wants, nodes = wants_of(wire), [_node(belief.report) for belief in cache.beliefs.values()]
    seen = {name: reports.current_zones(belief, cache.care) for name, belief in cache.beliefs.items()}
    stale = [name for name, (_, fresh) in seen.items() if not fresh]
    columns = zone_columns(nodes, {name: zones for name, (zones, _) in seen.items() if zones}, stale)
    good, scores = aligned(columns, wants, rules).good, zone_scores(columns, wants, rules)
    for row, node in enumerate(nodes):
        if not good[row]:
            cache.beliefs[node.name] = reports.with_rejection(cache.of(node.name))
    if not good.any():
        return ""
    best = max((row for row in range(len(nodes)) if good[row]), key=lambda row: (scores[row], -row))
    name = nodes[best].name
    cache.beliefs[name] = reports.with_reservation(cache.of(name), _name(wire), wants, cache.care, uid="u")
    cache.beliefs[name] = reports.with_bound_pod(cache.of(name), "u")
    running.setdefault(name, []).append(RunningPod(_name(wire), wants))
    return name


def _node(report: NodeZones | None) -> Node:
    """The stories do not tell of the nodes: they have plenty of what their zones list."""
    assert report is not None
    return Node(report.node, {}, dict.fromkeys(report.resources, 1 << 50))


def _report_again(cache: Cache, test: str, running: dict[str, list[RunningPod]], rules: ZoneRules) -> None:
    """What the nodes would report now: the pods they run in the zones they chose, or another scope."""
    latest = {}
    for name, belief in cache.beliefs.items():
        report = belief.report
        assert report is not None
        if test.endswith("AttributeUpdates"):
            latest[name] = replace(
                report, alignment=replace(report.alignment, scope=TopologyManagerScope.CONTAINER)
            )
        else:
            latest[name] = _with_pods(report, running.get(name, []), rules)
        cache.beliefs[name] = reports.report_received(belief, latest[name], cache.care)
    cache.flush(reports.accept_reports(cache.beliefs, latest, running, cache.care))


def _with_pods(report: NodeZones, pods: list[RunningPod], rules: ZoneRules) -> NodeZones:
    columns = zone_columns([_node(report)], {report.node: report})
    for pod in pods:
        columns = with_copies(columns, np.zeros(1, np.int64), np.ones(1, np.int64), pod.request, rules)
    zones = tuple(
        replace(zone, available={name: _left(columns, name, place) for name in zone.available})
        for place, zone in enumerate(report.zones)
    )
    return replace(report, zones=zones, fingerprint=pods_fingerprint(pod.name for pod in pods))


def _left(columns: NumaColumns, name: str, place: int) -> int:
    return int(columns.available[columns.resources[name], place, 0])


FILES: dict[str, Check | ForFile] = {
    "numa/cache_traces*": check_trace,
    "numa/cache_tables*": ForFile(table_check),
    "numa/integration_cache*": check_story,
}
