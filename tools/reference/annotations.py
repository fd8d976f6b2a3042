"""Labels and annotations that users write, with the constants that the code reads them by."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.backends.fake_controllers.kubelet import EXIT, RUN_SECONDS
from bayplan.dialects.kai.api import names as kai
from bayplan.dialects.kube.fields.run_limits import EXPECTED_RUNTIME
from bayplan.dialects.kube.gang.objects import DESIRED, TOPOLOGY
from bayplan.dialects.kueue.names import annotations as kueue

LABEL, NOTE = "label of ", "annotation of "
POD = "pod template"


@dataclass(frozen=True, slots=True)
class MetadataKey:
    """A label or an annotation."""

    name: str
    on: str
    value: str
    meaning: str


KEYS = (
    MetadataKey(kueue.QUEUE, LABEL + "job, pod", "LocalQueue", "the queue of the job"),
    MetadataKey(
        kueue.PRIORITY_CLASS, LABEL + "job, pod", "WorkloadPriorityClass", "the priority in the queue"
    ),
    MetadataKey(
        kueue.SECONDS_MAX, LABEL + "job, pod", "seconds", "longest run time; the job is stopped after it"
    ),
    MetadataKey(
        kueue.REQUIRED, NOTE + POD, "node label", "all pods in one domain of this level, or none starts"
    ),
    MetadataKey(
        kueue.PREFERRED,
        NOTE + POD,
        "node label",
        "all pods in one domain of this level if possible, else as close as possible",
    ),
    MetadataKey(
        kueue.UNCONSTRAINED, NOTE + POD, "`true`", "placed by topology-aware scheduling, in any domains"
    ),
    MetadataKey(kueue.SEGMENT_LEVEL, NOTE + POD, "node label", "each segment in one domain of this level"),
    MetadataKey(kueue.SEGMENT_SIZE, NOTE + POD, "number", "pods of a segment"),
    MetadataKey(
        kueue.SEGMENT_LAYERS,
        NOTE + POD,
        "JSON list of `topology` and `size`",
        "segments in up to three layers, outermost first",
    ),
    MetadataKey(kueue.GROUP, NOTE + POD, "name", "pod sets of the same name share one domain"),
    MetadataKey(
        kueue.REQUIRE,
        NOTE + POD,
        "node label, or `auto`",
        "older form of required; `auto`: the lowest level that holds the gang",
    ),
    MetadataKey(kueue.PREFER, NOTE + POD, "node label, or `auto`", "older form of preferred"),
    MetadataKey(kueue.MINIMUM, NOTE + "Job", "number", "the Job may start with this many pods"),
    MetadataKey(
        kueue.SYNCED, NOTE + "Job", "`true`", "a Job that starts smaller gets as many completions as pods"
    ),
    MetadataKey(kueue.ELASTIC, NOTE + "job", "`true`", "the job may be resized while it runs"),
    MetadataKey(kueue.PREBUILT, LABEL + "job, pod", "Workload", "use this Workload instead of a new one"),
    MetadataKey(
        kueue.GATED_BY,
        NOTE + "job",
        "names",
        "the job is not admitted before these controllers have removed their name",
    ),
    MetadataKey(kueue.POD_GROUP, LABEL + "pod", "name", "plain pods of the same name are one gang"),
    MetadataKey(kueue.POD_GROUP_COUNT, NOTE + "pod", "number", "pods of that gang"),
    MetadataKey(
        kueue.FAST_ADMISSION,
        NOTE + "pod",
        "`true`",
        "the group is queued with its first pod, not with its last",
    ),
    MetadataKey(
        kueue.RETRIABLE, NOTE + "pod", "`false`", "the group ends when this pod fails; it is not replaced"
    ),
    MetadataKey(
        DESIRED,
        NOTE + "Workload, PodGroup of `scheduling.k8s.io`",
        "number",
        "pods of a group without a minimum wait until this many exist",
    ),
    MetadataKey(
        TOPOLOGY,
        NOTE + "Workload, PodGroup of `scheduling.k8s.io`",
        "node label",
        "all pods of the gang on nodes with one value of this label",
    ),
    MetadataKey(
        EXPECTED_RUNTIME,
        NOTE + "job, Workload, LocalQueue, ClusterQueue",
        "`5400`, `90m`, `1h30m`",
        "run time for [expected starts](../guide/forecast.md)",
    ),
    MetadataKey(
        kai.QUEUE_LABEL, LABEL + "job, pod", "Queue of `scheduling.run.ai`", "the queue of the pod group"
    ),
    MetadataKey(
        kai.PRIORITY_LABEL,
        LABEL + "job, pod",
        "PriorityClass, or `train`, `build`, `inference`",
        "the priority of the pod group",
    ),
    MetadataKey(
        kai.PREEMPTIBILITY,
        LABEL + "job, PodGroup",
        "`preemptible`, `non-preemptible`",
        "whether other groups may preempt it",
    ),
    MetadataKey(kai.NODE_POOL_LABEL, LABEL + "pod", "name", "appended to the queue of the label `project`"),
    MetadataKey(kai.PROJECT_LABEL, LABEL + "job, pod", "name", "the queue, if no other label names one"),
    MetadataKey(kai.USER_LABEL, LABEL + "job, pod", "name", "who `bayplan list gangs --user` selects by"),
    MetadataKey(kai.POD_GROUP_NAME, NOTE + "pod", "PodGroup of `scheduling.run.ai`", "the group of the pod"),
    MetadataKey(kai.SUB_GROUP_NAME, LABEL + "pod", "name", "its sub-group"),
    MetadataKey(
        kai.TOPOLOGY_NAME,
        NOTE + "job, " + POD,
        "Topology of `kai.scheduler`",
        "the topology of the levels below",
    ),
    MetadataKey(
        kai.REQUIRED,
        NOTE + "job",
        "node label",
        "the whole job in one domain of this level, or none of it starts",
    ),
    MetadataKey(
        kai.PREFERRED, NOTE + "job", "node label", "the whole job in one domain of this level if possible"
    ),
    MetadataKey(kai.SEGMENT_SIZE, NOTE + POD, "number", "pods of a segment; the last may be smaller"),
    MetadataKey(
        kai.SEGMENT_REQUIRED,
        NOTE + POD,
        "node label",
        "each segment in one domain of this level, or it waits",
    ),
    MetadataKey(
        kai.SEGMENT_PREFERRED,
        NOTE + POD,
        "node label",
        "each segment in one domain of this level if possible",
    ),
    MetadataKey(
        kai.POD_INDEX_LABEL,
        NOTE + POD,
        "label",
        "the pod label with the rank, where the job kind has none of its own",
    ),
    MetadataKey(kai.SEGMENT_INDEX, NOTE + "pod", "number", "written by Bayplan: the segment of the pod"),
    MetadataKey(kai.FLAW, NOTE + "pod", "sentence", "written by Bayplan: why the pod is in no group"),
    MetadataKey(
        RUN_SECONDS,
        NOTE + "pod",
        "seconds",
        "`bayplan up` only: when the pod ends. Real kubelets do not read it",
    ),
    MetadataKey(EXIT, NOTE + "pod", "number", "`bayplan up` only: its exit code"),
)
