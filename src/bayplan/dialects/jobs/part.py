"""The part of a job that becomes one pod set: a pod template, a count, and the labels that index the pods."""

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

ELASTIC = "kueue.x-k8s.io/elastic-job"
"""The annotation of a job that may be resized while it runs."""
ELASTIC_GATE = "kueue.x-k8s.io/elastic-job"
"""The scheduling gate of its pods."""

MAIN_POD_SET = "main"
"""The name of the pod set of a job that has only one pod set."""

HEAD, SUBMITTER = RAY_SINGLES = ("head", "submitter")
"""The pod sets of a Ray job that have exactly one pod."""

Find = Callable[[str, str, str], object]
"""Looks up an object that a job refers to, by kind, namespace and name; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class JobPart:
    """Pods of a job that share one pod template."""

    name: str
    count: int
    template: Field
    name_field: Field  # the field that the name comes from
    index_label: str | None = None  # the pod label with the index of the pod
    subgroup_label: str | None = None  # the pod label with the index of the sub-group, if any
    subgroup_count: int | None = None
    natural_segment: int | None = None  # the pods of one sub-group, if that is the default segment
    index_offset: int = 0  # the index of the first pod
    pod_metadata: Field | None = None  # the pods' metadata, if it is not in the template
    count_known: bool = True  # False: the number of pods is not known yet
    advice: str = ""  # appended to errors about the annotations

    @property
    def metadata(self) -> Field:
        """The field with the pods' labels and annotations."""
        return self.template.at("metadata") if self.pod_metadata is None else self.pod_metadata


def find_nothing(kind: str, namespace: str, name: str) -> object:
    """A `Find` that knows no object."""
    return None


def required_template(spec: Field) -> Field:
    """The pod template of a spec; it is an error if there is none."""
    template = spec.at("template")
    if not template.present:
        template.error("must be set")
    return template


def pods_at_once(spec: Field) -> int:
    """How many pods a batch Job runs at the same time."""
    parallelism = spec.at("parallelism").integer(default=1)
    return min(parallelism, spec.at("completions").integer(default=parallelism))
