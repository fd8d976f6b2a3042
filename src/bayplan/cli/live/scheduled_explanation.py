"""What is told of a name that no queue knows: a gang of the scheduler, a job in no line, or plain pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from bayplan.assembly.gang_api import gang_api_words, gang_versions
from bayplan.cli.live.find_gang import FoundObject
from bayplan.cli.live.gang_explanation import RUNS, gang_story, place_lines, reason_now, state_of
from bayplan.cli.live.list_scheduled import NO_WORKLOAD, gang_row, pods_row
from bayplan.cli.live.scheduled_state import (
    Scheduled,
    finished,
    held_back,
    job_ref,
    names_of,
    queue_of,
    schedulers_of,
    since_text,
)
from bayplan.cli.live.state import Live, Object
from bayplan.dialects.kai.api.hints import advise as of_group_keys
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kube.gang.objects import DIALECT as GANG_API
from bayplan.dialects.kueue.decode.scheduled_jobs import membership
from bayplan.dialects.kueue.fields.hints import advise
from bayplan.explanation.text import counted
from bayplan.model.pod import Pod
from bayplan.state.scheduling.single_pod import lone_ref

GANGS_MAX = 5


def scheduled_story(
    live: Live, scheduled: Scheduled, found: FoundObject, *, full: bool, zones: bool
) -> tuple[list[str], dict[str, Any]]:
    """Lines for people, and the facts in the words of `list gangs -o json`. Nothing is changed."""
    if found.gangs:
        lines = list(_gangs(live, scheduled, found, full=full, zones=zones))
        lines += _hints(live, scheduled, found)
        if any(ref.dialect == GANG_API for ref in found.gangs):
            lines.append(f"gang API: {gang_api_words(gang_versions(live.backend.request))}")
        return lines, asdict(gang_row(scheduled, found.gangs[0], live.now))
    if found.job is not None:
        return list(_job(live, scheduled, found.job, full=full)), {"kind": found.kind, "name": found.name}
    pods = [scheduled.role.state.store.pods[key] for key in found.pods]
    row = asdict(pods_row(scheduled, (found.kind, pods[0].key.namespace, found.name), pods, live.now))
    return list(_pods(live, scheduled, found, pods, full=full)), row


def _hints(live: Live, scheduled: Scheduled, found: FoundObject) -> Iterator[str]:
    """Keys and levels of the job that may be misspelt."""
    for ref in found.gangs:
        job = scheduled.jobs.get(ref) or found.job
        if job is not None:
            levels = {level for levels in scheduled.levels().values() for level in levels}
            yield from (f"note: {hint}" for hint in (*advise(job, levels), *of_group_keys(job)))
            return


def _gangs(live: Live, scheduled: Scheduled, found: FoundObject, *, full: bool, zones: bool) -> Iterator[str]:
    """Each gang, or if they are many how many fare how, and one of those that do not run."""
    shown = found.gangs
    if len(shown) > GANGS_MAX and not full:
        states = {ref: state_of(scheduled.role, ref) for ref in shown}
        counts = ", ".join(f"{count} {word}" for word, count in sorted(Counter(states.values()).items()))
        title = f"{found.kind} {shown[0].namespace}/{found.name}"
        yield f"{title}: {len(shown)} gangs ({counts}); --full tells of each"
        shown = tuple(ref for ref in shown if states[ref] != RUNS)[:1] or shown[:1]
    for ref in shown:
        yield from gang_story(live, scheduled, ref, full=full, zones=zones)


def _job(live: Live, scheduled: Scheduled, job: Object, *, full: bool) -> Iterator[str]:
    """A job that is in no line, and why."""
    ref, over, queue = job_ref(job), finished(job), queue_of(job)
    title = f"{ref.kind} {ref.namespace}/{ref.name}"
    pods = _pods_of_job(scheduled, job)
    if over is not None:
        yield f"{title}: finished ({over.get('type')})"
        yield f"reason: {over.get('message') or over.get('reason') or 'unknown'}"
        yield f"since: {since_text(live, seconds(str(over.get('lastTransitionTime') or '')))}"
        return
    if queue:
        yield f"{title}: waits"
        yield f"reason: it names the queue {queue} and {NO_WORKLOAD}"
    elif held_back(job):
        yield f"{title}: suspended"
        yield "reason: spec.suspend is true, so it has no pods; set it to false to start it"
    else:
        named = ", ".join(schedulers_of(job))
        yield f"{title}: not placed by Bayplan"
        yield f"reason: it names no queue, and its pods name the scheduler {named}"
        yield _adopt(live)
    yield from place_lines(live, scheduled, pods, full=full)


def _pods_of_job(scheduled: Scheduled, job: Object) -> list[Pod]:
    ref, state = job_ref(job), scheduled.role.state
    mine = [key for key, wire in scheduled.pods.items() if (membership(wire) or (None,))[0] == ref]
    return [state.store.pods[key] for key in mine if key in state.store.pods]


def _pods(
    live: Live, scheduled: Scheduled, found: FoundObject, pods: list[Pod], *, full: bool
) -> Iterator[str]:
    """Pods of which each stands for itself, or that another scheduler places."""
    placed = sum(bool(pod.node) for pod in pods)
    ours, over = [pod for pod in pods if pod.ours], all(pod.over for pod in pods)
    state = "finished" if over else "runs" if placed == len(pods) else "waits"
    yield f"{found.kind} {pods[0].key.namespace}/{found.name}: {state}"
    yield f"  {counted(placed, 'pod')} with a node, {len(pods) - placed} without; each stands for itself"
    if not ours:
        named = sorted({scheduled.pods[pod.key].spec.scheduler_name or "default-scheduler" for pod in pods})
        yield f"not placed by Bayplan: its pods name the scheduler {', '.join(named)}"
        if not over:
            yield _adopt(live)
    waiting = [pod for pod in ours if pod.waits]
    for pod in waiting[:1]:
        yield f"reason: {reason_now(scheduled.role, pod.gang or lone_ref(pod.key), live.now)}"
    yield from place_lines(live, scheduled, pods, full=full)


def _adopt(live: Live) -> str:
    return (
        f"what to do: for Bayplan to place it, set schedulerName: {names_of(live)} in the pod template,"
        " or the label kueue.x-k8s.io/queue-name"
    )
