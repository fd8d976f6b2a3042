"""The pods, with their claims, that controllers would create for a job, for a plan: nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bayplan.backends.fake_controllers.device_claims import CLAIMS, TEMPLATES, claim_for
from bayplan.backends.fake_controllers.job_sets import reconcile_job_set
from bayplan.backends.fake_controllers.jobs import reconcile_job
from bayplan.backends.fake_controllers.objects import JOB_SETS, JOBS, name_of, owner_reference
from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.jobs.kinds import KINDS, copies, parts
from bayplan.dialects.jobs.part import Find
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import timestamp

Object = dict[str, Any]
PODS_MAX = 20_000
DEVICE_KINDS = (CLAIMS, TEMPLATES)
"""Kinds that pods refer to for devices; such objects may be in the same files."""
UID = "planned-"
"""The prefix of the uids of objects that exist only in a plan."""


def as_created(obj: Object, number: int, now: float) -> Object:
    """An object as it is right after its creation: with a uid and a creation timestamp."""
    meta = {**obj["metadata"], "uid": f"{UID}{number}", "creationTimestamp": timestamp(now)}
    return {**{key: value for key, value in obj.items() if key != "status"}, "metadata": meta}


def pod_count(job: Field, find: Find) -> int:
    """How many pods a job of a known kind has at once."""
    return sum(part.count for part in parts(job, find)) * copies(job)


def job_pods(job: Object, find: Find, now: float) -> Iterator[Object]:
    """The pods of a created job, as if it were not suspended."""
    when = timestamp(now)
    if KINDS[job["kind"]].is_pod:
        yield job
    elif job["kind"] == JOBS.kind:
        yield from _created(reconcile_job(started(job), [], when))
    elif job["kind"] == JOB_SETS.kind:
        jobs = _created(reconcile_job_set(started(job), [], when))
        for number, one in enumerate(jobs):
            own = as_created(one, number, now)
            own["metadata"]["uid"] = f"{job['metadata']['uid']}-{number}"
            yield from _created(reconcile_job(started(own), [], when))
    else:
        yield from _by_template(job, find)


def started(job: Object) -> Object:
    """The job without its suspend flag."""
    return {**job, "spec": {**job["spec"], "suspend": False}}


def _created(writes: Iterable[Write]) -> Iterator[Object]:
    for write in writes:
        if write.verb is Verb.CREATE:
            assert isinstance(write.body, dict)
            yield write.body


def _by_template(job: Object, find: Find) -> Iterator[Object]:
    """Kinds without a simulated controller: as many pods of each template as it says."""
    root, (namespace, name) = Field(job), name_of(job)
    kind = KINDS[job["kind"]].resource
    for copy in range(copies(root)):
        for part in parts(root, find):
            spec: Any = part.template.at("spec").value or {}
            metadata: Any = part.metadata.value or {}
            for number in range(part.count):
                meta = {
                    "name": f"{name}-{copy}-{part.name}-{number}",
                    "namespace": namespace,
                    "labels": dict(metadata.get("labels") or {}),
                    "annotations": dict(metadata.get("annotations") or {}),
                    "ownerReferences": [owner_reference(job, kind)],
                }
                yield {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": meta,
                    "spec": spec,
                }


@dataclass(slots=True)
class PlannedClaims:
    """Templates of the files and of the cluster, each read once."""

    get: Callable[[Kind, str, str], Object | None]  # reads from the cluster
    templates: dict[tuple[str, str], Object | None] = field(default_factory=dict)

    def add_template(self, obj: Object) -> None:
        """Add a template of the files."""
        self.templates[obj["metadata"]["namespace"], obj["metadata"]["name"]] = obj

    def made_for(self, pod: Object, created: Callable[[Object], Object]) -> tuple[Object, list[Object]]:
        """The pod with the names of its claims in the status, and the claims. Without a template: none."""
        made = list(self._made(pod, created))
        if not made:
            return pod, []
        names = [{"name": entry, "resourceClaimName": claim["metadata"]["name"]} for entry, claim in made]
        return {**pod, "status": {"resourceClaimStatuses": names}}, [claim for _, claim in made]

    def _made(self, pod: Object, created: Callable[[Object], Object]) -> Iterator[tuple[str, Object]]:
        meta = pod["metadata"]
        for entry in pod["spec"].get("resourceClaims") or ():
            name = entry.get("resourceClaimTemplateName")
            template = self._template(meta.get("namespace") or "default", name) if name else None
            if template is not None:
                title = f"{meta['name']}-{entry['name']}"
                yield entry["name"], created(claim_for(pod, entry["name"], title, template))

    def _template(self, namespace: str, name: str) -> Object | None:
        if (namespace, name) not in self.templates:
            self.templates[namespace, name] = self.get(TEMPLATES, namespace, name)
        return self.templates[namespace, name]
