"""Explains one gang or pod that the scheduler places: what it lacks, and the pods it would preempt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bayplan.cli.live.scheduled_state import Scheduled, pods_by_node, since_text
from bayplan.cli.live.state import Live
from bayplan.cli.render.numa import drawn
from bayplan.dialects.kai.status.advice import advice
from bayplan.explanation.devices import asked_text, device_lines
from bayplan.explanation.reasons import FITS_NEXT, NOT_TRIED
from bayplan.explanation.text import amount_text, counted, oversized_text, short_resources, shown_name
from bayplan.model.assignment import Misfit
from bayplan.model.devices.claims import PodDevices
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.node import PODS
from bayplan.model.plan import Bind, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.pod import Pod
from bayplan.placement.cluster.oversize import oversized
from bayplan.runtime.controllers.scheduler.controller import CycleInput, SchedulerController
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.single_pod import single_pod_ref
from bayplan.state.scheduling.store import SchedulingStore

HOSTS_MAX = 16
NAMES_MAX = 8
RUNNING, PARTLY_RUNNING, PENDING = "running", "partly running", "pending"
INCOMPLETE, INVALID = "incomplete", "invalid"
STATES = {EntryState.RUNNING: RUNNING, EntryState.INCOMPLETE: INCOMPLETE}


def explain_gang(live: Live, scheduled: Scheduled, ref: Ref, *, full: bool, zones: bool) -> Iterator[str]:
    """The explanation of a gang, or of a pod that belongs to no gang, line by line."""
    controller, state = scheduled.controller, scheduled.controller.state
    spec, place = state.spec_of(ref), state.state_of(ref)
    bound, pending = state.bound(ref), state.pending(ref)
    if not bound and not pending:  # a bound pod without a gang is not in the scheduling queue
        bound = tuple(pod for key, pod in state.store.pods.items() if single_pod_ref(key) == ref and pod.node)
    yield f"{ref.kind} {ref.namespace}/{shown_name(ref)}: {state_of(controller, ref)}"
    yield from _asked(controller, ref, spec, (*bound, *pending))
    gated = len(state.store.members.get(ref, ())) - len(bound) - len(pending)
    others = f", {gated} gated or finished" if gated > 0 and ref.kind != "Pod" else ""
    yield f"  {counted(len(bound), 'pod')} with a node, {len(pending)} without{others}"
    group = spec if ref in controller.groups.groups else None  # its priority applies to all its pods
    for shape, count in parts_text(pending, None if group is None else group.priority).items():
        yield f"  {count} x {shape}"
    yield from place_lines(live, scheduled, bound, full=full)
    nodes = {pod.node for pod in bound if pod.node}
    if place not in (None, EntryState.RUNNING):
        plan = decide_now(controller, ref, live.now)
        yield from _outcome(controller, plan, ref)
        nodes |= {action.node for action in plan.actions if isinstance(action, Bind)}
    if zones:
        known = state.store.numa.reports
        yield from drawn(sorted(nodes) or sorted(known), known, {})


def place_lines(live: Live, scheduled: Scheduled, pods: Iterable[Pod], *, full: bool) -> Iterator[str]:
    """The nodes of bound pods, and since when they have been running."""
    placed = [pod for pod in pods if pod.node]
    nodes = pods_by_node(placed)
    if not nodes:
        return
    yield f"where: {scheduled.where(nodes)}"
    shown = list(nodes.items())[: None if full else HOSTS_MAX]
    yield from (f"  {node}: {counted(count, 'pod')}" for node, count in shown)
    if len(nodes) > len(shown):
        yield f"  and {counted(len(nodes) - len(shown), 'more host')}; --full names all of them"
    started = [pod.started for pod in placed if pod.started]
    yield f"running since: {since_text(live, min(started))}" if started else "running since: not started yet"


def decide_now(controller: SchedulerController, ref: Ref, now: float) -> Plan:
    """What the scheduler would decide about a gang now."""
    return controller.decide(CycleInput(controller.name_of(ref), controller.state.snapshot([ref], now)), now)


def reason_now(controller: SchedulerController, ref: Ref, now: float) -> str:
    """Why a gang would be pending after the next scheduling cycle."""
    actions = decide_now(controller, ref, now).actions
    rejections = [
        controller.message_for(ref, action.rejection)
        for action in actions
        if isinstance(action, ReportUnschedulable)
    ]
    fits = any(isinstance(action, Bind) for action in actions)
    return rejections[0] if rejections else FITS_NEXT if fits else NOT_TRIED


def _asked(
    controller: SchedulerController, ref: Ref, spec: GangSpec | None, pods: tuple[Pod, ...]
) -> Iterator[str]:
    """What the gang needs to start, and where its pods must be placed."""
    if spec is None:
        return
    extra = len(pods) - spec.minimum
    if spec.minimum > 1 or (spec.minimum and extra > 0):
        beyond = f", and takes {extra} more if there is room" if extra > 0 else ""
        yield f"  needs {counted(spec.minimum, 'pod')} at once{beyond}"
    if spec.locality.required:
        yield f"  all on nodes that share a value of {spec.locality.required}"
    if ref in controller.groups.groups or spec.quorum:
        yield from _sub_groups(spec, pods)


def state_of(controller: SchedulerController, ref: Ref) -> str:
    """The state of a gang, as shown to people."""
    spec, place = controller.state.spec_of(ref), controller.state.state_of(ref)
    if place is None:
        return RUNNING
    if spec is not None and spec.flaw:
        return INVALID
    if (
        spec is not None
        and place is not EntryState.RUNNING
        and _has_minimum(spec, controller.state.bound(ref))
    ):
        return PARTLY_RUNNING
    return STATES.get(place, PENDING)


def _has_minimum(spec: GangSpec, bound: Sequence[Pod]) -> bool:
    counts = Counter(pod.pod_set for pod in bound)
    parts = spec.tree.pod_sets() if spec.tree is not None else ()
    enough = all(counts[part.name] >= part.minimum for part in parts)
    return enough and 0 < spec.minimum <= len(bound)


def _sub_groups(spec: GangSpec, pods: tuple[Pod, ...]) -> Iterator[str]:
    """The sub-groups: how many pods each has, how many are bound, and its constraints."""
    if spec.queue:
        kept = ", not preemptible" if spec.non_preemptible else ""
        yield f"  in queue {spec.queue}{kept}"
    for part in spec.tree.pod_sets() if spec.tree is not None else ():
        mine = [pod for pod in pods if pod.pod_set == part.name]
        level = part.locality.required or part.locality.preferred
        where = f", in one {level}" if level else ""
        for segment in part.segments:
            where += f", each {segment.size} in one {segment.level}"
        counts = f"{counted(len(mine), 'pod')}, {sum(bool(pod.node) for pod in mine)} with a node"
        yield f"  {part.name}: {counts}, {part.minimum} needed{where}"


def parts_text(pods: tuple[Pod, ...], priority: int | None = None) -> dict[str, int]:
    """Requests and priority of pods → how many pods have them."""
    counts: dict[str, int] = {}
    for pod in pods:
        names = short_resources(pod.amounts)
        each = [
            f"{amount_text(name, pod.amounts[name])} {names[name]}"
            for name in sorted(pod.amounts)
            if name != PODS
        ]
        devices = pod.spec.signature.devices
        if devices is not None and devices.claims:
            each.append(f"devices by {asked_text(devices)}")
        rank = pod.spec.priority if priority is None else priority
        text = f"{', '.join(each) or 'no requests'}, priority {rank}"
        counts[text] = counts.get(text, 0) + 1
    return counts


def _outcome(controller: SchedulerController, plan: Plan, ref: Ref) -> Iterator[str]:
    """What the scheduler would decide now."""
    binds = [action for action in plan.actions if isinstance(action, Bind)]
    victims = [action.pod for action in plan.actions if isinstance(action, PreemptPod) and not action.undoes]
    if binds:
        nodes = sorted({action.node for action in binds})
        yield f"now: {counted(len(binds), 'pod')} would start on {_named(nodes)}"
    for action in plan.actions:
        if isinstance(action, ReportUnschedulable):
            first, *more = controller.message_for(ref, action.rejection).splitlines()
            yield f"reason: {first}"
            yield from (f"  {line}" for line in more)
            yield from too_large(controller, ref)
            yield from lacking_devices(controller, ref)
            yield from nearest_lines(action.rejection.misfit)
            known = controller.groups.groups.get(ref)
            if known is not None and (todo := advice(action.rejection, known.group)):
                yield f"what to do: {todo}"
            if action.rejection.pod is not None and ref.kind != "Pod":
                yield f"first pod that does not fit: {action.rejection.pod.name}"
    if victims:
        names = [f"{pod.key} (priority {pod.spec.priority}, on {pod.node})" for pod in victims]
        yield f"would preempt: {_named(names)}"


def too_large(controller: SchedulerController, ref: Ref) -> list[str]:
    """Pods that request more than any node has: no preemption helps them."""
    nodes = controller.state.store.nodes.by_name.values()
    shapes = {tuple(sorted(pod.amounts.items())) for pod in controller.state.pending(ref)}
    sizes = [
        oversized(nodes, "", {name: one for name, one in shape if name != PODS}) for shape in sorted(shapes)
    ]
    return [oversized_text(one) for one in sizes if one is not None]


def lacking_devices(controller: SchedulerController, ref: Ref) -> Iterator[str]:
    """What pending pods ask for by claim, and why nodes have no devices for them."""
    store = controller.state.store
    supply, (_, nodes) = store.devices.supply(), store.nodes.flat.view()
    pods = controller.state.pending(ref)
    if supply is not None:
        needs = (
            [_with_names(pods[0], store)] if len(pods) == 1 else [pod.spec.signature.devices for pod in pods]
        )
        for devices in dict.fromkeys(needs):
            if devices is not None:
                yield from device_lines(supply, nodes.node_index, devices)


def _with_names(pod: Pod, store: SchedulingStore) -> PodDevices | None:
    """What a pod needs; claims that it names have their names instead of what the pod calls them."""
    devices = pod.spec.signature.devices
    if devices is None:
        return None
    known = (store.devices.claims.get(key) for key in pod.spec.new_claims)
    claims = (
        one if claim is None or claim.owner == pod.uid else replace(one, key=claim.key)
        for one, claim in zip(devices.claims, known, strict=True)
    )
    return replace(devices, claims=tuple(claims))


def nearest_lines(misfit: Misfit | None) -> Iterator[str]:
    """The domain that came closest, and what it lacks."""
    near = None if misfit is None else misfit.nearest
    if near is not None and near.domain and near.resource:
        name = short_resources([near.resource])[near.resource]
        room = f"has room for {near.fit} of {near.fit + near.short} pods"
        lacks = f"{amount_text(near.resource, near.lacking)} {name}"
        yield f"closest: {'.'.join(near.domain)} {room}; it lacks {lacks}"


def _named(names: list[str]) -> str:
    more = len(names) - NAMES_MAX
    return ", ".join(names[:NAMES_MAX]) + (f" and {more} more" if more > 0 else "")
