"""What the scheduler makes of one gang or pod right now: what it lacks, and who would have to go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bayplan.backends.remote.backend import RemoteBackend, connect
from bayplan.cli.gang_api import gang_api_words, gang_versions
from bayplan.cli.live_state import Target, pages
from bayplan.cli.words import amount_text, counted, short_resources, shown_name
from bayplan.cli.zone_drawing import drawn
from bayplan.dialects.api import Event, Happened
from bayplan.dialects.errors import NotServed, Trouble
from bayplan.dialects.kai.advice import advice
from bayplan.dialects.kai.names import DIALECT as KAI
from bayplan.dialects.kai.names import is_named_after
from bayplan.model.assignment import Misfit
from bayplan.model.charter import Charter
from bayplan.model.gang import Ref
from bayplan.model.node import PODS
from bayplan.model.plan import Bind, Displace, Plan, Refuse
from bayplan.model.pod import Pod
from bayplan.runtime.scheduler_role import SchedulerRole, Turn
from bayplan.state.line import Place

NAMES_MAX = 8
STATES = {Place.RUNNING: "runs", Place.INCOMPLETE: "not complete"}


def scheduled_story(target: Target, text: str, *, zones: bool = False) -> list[str] | None:
    """All that can be said of the gangs and pods of that name; None if there are none. Nothing is changed."""
    try:
        backend = connect(target.kubeconfig, target.context)
    except Trouble:
        return None  # whoever asked first has told
    try:
        namespace, _, name = text.partition("/") if "/" in text else ("", "", text)
        namespace = namespace or target.namespace or backend.access.namespace
        role = SchedulerRole(profiles=target.settings.profiles, zone_care=target.settings.zone_care)
        _read(backend, role)
        meant, now = _meant(role, namespace, name), target.clock.wall()
        found = [line for ref in meant for line in _story(role, ref, now, zones=zones)]
        if any(ref.dialect != KAI for ref in meant):
            found.append(f"gang API: {gang_api_words(gang_versions(backend.request))}")
        return found or None
    except Trouble:
        return None
    finally:
        backend.close(0)


def _read(backend: RemoteBackend, role: SchedulerRole) -> None:
    for kind in role.kinds:
        try:
            listed: list[Any] = list(pages(backend, kind))
        except NotServed:
            if not kind.optional:
                raise
            continue
        for one in listed:
            role.fold(role.decode(Event(Happened.SEEN, kind, one)))
    role.fold(role.gathered())


def _meant(role: SchedulerRole, namespace: str, name: str) -> list[Ref]:
    """A group, the copies of the groups of a Workload, a job, or a pod; a pod of a gang stands for it.

    So does a group that is a part of another one. A job that was put into groups stands for them.
    """
    state = role.state
    known = {entry.ref: None for entry in state.entries()} | dict.fromkeys(state.charters)
    here = [ref for ref in known if ref.namespace == namespace]
    exact = [ref for ref in here if name in (ref.name, shown_name(ref), ref.name.partition("/")[0])]
    exact = exact or [ref for ref in here if _has_part(state.charters.get(ref), name)]
    if not any(state.members.get(ref) for ref in exact):
        exact = [ref for ref in here if ref.dialect == KAI and is_named_after(ref.name, name)] or exact
    by_pod = [pod.gang for key, pod in state.pods.items() if (key.namespace, key.name) == (namespace, name)]
    return exact or [ref for ref in by_pod if ref is not None]


def _has_part(charter: Charter | None, name: str) -> bool:
    """Whether it is a gang of groups, and one of them has that name."""
    if charter is None or charter.tree is None or not charter.quorum:
        return False
    return any(part.name == name for part in charter.tree.pod_sets())


def _story(role: SchedulerRole, ref: Ref, now: float, *, zones: bool) -> Iterator[str]:
    state = role.state
    charter, place = state.charter_of(ref), state.place_of(ref)
    standing, waiting = state.standing(ref), state.waiting(ref)
    yield f"{ref.kind} {ref.namespace}/{shown_name(ref)}: {_state(charter, place, standing)}"
    extra = len(standing) + len(waiting) - charter.minimum if charter is not None else 0
    if charter is not None and (charter.minimum > 1 or (charter.minimum and extra > 0)):
        beyond = f", and takes {extra} more if there is room" if extra > 0 else ""
        yield f"  needs {counted(charter.minimum, 'pod')} at once{beyond}"
    if charter is not None and charter.locality.required:
        yield f"  all on nodes that share a value of {charter.locality.required}"
    if charter is not None and (ref in role.groups.groups or charter.quorum):
        yield from _sub_groups(charter, (*standing, *waiting))
    gated = len(state.members.get(ref, ())) - len(standing) - len(waiting)
    held = f", {gated} are held back or over" if gated > 0 and ref.kind != "Pod" else ""
    yield f"  {counted(len(standing), 'pod')} with a node, {len(waiting)} without{held}"
    group = charter if ref in role.groups.groups else None  # its priority is that of all its pods
    for shape, count in _parts(waiting, None if group is None else group.priority).items():
        yield f"  {count} x {shape}"
    nodes = {pod.node for pod in standing if pod.node}
    if place not in (None, Place.RUNNING):
        plan = role.decide(Turn(role.name_of(ref), state.look([ref], now)), now)
        yield from _outcome(role, plan, ref)
        nodes |= {action.node for action in plan.actions if isinstance(action, Bind)}
    if zones:
        known = state.zones.heard
        yield from drawn(sorted(nodes) or sorted(known), known, {})


def _state(charter: Charter | None, place: Place | None, standing: Sequence[Pod]) -> str:
    """How a gang fares, in a few words."""
    if place is None:
        return "runs"
    if charter is not None and charter.flaw:
        return "cannot start as it is written"
    if charter is not None and place is not Place.RUNNING and _has_minimum(charter, standing):
        return "runs, and more of its pods wait"
    return STATES.get(place, "waits")


def _has_minimum(charter: Charter, standing: Sequence[Pod]) -> bool:
    there = Counter(pod.pod_set for pod in standing)
    parts = charter.tree.pod_sets() if charter.tree is not None else ()
    enough = all(there[part.name] >= part.minimum for part in parts)
    return enough and 0 < charter.minimum <= len(standing)


def _sub_groups(charter: Charter, pods: tuple[Pod, ...]) -> Iterator[str]:
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


def _parts(pods: tuple[Pod, ...], priority: int | None = None) -> dict[str, int]:
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


def _outcome(role: SchedulerRole, plan: Plan, ref: Ref) -> Iterator[str]:
    """What would be decided now."""
    binds = [action for action in plan.actions if isinstance(action, Bind)]
    victims = [action.pod for action in plan.actions if isinstance(action, Displace) and not action.undoes]
    if binds:
        nodes = sorted({action.node for action in binds})
        yield f"now: {counted(len(binds), 'pod')} would start on {_named(nodes)}"
    for action in plan.actions:
        if isinstance(action, Refuse):
            first, *more = role.told(ref, action.why).splitlines()
            yield f"reason: {first}"
            yield from (f"  {line}" for line in more)
            yield from _nearest(action.why.misfit)
            known = role.groups.groups.get(ref)
            if known is not None and (todo := advice(action.why, known.group)):
                yield f"what to do: {todo}"
            if action.why.pod is not None and ref.kind != "Pod":
                yield f"first pod without a place: {action.why.pod.name}"
    if victims:
        names = [f"{pod.key} (priority {pod.wants.priority}, on {pod.node})" for pod in victims]
        yield f"would have to go: {_named(names)}"


def _nearest(misfit: Misfit | None) -> Iterator[str]:
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
