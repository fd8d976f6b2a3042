"""What the scheduler makes of one gang or pod right now: what it lacks, and who would have to go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from bayplan.cli.live.scheduled_state import Scheduled, pods_by_node, since_text
from bayplan.cli.live.state import Live
from bayplan.cli.render.numa import drawn
from bayplan.dialects.kai.status.advice import advice
from bayplan.explanation.reasons import NOT_TRIED, TO_COME
from bayplan.explanation.text import amount_text, counted, oversized_text, short_resources, shown_name
from bayplan.model.assignment import Misfit
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.node import PODS
from bayplan.model.plan import Bind, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.pod import Pod
from bayplan.placement.cluster.oversize import oversized
from bayplan.runtime.controllers.scheduler.controller import CycleInput, SchedulerController
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.single_pod import lone_ref

HOSTS_MAX = 16
NAMES_MAX = 8
RUNS, PARTLY, WAITS = "runs", "runs, and more of its pods wait", "waits"
INCOMPLETE, FLAWED = "not complete", "cannot start as it is written"
STATES = {EntryState.RUNNING: RUNS, EntryState.INCOMPLETE: INCOMPLETE}


def gang_story(live: Live, found: Scheduled, ref: Ref, *, full: bool, zones: bool) -> Iterator[str]:
    """All that can be said of a gang, or of a pod that stands for itself. Nothing is changed."""
    role, state = found.role, found.role.state
    charter, place = state.charter_of(ref), state.place_of(ref)
    standing, waiting = state.standing(ref), state.waiting(ref)
    if not standing and not waiting:  # a pod without a gang is not in line once it has a node
        standing = tuple(pod for key, pod in state.store.pods.items() if lone_ref(key) == ref and pod.node)
    yield f"{ref.kind} {ref.namespace}/{shown_name(ref)}: {state_of(role, ref)}"
    yield from _asked(role, ref, charter, (*standing, *waiting))
    gated = len(state.store.members.get(ref, ())) - len(standing) - len(waiting)
    held = f", {gated} are held back or over" if gated > 0 and ref.kind != "Pod" else ""
    yield f"  {counted(len(standing), 'pod')} with a node, {len(waiting)} without{held}"
    group = charter if ref in role.groups.groups else None  # its priority is that of all its pods
    for shape, count in parts_text(waiting, None if group is None else group.priority).items():
        yield f"  {count} x {shape}"
    yield from place_lines(live, found, standing, full=full)
    nodes = {pod.node for pod in standing if pod.node}
    if place not in (None, EntryState.RUNNING):
        plan = decided(role, ref, live.now)
        yield from _outcome(role, plan, ref)
        nodes |= {action.node for action in plan.actions if isinstance(action, Bind)}
    if zones:
        known = state.store.zones.heard
        yield from drawn(sorted(nodes) or sorted(known), known, {})


def place_lines(live: Live, found: Scheduled, pods: Iterable[Pod], *, full: bool) -> Iterator[str]:
    """On which nodes pods are, and since when they have been running."""
    placed = [pod for pod in pods if pod.node]
    nodes = pods_by_node(placed)
    if not nodes:
        return
    yield f"where: {found.where(nodes)}"
    shown = list(nodes.items())[: None if full else HOSTS_MAX]
    yield from (f"  {node}: {counted(count, 'pod')}" for node, count in shown)
    if len(nodes) > len(shown):
        yield f"  and {counted(len(nodes) - len(shown), 'more host')}; --full names all of them"
    started = [pod.started for pod in placed if pod.started]
    yield f"running since: {since_text(live, min(started))}" if started else "running since: not started yet"


def decided(role: SchedulerController, ref: Ref, now: float) -> Plan:
    """What the scheduler would do about a gang at this moment."""
    return role.decide(CycleInput(role.name_of(ref), role.state.look([ref], now)), now)


def reason_now(role: SchedulerController, ref: Ref, now: float) -> str:
    """Why a gang would wait if it were looked at now."""
    actions = decided(role, ref, now).actions
    refusals = [role.told(ref, action.why) for action in actions if isinstance(action, ReportUnschedulable)]
    fits = any(isinstance(action, Bind) for action in actions)
    return refusals[0] if refusals else TO_COME if fits else NOT_TRIED


def _asked(
    role: SchedulerController, ref: Ref, charter: GangSpec | None, pods: tuple[Pod, ...]
) -> Iterator[str]:
    """What the gang needs to start, and where its pods have to be."""
    if charter is None:
        return
    extra = len(pods) - charter.minimum
    if charter.minimum > 1 or (charter.minimum and extra > 0):
        beyond = f", and takes {extra} more if there is room" if extra > 0 else ""
        yield f"  needs {counted(charter.minimum, 'pod')} at once{beyond}"
    if charter.locality.required:
        yield f"  all on nodes that share a value of {charter.locality.required}"
    if ref in role.groups.groups or charter.quorum:
        yield from _sub_groups(charter, pods)


def state_of(role: SchedulerController, ref: Ref) -> str:
    """How a gang fares, in a few words."""
    charter, place = role.state.charter_of(ref), role.state.place_of(ref)
    if place is None:
        return RUNS
    if charter is not None and charter.flaw:
        return FLAWED
    if (
        charter is not None
        and place is not EntryState.RUNNING
        and _has_minimum(charter, role.state.standing(ref))
    ):
        return PARTLY
    return STATES.get(place, WAITS)


def _has_minimum(charter: GangSpec, standing: Sequence[Pod]) -> bool:
    there = Counter(pod.pod_set for pod in standing)
    parts = charter.tree.pod_sets() if charter.tree is not None else ()
    enough = all(there[part.name] >= part.minimum for part in parts)
    return enough and 0 < charter.minimum <= len(standing)


def _sub_groups(charter: GangSpec, pods: tuple[Pod, ...]) -> Iterator[str]:
    """What a group asks for, part by part, and how many pods of each are there and have a node."""
    if charter.queue:
        lasting = ", and is not made to go" if charter.lasting else ""
        yield f"  in queue {charter.queue}{lasting}"
    for part in charter.tree.pod_sets() if charter.tree is not None else ():
        mine = [pod for pod in pods if pod.pod_set == part.name]
        level = part.locality.required or part.locality.preferred
        where = f", in one {level}" if level else ""
        for segment in part.segments:
            where += f", each {segment.size} in one {segment.level}"
        there = f"{len(mine)} there, {sum(bool(pod.node) for pod in mine)} with a node"
        yield f"  {part.name}: {there}, {part.minimum} needed{where}"


def parts_text(pods: tuple[Pod, ...], priority: int | None = None) -> dict[str, int]:
    """Equal pods together, in words."""
    found: dict[str, int] = {}
    for pod in pods:
        names = short_resources(pod.amounts)
        each = [
            f"{amount_text(name, pod.amounts[name])} {names[name]}"
            for name in sorted(pod.amounts)
            if name != PODS
        ]
        rank = pod.wants.priority if priority is None else priority
        text = f"{', '.join(each) or 'no requests'}, priority {rank}"
        found[text] = found.get(text, 0) + 1
    return found


def _outcome(role: SchedulerController, plan: Plan, ref: Ref) -> Iterator[str]:
    """What would be decided now."""
    binds = [action for action in plan.actions if isinstance(action, Bind)]
    victims = [action.pod for action in plan.actions if isinstance(action, PreemptPod) and not action.undoes]
    if binds:
        nodes = sorted({action.node for action in binds})
        yield f"now: {counted(len(binds), 'pod')} would start on {_named(nodes)}"
    for action in plan.actions:
        if isinstance(action, ReportUnschedulable):
            first, *more = role.told(ref, action.why).splitlines()
            yield f"reason: {first}"
            yield from (f"  {line}" for line in more)
            yield from too_large(role, ref)
            yield from nearest_lines(action.why.misfit)
            known = role.groups.groups.get(ref)
            if known is not None and (todo := advice(action.why, known.group)):
                yield f"what to do: {todo}"
            if action.why.pod is not None and ref.kind != "Pod":
                yield f"first pod without a place: {action.why.pod.name}"
    if victims:
        names = [f"{pod.key} (priority {pod.wants.priority}, on {pod.node})" for pod in victims]
        yield f"would have to go: {_named(names)}"


def too_large(role: SchedulerController, ref: Ref) -> list[str]:
    """A pod that asks for more than any node has; what other pods leave is no help then."""
    nodes = role.state.store.nodes.by_name.values()
    shapes = {tuple(sorted(pod.amounts.items())) for pod in role.state.waiting(ref)}
    found = [
        oversized(nodes, "", {name: one for name, one in shape if name != PODS}) for shape in sorted(shapes)
    ]
    return [oversized_text(one) for one in found if one is not None]


def nearest_lines(misfit: Misfit | None) -> Iterator[str]:
    """The domain that came closest, and what runs out there."""
    near = None if misfit is None else misfit.nearest
    if near is not None and near.domain and near.resource:
        name = short_resources([near.resource])[near.resource]
        room = f"has room for {near.fit} of {near.fit + near.short} pods"
        lacks = f"{amount_text(near.resource, near.lacking)} {name}"
        yield f"closest: {'.'.join(near.domain)} {room}; it lacks {lacks}"


def _named(names: list[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
