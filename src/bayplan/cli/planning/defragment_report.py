"""A defragmentation plan for people and as JSON: moves, cost, drawing, and the commands to do it by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bayplan.cli.live.scheduled_state import Scheduled, pods_by_node
from bayplan.cli.planning.defragmentation import Defragmentation, FragmentedCluster
from bayplan.cli.planning.gang_switch import switch_of
from bayplan.cli.planning.movable_gangs import RunningGangs, gang_name
from bayplan.cli.render.host_cells import OTHER, WANTED, HostCells, draw_hosts, letter
from bayplan.explanation.text import counted, short_levels
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod
from bayplan.scheduling.defragment.cost import accelerators
from bayplan.scheduling.defragment.problem import DefragmentPlan, Move, NoPlan

STAYING_MAX = 5


def report_lines(answer: Defragmentation, *, full: bool) -> Iterator[str]:
    """The plan for people."""
    cluster, found = answer.cluster, answer.found
    title, scheduled = cluster.room.title, cluster.scheduled
    if isinstance(found, NoPlan):
        yield f"{title}: no moves make room for it"
        yield from _why_none(answer, found)
        yield from _staying(answer.cluster.gangs)
        return
    where = scheduled.where(found.nodes)
    if not found.moves:
        yield f"{title}: fits now: {where}"
        yield f"room for such gangs now: {answer.slots_before}"
        return
    yield f"{title}: does not fit now; fits after {counted(len(found.moves), 'move')}: {where}"
    yield f"work done again: {hours(found.lost)} GPU-hours"
    yield f"room for such gangs: {answer.slots_before} before, {answer.slots_after} after"
    yield ("no cheaper moves exist" if found.cheapest else "the search was bounded: cheaper moves may exist")
    yield ""
    for number, move in enumerate(found.moves):
        yield from _move_lines(number, move, scheduled)
    yield ""
    yield from draw_hosts(_hosts(answer.cluster, found), _level_word(answer), full=full)
    yield ""
    yield "By hand, in this order; each gang has to run again before the next one is evicted:"
    yield from (f"  {line}" for line in commands(found))
    yield "--apply does the same, with a place held for each gang and checks after each step."
    yield from _staying(answer.cluster.gangs)


def report_record(answer: Defragmentation) -> dict[str, Any]:
    """The plan as JSON."""
    found, wanted, scheduled = answer.found, answer.cluster.room, answer.cluster.scheduled
    record: dict[str, Any] = {
        "wanted": wanted.title,
        "fits": isinstance(found, DefragmentPlan),
        "placementsTried": found.tries,
        "staying": [
            {"gang": gang_name(one.ref), "kind": one.ref.kind, "pods": one.pods, "reason": one.why}
            for one in answer.cluster.gangs.staying
        ],
    }
    if isinstance(found, NoPlan):
        return record | {
            "searchedAll": found.searched_all,
            "nearest": list(found.nearest),
            "podsFit": found.fit,
        }
    return record | {
        "cheapest": found.cheapest,
        "gpuHoursLost": round(found.lost / 3600, 2),
        "cost": found.cost,
        "slotsBefore": answer.slots_before,
        "slotsAfter": answer.slots_after,
        "nodes": _counts(found.nodes),
        "where": scheduled.where(found.nodes),
        "moves": [_move_record(move) for move in found.moves],
        "commands": list(commands(found)) if found.moves else [],
    }


def _move_record(move: Move) -> dict[str, Any]:
    gang = move.gang
    return {
        "gang": gang_name(gang.ref),
        "kind": gang.ref.kind,
        "pods": [str(pod.key) for pod in gang.pods],
        "from": pods_by_node(gang.pods),
        "to": _counts(move.nodes),
        "gpus": sum(accelerators(pod.amounts) for pod in gang.pods),
        "gpuHoursLost": round(gang.lost / 3600, 2),
        "cost": gang.cost,
        "budgets": list(gang.budgets),
    }


def _move_lines(number: int, move: Move, scheduled: Scheduled) -> Iterator[str]:
    gang = move.gang
    gpus = sum(accelerators(pod.amounts) for pod in gang.pods)
    size = f"{counted(len(gang.pods), 'pod')}, {gpus} gpu"
    yield f"{number + 1}. {letter(number)}  {gang.ref.kind} {gang_name(gang.ref)}: {size}"
    yield f"      from {scheduled.where(pod.node for pod in gang.pods)}"
    yield f"      to   {scheduled.where(move.nodes)}"
    budgets = f"; counts against PodDisruptionBudget {', '.join(gang.budgets)}" if gang.budgets else ""
    yield f"      {hours(gang.lost)} GPU-hours are done again{budgets}"


def commands(plan: DefragmentPlan) -> Iterator[str]:
    """The plan as commands of kubectl. Cordoned hosts keep gangs that move from coming back."""
    hosts = " ".join(sorted({*plan.nodes, *(pod.node for move in plan.moves for pod in move.gang.pods)}))
    yield f"kubectl cordon {hosts}"
    for move in plan.moves:
        yield from _evictions(move.gang.ref, move.gang.pods)
    yield f"kubectl uncordon {hosts}"


def _evictions(ref: Ref, pods: Sequence[Pod]) -> Iterator[str]:
    switch = switch_of(ref)
    if switch is not None:
        yield switch.command(stop=True)
        yield switch.command(stop=False)
        return
    for pod in pods:
        name, namespace = pod.key.name, pod.key.namespace
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        yield f"echo '{json.dumps(body, separators=(',', ':'))}' | kubectl create --raw {path} -f -"


def _hosts(cluster: FragmentedCluster, plan: DefragmentPlan) -> list[HostCells]:
    """The hosts that a move or the gang concerns, by domain."""
    scheduled, request = cluster.scheduled, cluster.room.request
    concerned = {*plan.nodes, *(node for move in plan.moves for node in move.nodes)}
    concerned |= {pod.node for move in plan.moves for pod in move.gang.pods}
    before: dict[str, dict[str, int]] = {node: {} for node in concerned}
    after: dict[str, dict[str, int]] = {node: {} for node in concerned}
    marks = {pod.key: letter(number) for number, move in enumerate(plan.moves) for pod in move.gang.pods}
    for pod in cluster.snapshot.pods.values():
        if pod.node in concerned and pod.uses_capacity:
            _add(before[pod.node], marks.get(pod.key, OTHER), pod)
            if pod.key not in marks:
                _add(after[pod.node], OTHER, pod)
    for number, move in enumerate(plan.moves):
        for pod, node in zip(move.gang.pods, move.nodes, strict=True):
            _add(after[node], letter(number), pod)
    for pod, node in zip(request.pods, plan.nodes, strict=True):
        _add(after[node], WANTED, pod)
    nodes = scheduled.controller.state.store.nodes.by_name
    levels = request.levels
    found = []
    for name in concerned:
        labels = scheduled.labels.get(name, {})
        domain = "/".join(labels.get(level, "?") for level in levels)
        total = accelerators(nodes[name].allocatable) if name in nodes else 0
        found.append(HostCells(domain, name, total, before[name], after[name]))
    target = {one.domain for one in found if one.name in plan.nodes}
    return sorted(found, key=lambda one: (one.domain not in target, one.domain, one.name))


def _add(marks: dict[str, int], mark: str, pod: Pod) -> None:
    marks[mark] = marks.get(mark, 0) + accelerators(pod.amounts)


def _level_word(answer: Defragmentation) -> str:
    levels = answer.cluster.room.request.levels
    return short_levels(levels)[levels[-1]] if levels else ""


def _why_none(answer: Defragmentation, found: NoPlan) -> Iterator[str]:
    need = len(answer.cluster.room.request.pods)
    where = f" in {'/'.join(found.nearest)}" if found.nearest else ""
    if found.fit < need:
        yield (
            f"if every movable gang left, {found.fit} of {need} pods would fit{where};"
            " the rest is used by gangs that stay, or is not there"
        )
    elif found.searched_all:
        yield f"gangs would have to leave{where} that have no other place"
    else:
        yield f"none were found in {found.tries} placements; gangs that leave{where} have no other place"


def _staying(gangs: RunningGangs) -> Iterator[str]:
    """Why gangs stay, by reason."""
    if not gangs.staying:
        return
    by_reason: dict[str, list[str]] = {}
    for one in gangs.staying:
        by_reason.setdefault(one.why, []).append(gang_name(one.ref))
    yield f"gangs that stay: {len(gangs.staying)}; gangs that may move: {len(gangs.movable)}"
    order = sorted(by_reason.items(), key=lambda pair: (-len(pair[1]), pair[0]))
    for why, names in order[:STAYING_MAX]:
        yield f"  {len(names)}: {why} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"


def _counts(nodes: Sequence[str]) -> Mapping[str, int]:
    return {node: nodes.count(node) for node in sorted(set(nodes))}


def hours(gpu_seconds: int) -> str:
    """GPU-seconds as GPU-hours."""
    return f"{gpu_seconds / 3600:.1f}"
