"""The raw form of a pod set: pods of one template, as a job of whatever kind describes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bayplan.dialects.kube.fields.reader import Field

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
POD_INDEX = "apps.kubernetes.io/pod-index"
GROUP_POD_INDEX = "kueue.x-k8s.io/pod-group-pod-index"

ONLY = "main"
"""The name of the pod set of a job that has only one."""

HEAD, SUBMITTER = RAY_SINGLES = ("head", "submitter")
"""The pod sets of a Ray job that are one pod each."""

Find = Callable[[str, str, str], object]
"""Another object that a job refers to, by kind, namespace and name; None if it is not known."""


@dataclass(frozen=True, slots=True)
class JobPart:
    """Pods of one template."""

    name: str
    count: int
    template: Field
    name_field: Field  # where the name was written
    index_label: str | None = None  # the pod label that numbers the pods
    subgroup_label: str | None = None  # the pod label that numbers equal sub-groups, if there are any
    subgroup_count: int | None = None
    natural_segment: int | None = None  # the pods of one sub-group, where that is what users mean
    index_offset: int = 0  # the number of the first pod
    notes: Field | None = None  # where labels and annotations are, if not in the template
    counted: bool = True  # false: the number of pods is not known yet
    advice: str = ""  # to be added to complaints about the annotations

    @property
    def metadata(self) -> Field:
        """Where the pods' labels and annotations are written."""
        return self.template.at("metadata") if self.notes is None else self.notes


def nothing(kind: str, namespace: str, name: str) -> object:
    """Knows no other object."""
    return None


def required_template(spec: Field) -> Field:
    """The pod template below; a job without one is no job."""
    template = spec.at("template")
    if not template.present:
        template.error("must be set")
    return template


def pods_at_once(spec: Field) -> int:
    """How many pods a batch Job runs at the same time."""
    parallelism = spec.at("parallelism").integer(default=1)
    return min(parallelism, spec.at("completions").integer(default=parallelism))
