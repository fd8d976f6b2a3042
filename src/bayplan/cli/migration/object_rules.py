"""How Bayplan treats each kind of object that other schedulers and queue managers define.

Each rule looks at one object and yields what differs; if it yields nothing, the object works the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kai.api import names as kai
from bayplan.dialects.kueue.fields.queues import MULTIKUEUE
from bayplan.dialects.kueue.names import api_kinds as kueue

Object = dict[str, Any]


class Carries(StrEnum):
    """Whether an object works with Bayplan as it does now."""

    SAME = "same"
    DIFFERENT = "different"
    NOT = "not"


Remarks = Iterator[tuple[Carries, str]]
Rule = Callable[[Object], Remarks]


@dataclass(frozen=True, slots=True)
class KindRule:
    """A kind of another system, and what to say of its objects."""

    family: str
    kind: Kind
    rule: Rule
    reviewed: bool = False  # our webhooks would review it: what they refuse does not work


def _same(obj: Object) -> Remarks:
    del obj
    yield from ()


def _not(text: str) -> Rule:
    return lambda obj: iter([(Carries.NOT, text)])


# ── Kueue ──────────────────────────────────────────────────────────────────────────────────────────


def _cluster_queue(obj: Object) -> Remarks:
    spec = obj.get("spec") or {}
    if (spec.get("admissionScope") or {}).get("admissionMode") == "UsageBasedAdmissionFairSharing":
        yield (
            Carries.DIFFERENT,
            "spec.admissionScope is not used: its gangs are ordered by priority and time, not by past usage",
        )
    if spec.get("concurrentAdmissionPolicy"):
        yield (
            Carries.DIFFERENT,
            "spec.concurrentAdmissionPolicy is not used: a gang tries one flavor at a time",
        )


def _local_queue(obj: Object) -> Remarks:
    if (obj.get("spec") or {}).get("fairSharing"):
        yield Carries.DIFFERENT, "spec.fairSharing is not used: ClusterQueues and cohorts have fair shares"


def _check(obj: Object) -> Remarks:
    if (obj.get("spec") or {}).get("controllerName") == MULTIKUEUE:
        yield (
            Carries.NOT,
            "gangs are not dispatched to other clusters; queues that need this check are inactive",
        )


_CLUSTERS = "gangs are not dispatched to other clusters (MultiKueue)"

# ── KAI ────────────────────────────────────────────────────────────────────────────────────────────

FRACTIONS = ("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices")
"""Annotations of pods that share a GPU."""
_INTERNAL = "belongs to the KAI scheduler itself; Bayplan is configured by its own file (docs/reference)"

# ── Volcano ────────────────────────────────────────────────────────────────────────────────────────

_VOLCANO_JOB = "is not read; write it as a JobSet or Job that names a queue (docs/migrate/volcano.md)"
_VOLCANO_GROUP = "is not read; pods name a PodGroup of scheduling.k8s.io, or of the KAI API, instead"
_VOLCANO_QUEUE = "is not read; quota is in a ClusterQueue, and a LocalQueue names it in each namespace"
_HYPER_NODE = "is not read; label the nodes, and name the labels in a Topology"


def _volcano(
    group: str, version: str, kind: str, plural: str, text: str, *, namespaced: bool = True
) -> KindRule:
    made = Kind(f"{group}.volcano.sh", version, kind, plural, namespaced=namespaced)
    return KindRule("Volcano", made, _not(text))


def _of_kueue(kind: Kind, rule: Rule = _same) -> KindRule:
    return KindRule("Kueue", kind, rule, reviewed=True)


def _kueue_only(kind: str, plural: str, text: str) -> KindRule:
    return KindRule("Kueue", Kind(kueue.GROUP, kueue.VERSION, kind, plural, namespaced=False), _not(text))


KIND_RULES: tuple[KindRule, ...] = (
    _of_kueue(kueue.TOPOLOGIES),
    _of_kueue(kueue.FLAVORS),
    _of_kueue(kueue.COHORTS),
    _of_kueue(kueue.CLUSTER_QUEUES, _cluster_queue),
    _of_kueue(kueue.LOCAL_QUEUES, _local_queue),
    _of_kueue(kueue.CHECKS, _check),
    _of_kueue(kueue.CONFIGS),
    _of_kueue(
        Kind(kueue.GROUP, kueue.VERSION, "WorkloadPriorityClass", "workloadpriorityclasses", namespaced=False)
    ),
    _kueue_only("MultiKueueConfig", "multikueueconfigs", _CLUSTERS),
    _kueue_only("MultiKueueCluster", "multikueueclusters", _CLUSTERS),
    KindRule("KAI", kai.QUEUE, _same, reviewed=True),
    KindRule("KAI", kai.POD_GROUP, _same, reviewed=True),
    KindRule("KAI", kai.TOPOLOGY, _same, reviewed=True),
    KindRule("KAI", Kind("kai.scheduler", "v1", "Config", "configs", namespaced=False), _not(_INTERNAL)),
    KindRule(
        "KAI",
        Kind("kai.scheduler", "v1", "SchedulingShard", "schedulingshards", namespaced=False),
        _not(_INTERNAL),
    ),
    _volcano("batch", "v1alpha1", JOBS.kind, "jobs", _VOLCANO_JOB),
    _volcano("scheduling", "v1beta1", "PodGroup", "podgroups", _VOLCANO_GROUP),
    _volcano("scheduling", "v1beta1", "Queue", "queues", _VOLCANO_QUEUE, namespaced=False),
    _volcano("topology", "v1alpha1", "HyperNode", "hypernodes", _HYPER_NODE, namespaced=False),
)

SCHEDULERS: Mapping[str, tuple[str, Carries, str]] = {
    "default-scheduler": (
        "kube-scheduler",
        Carries.SAME,
        "stays with kube-scheduler; name a queue or `schedulerName: bayplan` to start it as a gang",
    ),
    "kai-scheduler": (
        "KAI",
        Carries.DIFFERENT,
        "names the KAI scheduler; with `schedulers: {kai-scheduler: {}}` configured Bayplan binds it",
    ),
    "volcano": (
        "Volcano",
        Carries.NOT,
        "names Volcano, whose groups are not read; name `schedulerName: bayplan`",
    ),
}
"""The scheduler that a pod template names: whose it is, and what becomes of it."""
