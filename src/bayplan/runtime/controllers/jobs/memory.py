"""What was worked out from jobs: their errors, and the Workloads they should have.

A job is reconciled more often than it changes: whenever its Workload changes, or a write has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bayplan.dialects.jobs.part import Find
from bayplan.runtime.core.object_cache import Object

REMEMBERED_MAX = 2048  # jobs; a Workload takes some kilobytes
T = TypeVar("T")
JobKey = tuple[str, str, str]  # kind, namespace, name
LookUp = tuple[str, str, str]  # the same of what a job refers to


@dataclass(frozen=True, slots=True)
class _Answer:
    """What was worked out, and what was looked up for it."""

    value: Any
    found: dict[LookUp, object]

    def holds(self, find: Find) -> bool:
        """Whether every look-up still finds the same object."""
        return all(find(*asked) is found for asked, found in self.found.items())


@dataclass(frozen=True, slots=True)
class _Version:
    """One version of a job. The cache of jobs has another object for every version."""

    job: Object
    answers: dict[str, _Answer] = field(default_factory=dict)


class JobMemory:
    """Answers about the last version of each of many jobs. They are shared, so they must not be changed."""

    def __init__(self) -> None:
        self._versions: dict[JobKey, _Version] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def recall(self, name: str, job: Object, find: Find, work: Callable[[Find], T]) -> T:
        """The answer of this name about a job, worked out again if the job or what it refers to changed.

        An error is raised each time.
        """
        meta = job["metadata"]
        unit = (job["kind"], meta.get("namespace") or "default", meta["name"])
        version = self._versions.get(unit)
        if version is None or version.job is not job:
            version = self._newest(unit, job)
        known = version.answers.get(name)
        if known is None or not known.holds(find):
            looked_up: dict[LookUp, object] = {}

            def noted(kind: str, namespace: str, name: str) -> object:
                found = looked_up[kind, namespace, name] = find(kind, namespace, name)
                return found

            known = version.answers[name] = _Answer(work(noted), looked_up)
        value: T = known.value
        return value

    def _newest(self, unit: JobKey, job: Object) -> _Version:
        """An empty version; the job that has been unchanged for longest makes room for it."""
        self._versions.pop(unit, None)
        if len(self._versions) >= REMEMBERED_MAX:
            del self._versions[next(iter(self._versions))]
        version = self._versions[unit] = _Version(job)
        return version

    def forget(self, unit: JobKey) -> None:
        """The job was deleted."""
        self._versions.pop(unit, None)
