"""Expected starts of the queued gangs of a cluster, from limits and past runs, corrected by past errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bayplan.cli.live.gangs import ClusterOutlook, named, owner_of
from bayplan.cli.live.state import Live, Object
from bayplan.cli.starts.past_runs import PastRun, limits_of_jobs, past_runs
from bayplan.dialects.kube.fields.run_limits import annotated_limit, run_limit
from bayplan.dialects.kueue.decode.scheduled_jobs import JOB_KINDS
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.gang import Ref
from bayplan.model.plan import EvictGang
from bayplan.model.queued_gang import QueuedGang
from bayplan.simulation.forecast.admission_picture import AdmissionPicture
from bayplan.simulation.forecast.calibration import Calibration
from bayplan.simulation.forecast.expected_starts import ExpectedStart, ForecastInput, expected_starts
from bayplan.simulation.forecast.forward_run import NEVER, QueuePicture
from bayplan.simulation.forecast.hindcast import Known, PastCluster, PastGang, hindcasts
from bayplan.simulation.forecast.run_times import RunRequest, RunTimeHistory, series
from bayplan.state.admission.state import AdmissionState

HINDCASTS_MAX, HINDCAST_STEPS = 60, 2000
"""Past gangs for which a forecast is made at once, and with many gangs the gangs of all of them together."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits of gangs by what states them: the Workload, its job, its queues."""

    workloads: Mapping[Ref, Object]
    jobs: Mapping[tuple[str, str, str], Object]
    queues: Mapping[tuple[str, str], float]  # namespace ("" for a ClusterQueue) and name

    def of(self, gang: QueuedGang, queue: str) -> float | None:
        """The shortest limit of a gang and its job; without one the default of its queue."""
        ref = gang.gang.source
        workload = self.workloads.get(ref, {})
        kind, _, name = owner_of(workload).partition("/")
        job = self.jobs.get((kind, ref.namespace, name), {})
        own = [limit for one in (workload, job) if (limit := run_limit(one)) is not None]
        default = self.queues.get(gang.namespace_queue) or self.queues.get(("", queue))
        return min(own, default=default)


def read_limits(live: Live) -> RunLimits:
    """The limits that the objects of a cluster state."""
    kinds = {owner_of(one).partition("/")[0] for one in live.workloads.values()}
    jobs = dict(limits_of_jobs(live, {kind: JOB_KINDS[kind] for kind in sorted(kinds & JOB_KINDS.keys())}))
    queues: dict[tuple[str, str], float] = {}
    for known in (api_kinds.LOCAL_QUEUES, api_kinds.CLUSTER_QUEUES):
        for one in () if live.no_queues else live.listed(known):
            if (limit := annotated_limit(one)) is not None:
                meta = one["metadata"]
                queues[meta.get("namespace", ""), meta["name"]] = limit
    return RunLimits(live.workloads, jobs, queues)


def outlook_starts(
    live: Live, cluster: ClusterOutlook, journal: Iterable[PastRun] = (), known: Known | None = None
) -> dict[Ref, ExpectedStart]:
    """The expected start of every gang that waits; the gangs that fit now, or preempt, start now.

    `known` keeps what past gangs were forecast from one call to the next.
    """
    with live.progress.stage("forecasting starts"):
        found = queued_starts(live, cluster.then.state, journal, known)
    found |= {ref: starts_now(live.now) for ref in cluster.next}
    for facts in cluster.gangs:
        if facts.forecast is not None and facts.forecast.victims:
            found[facts.queued_gang.gang.source] = starts_now(live.now, facts.forecast.victims)
    return found


def starts_now(now: float, victims: Iterable[EvictGang] = ()) -> ExpectedStart:
    """The start of a gang that fits now, or as soon as the gangs that it preempts have stopped."""
    return ExpectedStart(now, now, now, now, after=tuple(named(victim.gang) for victim in victims))


def queued_starts(
    live: Live, state: AdmissionState, journal: Iterable[PastRun] = (), known: Known | None = None
) -> dict[Ref, ExpectedStart]:
    """The expected start of each pending gang of `state`: of the cluster after what fits now is admitted."""
    pending = sorted(
        (
            entry
            for ref, entry in state.pending.entries.items()
            if ref not in state.usage.by_gang and _waits(entry.queued_gang, entry.queue)
        ),
        key=lambda entry: entry.rank,
    )
    if not pending:
        return {}
    limits = read_limits(live)
    past = past_runs(live, journal)
    gangs = [*(entry.queued_gang for entry in pending), *(run.gang for run in past)]
    picture = AdmissionPicture(state, gangs)
    waiting = [
        picture.waiting(one.queued_gang, named(one.queued_gang.gang.source), one.queue) for one in pending
    ]
    admitted = list(state.usage.by_gang.items())
    running = [picture.running(named(ref), usage) for ref, usage in admitted]
    ended = [_past_gang(picture, run, limits, state) for run in past]
    cluster = PastCluster(picture.capacity(running), picture.limits(), picture.strict())
    asked = ForecastInput(
        QueuePicture(cluster.capacity, cluster.limits, tuple(running), tuple(waiting), cluster.strict),
        tuple(_request(usage.queued_gang, usage.queue, limits) for _, usage in admitted),
        np.array([_started(usage.queued_gang, live.now) for _, usage in admitted]),
        tuple(_request(entry.queued_gang, entry.queue, limits) for entry in pending),
    )
    most = min(HINDCASTS_MAX, HINDCAST_STEPS // (len(running) + len(waiting)))
    calibration = Calibration(hindcasts(ended, cluster, {} if known is None else known, most))
    by_name = expected_starts(asked, _history(ended), calibration, live.now)
    return {
        entry.queued_gang.gang.source: by_name[gang.name]
        for entry, gang in zip(pending, waiting, strict=True)
    }


def _waits(gang: QueuedGang, queue: str) -> bool:
    return gang.active and gang.admission is None and bool(queue)


def _started(gang: QueuedGang, now: float) -> float:
    """Since when a gang runs; one that would be admitted now has not started yet."""
    return min(gang.reserved or now, now)


def _request(gang: QueuedGang, queue: str, limits: RunLimits) -> RunRequest:
    ref = gang.gang.source
    job = owner_of(limits.workloads.get(ref, {})).partition("/")[2]
    owner = "/".join(gang.namespace_queue)
    return RunRequest(owner, series(job or ref.name), gang.shape, limits.of(gang, queue))


def _past_gang(picture: AdmissionPicture, run: PastRun, limits: RunLimits, state: AdmissionState) -> PastGang:
    queue = run.gang.admission.queue if run.gang.admission is not None else state.config.queue_of(run.gang)
    waiting = picture.waiting(run.gang, named(run.gang.gang.source), queue)
    request = _request(run.gang, queue, limits)
    return PastGang(waiting, request, run.gang.queued, run.started, run.ended or NEVER)


def _history(past: Sequence[PastGang]) -> RunTimeHistory:
    history = RunTimeHistory()
    for one in sorted((one for one in past if one.ended < NEVER), key=lambda one: one.ended):
        history.learn(one.request, one.ended - one.started)
    return history
