"""Expected starts of gangs without a queue, which the scheduler places as soon as they fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bayplan.cli.live.scheduled_state import Scheduled, finished
from bayplan.cli.live.state import Live, Object
from bayplan.cli.starts.past_runs import PodRun
from bayplan.cli.starts.queued_gangs import starts_now
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.run_limits import run_limit
from bayplan.dialects.kube.fields.times import seconds
from bayplan.explanation.text import shown_name
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod
from bayplan.simulation.forecast.calibration import Calibration
from bayplan.simulation.forecast.expected_starts import ExpectedStart, ForecastInput, expected_starts
from bayplan.simulation.forecast.run_times import RunRequest, RunTimeHistory, series
from bayplan.simulation.forecast.scheduling_picture import scheduled_picture


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledForecast:
    """All that a forecast needs, independent of the state that it was read from."""

    refs: tuple[Ref, ...]  # of the gangs that wait
    asked: ForecastInput
    history: RunTimeHistory
    now: float

    def starts(self) -> dict[Ref, ExpectedStart]:
        """The expected start of each gang that waits."""
        found = expected_starts(self.asked, self.history, Calibration(), self.now)
        by_ref = zip(self.refs, self.asked.picture.waiting, strict=True)
        return {ref: found[gang.name] if gang.options else starts_now(self.now) for ref, gang in by_ref}


def scheduled_forecast(live: Live, scheduled: Scheduled, past: Iterable[PodRun] = ()) -> ScheduledForecast:
    """Read the state of the scheduler for a forecast."""
    keep_after = live.settings.profile.keep_after_seconds
    found = scheduled_picture(
        scheduled.controller.state, keep_after, lambda ref: f"{ref.namespace}/{shown_name(ref)}"
    )
    running = tuple(_request(scheduled, ref, pods) for ref, pods in found.running)
    started = [min(pod.started or pod.created or live.now for pod in pods) for _, pods in found.running]
    history = RunTimeHistory()
    for run in sorted((*past, *_finished_jobs(scheduled)), key=lambda one: one.ended):
        history.learn(run.request, max(0.0, run.ended - run.started))
    asked = ForecastInput(
        found.picture,
        running,
        np.array(started, np.float64),
        tuple(_request(scheduled, ref, pods) for ref, pods in found.waiting),
    )
    return ScheduledForecast(tuple(ref for ref, _ in found.waiting), asked, history, live.now)


def _request(scheduled: Scheduled, ref: Ref, pods: Sequence[Pod]) -> RunRequest:
    """The limit and the series of a gang: those of its job, also if a pod group stands between them."""
    job = scheduled.jobs.get(Ref("kueue", ref.kind, ref.namespace, ref.name))
    owner = scheduled.owner(pods[0].key) if job is None and pods else None
    name = ref.name
    if owner is not None:
        job = scheduled.jobs.get(Ref("kueue", owner.kind, ref.namespace, owner.name))
        name = ref.name if job is None else owner.name
    limit = None if job is None else run_limit(job)
    return RunRequest(ref.namespace, series(name), str(len(pods)), limit)


def _finished_jobs(scheduled: Scheduled) -> Iterator[PodRun]:
    """The run times of finished jobs that still exist."""
    for ref, job in scheduled.jobs.items():
        ended = finished(job)
        began = Field(job).at("status", "startTime").text()
        if ended is None or not began:
            continue
        end = seconds(str(ended.get("lastTransitionTime") or ""))
        if end >= seconds(began):
            limit, pods = run_limit(job), _pods_of(job)
            request = RunRequest(ref.namespace, series(ref.name), str(pods), limit)
            yield PodRun(request, seconds(began), end)


def _pods_of(job: Object) -> int:
    count = Field(job).at("spec", "parallelism").value
    return count if isinstance(count, int) else 1
