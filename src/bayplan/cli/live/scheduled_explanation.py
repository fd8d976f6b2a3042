"""Finds and explains what has no Workload: a gang of the scheduler, a job in no queue, or plain pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import click

from bayplan.assembly.gang_api import gang_api_words, gang_versions
from bayplan.cli.live.find_gang import POD, FoundObject, GangQuery, only_match
from bayplan.cli.live.gang_explanation import (
    PENDING,
    RUNNING,
    explain_gang,
    place_lines,
    reason_now,
    state_of,
)
from bayplan.cli.live.gangs import owner_of
from bayplan.cli.live.list_gangs import Starts
from bayplan.cli.live.list_scheduled import (
    NO_WORKLOAD,
    gang_row,
    pods_row,
    scheduled_records,
    with_starts,
)
from bayplan.cli.live.scheduled_state import (
    Scheduled,
    finished,
    is_suspended_job,
    job_ref,
    names_of,
    queue_of,
    schedulers_of,
    since_text,
)
from bayplan.cli.live.state import Live, Object
from bayplan.cli.render.expected_start import sentence
from bayplan.dialects.jobs.serving_jobs import DEPLOYMENT, REPLICA_SET
from bayplan.dialects.kai.api.hints import advise as of_group_keys
from bayplan.dialects.kai.api.names import DIALECT as KAI
from bayplan.dialects.kube.fields.closest_name import closest_names
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kube.gang.objects import DIALECT as GANG_API
from bayplan.dialects.kueue.decode.scheduled_jobs import membership
from bayplan.dialects.kueue.fields.hints import object_hints
from bayplan.explanation.text import counted, shown_name
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.state.scheduling.single_pod import single_pod_ref

GANGS_MAX = 5


def find_scheduled(live: Live, scheduled: Scheduled, query: GangQuery) -> FoundObject:
    """The one gang, job or pod that a name refers to; an error if there is none, or several."""
    matches = _gangs_and_jobs(scheduled, query) or _parts(scheduled, query)
    if not matches:
        raise click.ClickException(_not_found(live, scheduled, query))
    return only_match(query, matches)


def explain_scheduled(
    live: Live,
    scheduled: Scheduled,
    found: FoundObject,
    forecast: Callable[[], Starts],
    *,
    full: bool,
    zones: bool,
) -> tuple[list[str], dict[str, Any]]:
    """The explanation as lines, and the JSON record of `list gangs -o json`.

    `forecast` is asked for the expected starts if the gang waits.
    """
    if found.gangs:
        lines = list(_gangs(live, scheduled, found, full=full, zones=zones))
        lines += _hints(live, scheduled, found)
        if any(ref.dialect == GANG_API for ref in found.gangs):
            lines.append(f"gang API: {gang_api_words(gang_versions(live.backend.request))}")
        row = gang_row(scheduled, found.gangs[0], live.now)
        if row.state == PENDING:
            (row,) = with_starts([row], forecast())
            if row.expected is not None:
                after = next((at for at, line in enumerate(lines, 1) if line.startswith("reason:")), 1)
                lines.insert(after, f"expected start: {sentence(row.expected, live.now)}")
        return lines, scheduled_records([row], live.now)[0]
    if found.job is not None:
        return list(_job(live, scheduled, found.job, full=full)), {"kind": found.kind, "name": found.name}
    pods = [scheduled.controller.state.store.pods[key] for key in found.pods]
    row = pods_row(scheduled, (found.kind, pods[0].key.namespace, found.name), pods, live.now)
    return list(_pods(live, scheduled, found, pods, full=full)), scheduled_records([row], live.now)[0]


def _gangs_and_jobs(scheduled: Scheduled, query: GangQuery) -> list[FoundObject]:
    """Gangs and jobs of that name; a job whose pods were put into groups is explained by those groups."""
    state = scheduled.controller.state
    known = {entry.ref: None for entry in state.entries()} | dict.fromkeys(state.store.specs)
    here = [ref for ref in known if ref.namespace == query.namespace and query.accepts(ref.kind)]
    by_kind: dict[str, list[Ref]] = {}
    for ref in here:
        if query.name in (ref.name, shown_name(ref), ref.name.partition("/")[0]):
            by_kind.setdefault(ref.kind, []).append(ref)
    for ref in scheduled.jobs:
        if (ref.namespace, ref.name) == (query.namespace, query.name) and query.accepts(ref.kind):
            by_kind.setdefault(ref.kind, [])
    groups = tuple(
        ref for ref in known if ref.namespace == query.namespace and _is_group_of(scheduled, ref, query.name)
    )
    matches = []
    for kind, refs in by_kind.items():
        job = scheduled.jobs.get(Ref("kueue", kind, query.namespace, query.name))
        if job is not None and groups and not any(state.store.members.get(ref) for ref in refs):
            matches.append(FoundObject(kind, query.name, gangs=groups))
        else:
            matches.append(FoundObject(kind, query.name, gangs=tuple(refs), job=job))
    if not matches and groups:
        matches.append(FoundObject("PodGroup", query.name, gangs=groups))
    return matches or _pods_of_owner(scheduled, query)


def _is_group_of(scheduled: Scheduled, ref: Ref, job: str) -> bool:
    """Whether a pod group was created for a job of that name."""
    known = scheduled.controller.groups.groups.get(ref) if ref.dialect == KAI else None
    return known is not None and known.group is not None and known.group.is_for_owner(job)


def _pods_of_owner(scheduled: Scheduled, query: GangQuery) -> list[FoundObject]:
    """Pods whose owner has no gang, such as a ReplicaSet or the Deployment above it."""
    by_kind: dict[str, list[PodKey]] = {}
    for key, wire in scheduled.pods.items():
        owner = scheduled.owner(key)
        if owner is None or key.namespace != query.namespace or wire.status.phase in ("Succeeded", "Failed"):
            continue
        deployment = owner.name.rpartition("-")[0] if owner.kind == REPLICA_SET.kind else ""
        if owner.name == query.name and query.accepts(owner.kind):
            by_kind.setdefault(owner.kind, []).append(key)
        elif deployment == query.name and query.accepts(DEPLOYMENT.kind):
            by_kind.setdefault(DEPLOYMENT.kind, []).append(key)
    return [FoundObject(kind, query.name, pods=tuple(keys)) for kind, keys in by_kind.items()]


def _parts(scheduled: Scheduled, query: GangQuery) -> list[FoundObject]:
    """The gang that a sub-group or a pod of that name belongs to."""
    state = scheduled.controller.state
    gangs = [
        ref
        for ref, spec in state.store.specs.items()
        if ref.namespace == query.namespace and _has_sub_group(spec, query.name)
    ]
    if gangs and query.kind != POD:
        return [FoundObject(gangs[0].kind, query.name, gangs=tuple(gangs))]
    pod = state.store.pods.get(PodKey(query.namespace, query.name)) if query.accepts(POD) else None
    if pod is None:
        return []
    if pod.gang is not None:
        return [FoundObject(POD, query.name, gangs=(pod.gang,))]
    if pod.ours and not pod.finished:
        return [FoundObject(POD, query.name, gangs=(single_pod_ref(pod.key),))]
    return [FoundObject(POD, query.name, pods=(pod.key,))]


def _has_sub_group(spec: GangSpec, name: str) -> bool:
    """Whether a gang consists of groups, one of which has that name."""
    if spec.tree is None or not spec.quorum:
        return False
    return any(part.name == name for part in spec.tree.pod_sets())


def _not_found(live: Live, scheduled: Scheduled, query: GangQuery) -> str:
    what = query.kind or "Workload, pod group, job or pod"
    text = f"there is no {what} {query}"
    names = list(_names(live, scheduled))
    elsewhere = sorted({namespace for namespace, name in names if name == query.name})
    near = closest_names(query.name, (name for namespace, name in names if namespace == query.namespace))
    if elsewhere:
        text += f"; there is one in namespace {', '.join(elsewhere[:3])}"
    elif near:
        text += f"; did you mean {' or '.join(near)}?"
    text += f"; see: bayplan list gangs -n {query.namespace}"
    return f"{text}; {live.no_queues}" if live.no_queues else text


def _names(live: Live, scheduled: Scheduled) -> Iterable[tuple[str, str]]:
    """Namespace and name of everything that can be explained."""
    for ref, one in live.workloads.items():
        yield ref.namespace, ref.name
        yield ref.namespace, owner_of(one).partition("/")[2]
    for ref in (*scheduled.jobs, *scheduled.controller.state.store.specs):
        yield ref.namespace, ref.name.partition("/")[0]
    for key in scheduled.pods:
        yield key.namespace, key.name


def _hints(live: Live, scheduled: Scheduled, found: FoundObject) -> Iterator[str]:
    """Labels, annotations and levels of the job that may be misspelt."""
    for ref in found.gangs:
        job = scheduled.jobs.get(ref) or found.job
        if job is not None:
            levels = {level for levels in scheduled.levels().values() for level in levels}
            yield from (f"note: {hint}" for hint in (*object_hints(job, levels), *of_group_keys(job)))
            return


def _gangs(live: Live, scheduled: Scheduled, found: FoundObject, *, full: bool, zones: bool) -> Iterator[str]:
    """Each gang; if there are many, how many are in each state, and one that does not run."""
    shown = found.gangs
    if len(shown) > GANGS_MAX and not full:
        states = {ref: state_of(scheduled.controller, ref) for ref in shown}
        counts = ", ".join(f"{count} {state}" for state, count in sorted(Counter(states.values()).items()))
        title = f"{found.kind} {shown[0].namespace}/{found.name}"
        yield f"{title}: {len(shown)} gangs ({counts}); --full explains each"
        shown = tuple(ref for ref in shown if states[ref] != RUNNING)[:1] or shown[:1]
    for ref in shown:
        yield from explain_gang(live, scheduled, ref, full=full, zones=zones)


def _job(live: Live, scheduled: Scheduled, job: Object, *, full: bool) -> Iterator[str]:
    """A job that has no gang, and why."""
    ref, ended, queue = job_ref(job), finished(job), queue_of(job)
    title = f"{ref.kind} {ref.namespace}/{ref.name}"
    pods = _pods_of_job(scheduled, job)
    if ended is not None:
        yield f"{title}: finished ({ended.get('type')})"
        yield f"reason: {ended.get('message') or ended.get('reason') or 'unknown'}"
        yield f"since: {since_text(live, seconds(str(ended.get('lastTransitionTime') or '')))}"
        return
    if queue:
        yield f"{title}: pending"
        yield f"reason: it names the queue {queue} and {NO_WORKLOAD}"
    elif is_suspended_job(job):
        yield f"{title}: suspended"
        yield "reason: spec.suspend is true, so it has no pods; set it to false to start it"
    else:
        named = ", ".join(schedulers_of(job))
        yield f"{title}: not scheduled by Bayplan"
        yield f"reason: it names no queue, and its pods name the scheduler {named}"
        yield _adopt(live)
    yield from place_lines(live, scheduled, pods, full=full)


def _pods_of_job(scheduled: Scheduled, job: Object) -> list[Pod]:
    ref, state = job_ref(job), scheduled.controller.state
    keys = [key for key, wire in scheduled.pods.items() if (membership(wire) or (None,))[0] == ref]
    return [state.store.pods[key] for key in keys if key in state.store.pods]


def _pods(
    live: Live, scheduled: Scheduled, found: FoundObject, pods: list[Pod], *, full: bool
) -> Iterator[str]:
    """Pods that belong to no gang, or that another scheduler places."""
    placed = sum(bool(pod.node) for pod in pods)
    ours, ended = [pod for pod in pods if pod.ours], all(pod.finished for pod in pods)
    state = "finished" if ended else RUNNING if placed == len(pods) else "pending"
    yield f"{found.kind} {pods[0].key.namespace}/{found.name}: {state}"
    yield f"  {counted(placed, 'pod')} with a node, {len(pods) - placed} without; each is scheduled alone"
    if not ours:
        named = sorted({scheduled.pods[pod.key].spec.scheduler_name or "default-scheduler" for pod in pods})
        yield f"not scheduled by Bayplan: its pods name the scheduler {', '.join(named)}"
        if not ended:
            yield _adopt(live)
    pending = [pod for pod in ours if pod.pending]
    for pod in pending[:1]:
        yield f"reason: {reason_now(scheduled.controller, pod.gang or single_pod_ref(pod.key), live.now)}"
    yield from place_lines(live, scheduled, pods, full=full)


def _adopt(live: Live) -> str:
    return (
        f"what to do: for Bayplan to schedule it, set schedulerName: {names_of(live)} in the pod template,"
        " or the label kueue.x-k8s.io/queue-name"
    )
