"""Labels, annotations, scheduling gates and finalizers of the Kueue API, and what their presence means."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.dialects.jobs import part
from bayplan.dialects.kube.fields.reader import Field

PREFIX = "kueue.x-k8s.io/"

REQUIRED = PREFIX + "podset-required-topology"
PREFERRED = PREFIX + "podset-preferred-topology"
UNCONSTRAINED = PREFIX + "podset-unconstrained-topology"
SEGMENT_LEVEL = PREFIX + "podset-slice-required-topology"
SEGMENT_SIZE = PREFIX + "podset-slice-size"
SEGMENT_LAYERS = PREFIX + "podset-slice-required-topology-constraints"
GROUP = PREFIX + "podset-group-name"

# Of the first draft of the API; "auto" means the lowest level that fits the pods.
REQUIRE = PREFIX + "require-topology"
PREFER = PREFIX + "prefer-topology"

QUEUE = PREFIX + "queue-name"
MINIMUM = PREFIX + "job-min-parallelism"
SYNCED = PREFIX + "job-completions-equal-parallelism"
ELASTIC = part.ELASTIC
GATED_BY = PREFIX + "admission-gated-by"
REPLACES = PREFIX + "workload-slice-replacement-for"
SLICE_NAME = PREFIX + "workload-slice-name"  # shared by all Workload slices of an elastic job
PREBUILT = PREFIX + "prebuilt-workload-name"  # a label, or an annotation if the name is long
PRIORITY_CLASS = PREFIX + "priority-class"
PRIORITY_BOOST = PREFIX + "priority-boost"
SECONDS_MAX = PREFIX + "max-exec-time-seconds"

MANAGED = PREFIX + "managed"
POD_GROUP = PREFIX + "pod-group-name"  # a label, or an annotation if the name is long
POD_GROUP_COUNT = PREFIX + "pod-group-total-count"
FAST_ADMISSION = PREFIX + "pod-group-fast-admission"
RETRIABLE = PREFIX + "retriable-in-group"
ROLE_HASH = PREFIX + "role-hash"
SERVING = PREFIX + "pod-group-serving"
SUSPENDED_BY = PREFIX + "pod-suspending-parent"
OFFSET = PREFIX + "pod-index-offset"
INDEX_FROM = PREFIX + "pod-group-pod-index-label"  # the label that holds the index of a pod in its group
ELASTIC_GATE = part.ELASTIC_GATE
TOPOLOGY_GATE = PREFIX + "topology"
GROUP_INDEX = PREFIX + "pod-group-pod-index"
DEFAULT_QUEUE = "default"  # the LocalQueue of jobs that name none

# On the pods of a job that was started.
WORKLOAD_NAME = PREFIX + "workload"
POD_SET = PREFIX + "podset"
LOCAL_QUEUE = PREFIX + "local-queue-name"
CLUSTER_QUEUE = PREFIX + "cluster-queue-name"

STOPPING = PREFIX + "stopping"

# On Workloads.
JOB_UID = PREFIX + "job-uid"
IS_GROUP_WORKLOAD = PREFIX + "is-group-workload"
OWNER_KIND = PREFIX + "job-owner-gvk"
OWNER_NAME = PREFIX + "job-owner-name"
REPLICA = PREFIX + "component-workload-index"

IN_USE = PREFIX + "resource-in-use"  # a finalizer

_EXPLICIT = (REQUIRED, PREFERRED, SEGMENT_LEVEL, SEGMENT_LAYERS, REQUIRE, PREFER)


def read_annotations(metadata: Field) -> dict[str, str]:
    """All annotations as text; unquoted numbers and booleans of a manifest are converted."""
    annotations: dict[str, str] = {}
    for key, field in metadata.at("annotations").entries():
        if isinstance(field.value, bool):
            annotations[key] = str(field.value).lower()
        elif isinstance(field.value, int):
            annotations[key] = str(field.value)
        else:
            annotations[key] = field.text()
    return annotations


def asks_for_topology(annotations: Mapping[str, object]) -> bool:
    """Whether annotations request a topology explicitly."""
    return any(name in annotations for name in _EXPLICIT)


def is_topology_aware(annotations: Mapping[str, object]) -> bool:
    """Whether pods with these annotations are placed by topology."""
    return asks_for_topology(annotations) or UNCONSTRAINED in annotations


def has_queue(obj: Field) -> bool:
    """Whether an object names a queue."""
    return bool(obj.at("metadata", "labels", QUEUE).text())


def is_elastic(obj: Field) -> bool:
    """Whether a job is annotated as elastic: it may be resized while it runs."""
    return obj.at("metadata", "annotations", ELASTIC).text() == "true"
