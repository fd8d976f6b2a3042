"""Reading the status of jobs: finished, active, pods ready, pods reclaimable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from bayplan.dialects.jobs.part import MAIN_POD_SET, RAY_SINGLES, JobPart
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.whole_numbers import whole_number

Counts = dict[str, int]


@dataclass(frozen=True, slots=True)
class JobEnd:
    """How a job finished."""

    succeeded: bool
    message: str = ""


def _no_counts(job: Field, parts: Sequence[JobPart]) -> Counts:
    return {}


def _none_left(job: Field, parts: Sequence[JobPart]) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class JobStatusReader:
    """How to read the status of one kind of job."""

    ended: Callable[[Field], JobEnd | None]
    active: Callable[[Field], bool]  # pods may exist that hold capacity
    ready: Callable[[Field, Sequence[JobPart]], bool]
    reclaimable: Callable[[Field, Sequence[JobPart]], Counts] = _no_counts  # pods that will not run again
    existing_pods: Callable[[Field, Sequence[JobPart]], int] = (
        _none_left  # existing pods, if it can scale down
    )


def condition_holds(job: Field, *kinds: str) -> Field | None:
    """The first condition of these kinds that is true."""
    for condition in job.at("status", "conditions").items():
        if condition.at("type").text() in kinds and condition.at("status").text() == "True":
            return condition
    return None


def _by_condition(good: str, bad: str = "Failed") -> Callable[[Field], JobEnd | None]:
    """Reads how a job finished from two condition types."""

    def read(job: Field) -> JobEnd | None:
        condition = condition_holds(job, good, bad)
        if condition is None:
            return None
        return JobEnd(condition.at("type").text() == good, condition.at("message").text())

    return read


def _holding(kind: str) -> Callable[[Field, Sequence[JobPart]], bool]:
    return lambda job, parts: condition_holds(job, kind) is not None


def _never(job: Field) -> JobEnd | None:
    return None


# ── Job ────────────────────────────────────────────────────────────────────────────────────────────


def _job_ready(job: Field, parts: Sequence[JobPart]) -> bool:
    status = job.at("status")
    uncounted = len(status.at("uncountedTerminatedPods", "succeeded").items())
    ready = status.at("succeeded").integer() + status.at("ready").integer() + uncounted
    return ready >= sum(part.count for part in parts)


def _job_reclaimable(job: Field, parts: Sequence[JobPart]) -> Counts:
    spec, status = job.at("spec"), job.at("status")
    parallelism = spec.at("parallelism").integer(default=1)
    completions = spec.at("completions").integer(default=parallelism)
    finished = status.at("succeeded").integer()
    if spec.at("completionMode").text() == "Indexed":
        indexes = (status.at("completedIndexes").text(), status.at("failedIndexes").text())
        finished = _distinct((run for text in indexes for run in _runs(text)), completions)
    left = max(completions - finished, 0)
    return {MAIN_POD_SET: parallelism - left} if parallelism > 1 and finished and left < parallelism else {}


def _runs(text: str) -> Iterator[tuple[int, int]]:
    """First and last number of each range in a list like 1,3-5; unreadable ranges are skipped."""
    for item in text.split(",") if text else ():
        start, dash, stop = item.partition("-")
        first, last = whole_number(start), whole_number(stop if dash else start)
        if first is not None and last is not None:
            yield first, last


def _distinct(runs: Iterable[tuple[int, int]], end: int) -> int:
    """How many numbers below `end` are in the ranges. Ranges may be long, so they are not enumerated."""
    count, reached = 0, 0
    for first, last in sorted(runs):
        first, stop = max(first, reached), min(last + 1, end)
        if first < stop:
            count, reached = count + stop - first, stop
    return count


def _job_left(job: Field, parts: Sequence[JobPart]) -> int:
    return job.at("status", "active").integer() + job.at("status", "terminating").integer()


JOB = JobStatusReader(
    _by_condition("Complete"),
    lambda job: job.at("status", "active").integer() != 0,
    _job_ready,
    _job_reclaimable,
    _job_left,
)

# ── JobSet and TrainJob ────────────────────────────────────────────────────────────────────────────


def _of_jobs(key: str, done: str) -> JobStatusReader:
    """Status of a JobSet or TrainJob, which counts jobs by pod set name."""

    def active(job: Field) -> bool:
        return any(one.at("active").integer() > 0 for one in job.at("status", key).items())

    def ready(job: Field, parts: Sequence[JobPart]) -> bool:
        wanted = sum(part.subgroup_count or 0 for part in parts)
        statuses = job.at("status", key).items()
        return wanted == sum(one.at("ready").integer() + one.at("succeeded").integer() for one in statuses)

    def reclaimable(job: Field, parts: Sequence[JobPart]) -> Counts:
        succeeded = {
            one.at("name").text(): one.at("succeeded").integer() for one in job.at("status", key).items()
        }
        return {
            part.name: succeeded[part.name] * (part.natural_segment or 0)
            for part in parts
            if 0 < succeeded.get(part.name, 0) <= (part.subgroup_count or 0)
        }

    return JobStatusReader(_by_condition(done), active, ready, reclaimable)


JOB_SET = _of_jobs("replicatedJobsStatus", "Completed")
TRAIN_JOB = _of_jobs("jobsStatus", "Complete")

# ── training operators ─────────────────────────────────────────────────────────────────────────────


def _replicas_active(job: Field) -> bool:
    return any(one.at("active").integer() != 0 for _, one in job.at("status", "replicaStatuses").entries())


TRAINING = JobStatusReader(_by_condition("Succeeded"), _replicas_active, _holding("Running"))

# ── Ray ────────────────────────────────────────────────────────────────────────────────────────────


def _ray_job_ended(job: Field) -> JobEnd | None:
    status = job.at("status")
    if status.at("jobDeploymentStatus").text() not in ("Failed", "Complete"):
        return None
    return JobEnd(status.at("jobStatus").text() == "SUCCEEDED", status.at("message").text())


def _cluster_ready(job: Field, parts: Sequence[JobPart] = ()) -> bool:
    return job.at("status", "state").text() == "ready"


def _ray_left(*path: str) -> Callable[[Field, Sequence[JobPart]], int]:
    """Workers are counted in the status; head and submitter always exist."""

    def left(job: Field, parts: Sequence[JobPart]) -> int:
        others = sum(part.count for part in parts if part.name in RAY_SINGLES)
        return others + job.at("status", *path, "availableWorkerReplicas").integer()

    return left


RAY_JOB = JobStatusReader(
    _ray_job_ended,
    lambda job: job.at("status", "jobDeploymentStatus").text() not in ("", "Suspended"),
    lambda job, parts: job.at("status", "rayClusterStatus", "state").text() == "ready",
    existing_pods=_ray_left("rayClusterStatus"),
)
RAY_CLUSTER = JobStatusReader(_never, _cluster_ready, _cluster_ready, existing_pods=_ray_left())
RAY_SERVICE = JobStatusReader(
    _never, lambda job: condition_holds(job, "Ready") is not None, _holding("Ready")
)

# ── others ─────────────────────────────────────────────────────────────────────────────────────────


def _wrapper_ended(job: Field) -> JobEnd | None:
    match job.at("status", "phase").text():
        case "Succeeded":
            return JobEnd(True, "AppWrapper finished successfully")
        case "Failed" if condition_holds(job, "ResourcesDeployed") is None:
            return JobEnd(False, "AppWrapper failed")
    return None


APP_WRAPPER = JobStatusReader(
    _wrapper_ended, lambda job: condition_holds(job, "QuotaReserved") is not None, _holding("PodsReady")
)


def _spark_state(job: Field) -> str:
    return job.at("status", "applicationState", "state").text()


def _spark_ended(job: Field) -> JobEnd | None:
    if _spark_state(job) not in ("COMPLETED", "FAILED", "SUBMISSION_FAILED"):
        return None
    message = job.at("status", "applicationState", "errorMessage").text()
    return JobEnd(_spark_state(job) == "COMPLETED", message)


def _spark_ready(job: Field, parts: Sequence[JobPart]) -> bool:
    states = [state.text() for _, state in job.at("status", "executorState").entries()]
    up = sum(state in ("RUNNING", "COMPLETED") for state in states)
    return _spark_state(job) == "RUNNING" and up >= job.at("spec", "executor", "instances").integer()


SPARK = JobStatusReader(_spark_ended, lambda job: _spark_state(job) == "RUNNING", _spark_ready)
