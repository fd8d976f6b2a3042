"""kai/podgrouper*: the group that a pod gets, by what owns it and what else is in the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bayplan.dialects.jobs.kind import GroupBy, Grouping
from bayplan.dialects.jobs.kinds import BY_GROUP
from bayplan.dialects.kai.api.names import NODE_POOL_LABEL, QUEUE_LABEL
from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, SubGroup
from bayplan.dialects.kai.grouper import batch, dispatch, serving
from bayplan.dialects.kai.grouper.defaults import GrouperSettings, View, labels_of
from bayplan.dialects.kai.grouper.dispatch import Grouped, grouped

Object = dict[str, Any]

TOP_OWNER = "kai.scheduler/top-owner-metadata"
KINDS = {
    "PyTorchGrouper": ("kubeflow.org", "PyTorchJob"),
    "LwsGrouper": ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
    "DefaultGrouper": ("apps", "StatefulSet"),
    "GroveGrouper": ("grove.io", "PodCliqueSet"),
    "JobSetGrouper": ("jobset.x-k8s.io", "JobSet"),
    "RayClusterGrouper": ("ray.io", "RayCluster"),
    "RayJobGrouper": ("ray.io", "RayJob"),
    "RayServiceGrouper": ("ray.io", "RayService"),
    "K8sJobGrouper": ("batch", "Job"),
    "CronJobGrouper": ("batch", "CronJob"),
    "KnativeGrouper": ("serving.knative.dev", "Service"),
    "MpiGrouper": ("kubeflow.org", "MPIJob"),
    "AmlGrouper": ("amlarc.azureml.com", "AmlJob"),
    "RunaiJobGrouper": ("run.ai", "RunaiJob"),
    "PodJobGrouper": ("", "Pod"),
    "SpotRequestGrouper": ("egx.nvidia.io", "SPOTRequest"),
    "DeploymentGrouper": ("apps", "Deployment"),
    "skipTopOwnerGrouper": ("argoproj.io", "Workflow"),
}
"""Most tables upstream call one way of grouping, with owners of made-up kinds."""


def check_case(case: Object) -> list[str]:
    """The group, or the error."""
    view = _view(case)
    if case["grouper"] == "LwsGrouper.buildSubGroups":
        made = serving.leader_worker_sub_groups(view, case["settings"]["replicasSize"])
        return _compare(
            {"subGroups": case["expected"]["podGroup"]["subGroups"]}, PodGroup("", sub_groups=made)
        )
    found = _found(case, view)
    if case["expected"]["error"]:
        wanted = _head(case["expected"]["error"])
        return [] if _head(found.error) == wanted else [f"want error {wanted!r}, got {found}"]
    if found.error or found.group is None:
        return [f"error {found.error!r}, none expected"]
    return _compare(case["expected"]["podGroup"], found.group)


def _found(case: Object, view: View) -> Grouped:
    settings = case["settings"]
    if case["grouper"] == "SparkGrouper":
        return grouped(view, lambda: batch.spark(view))
    kind = KINDS.get(case["grouper"])
    grouping = None if kind is None else BY_GROUP[kind].grouping
    if "replicaSpecName" in settings:
        mandatory = tuple(settings.get("mandatorySpecNames") or ())
        grouping = Grouping(GroupBy.REPLICA_TYPES, specs=settings["replicaSpecName"], mandatory=mandatory)
    assert grouping is not None, case["grouper"]
    if case["test"] == "TestSkipTopOwnerGrouper":  # its table of kinds is empty
        below = dispatch.without_top_owner(view)
        return grouped(view, lambda: batch.default(below, dispatch.DEFAULT))
    return grouped(view, lambda: dispatch.RULES[grouping.by](view, grouping))


def _view(case: Object) -> View:
    top, around = case["topOwner"], case["clusterObjects"] or []
    below = [_whole(one, around) for one in (case["allOwners"] or [])[:-1]]
    owners = [*below, top] if top else list(case["allOwners"] or ())
    given = case["settings"]
    namespace, _, name = (given.get("defaultsConfigMap") or "/").partition("/")
    settings = GrouperSettings(
        given.get("queueLabelKey", QUEUE_LABEL),
        given.get("nodePoolLabelKey", NODE_POOL_LABEL),
        (namespace, name),
        given.get("gangScheduleKnative", True),
        given.get("searchForLegacyPodGroups", False),
    )

    def find(kind: str, namespace: str, name: str) -> object:
        for one in around:
            meta = one["metadata"]
            if (one["kind"], meta.get("namespace") or "", meta["name"]) == (kind, namespace, name):
                return one
        return None

    def pods(namespace: str, labels: Mapping[str, str]) -> Iterable[Object]:
        return [
            one
            for one in around
            if one["kind"] == "Pod"
            and one["metadata"].get("namespace", "") == namespace
            and labels.items() <= labels_of(one).items()
        ]

    return View(case["pod"], tuple(owners), find, pods, settings)


def _whole(owner: Object, around: Iterable[Object]) -> Object:
    """An owner as it is in the cluster; of a case's owners only the metadata is given."""
    wanted = (owner.get("kind"), owner["metadata"].get("namespace"), owner["metadata"]["name"])
    for one in around:
        if (one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) == wanted:
            return one
    return owner


def _head(error: str) -> str:
    """What an error says before the words of the language that upstream is written in."""
    return error.partition(" Err: .")[0].partition(" Err: spec.")[0]


def _compare(wanted: Object, group: PodGroup) -> list[str]:
    got = _plain(group)
    wanted = {key: value for key, value in wanted.items() if key in got}
    if "annotations" in wanted:
        wanted["annotations"] = {k: v for k, v in (wanted["annotations"] or {}).items() if k != TOP_OWNER}
        wanted["labels"] = wanted["labels"] or {}
    if "owner" in wanted:  # objects in tests upstream often lack their kind
        wanted["owner"] = {key: value for key, value in wanted["owner"].items() if value}
        got["owner"] = {key: got["owner"][key] for key in wanted["owner"]}
    if "subGroups" in wanted:
        wanted["subGroups"] = [_normal(one) for one in wanted["subGroups"] or ()]
    if "topologyConstraint" in wanted:
        wanted["topologyConstraint"] = _given(wanted["topologyConstraint"])
    return [f"{key}: want {value!r}, got {got[key]!r}" for key, value in wanted.items() if got[key] != value]


def _plain(group: PodGroup) -> Object:
    return {
        "name": group.name,
        "namespace": group.namespace,
        "queue": group.queue,
        "priorityClassName": group.priority_class,
        "preemptibility": group.preemptibility,
        "minMember": group.minimum,
        "topologyConstraint": _constraint(group.constraint),
        "subGroups": [_sub_group(one) for one in group.sub_groups],
        "labels": dict(group.labels),
        "annotations": dict(group.annotations),
        "owner": {
            "apiVersion": group.owner.api_version,
            "kind": group.owner.kind,
            "name": group.owner.name,
            "uid": group.owner.uid,
        },
    }


def _sub_group(one: SubGroup) -> Object:
    return {
        "name": one.name,
        "minMember": one.minimum,
        "parent": one.parent,
        "pods": list(one.pods),
        "topologyConstraint": _constraint(one.constraint),
    }


def _normal(one: Object) -> Object:
    return {
        "name": one["name"],
        "minMember": one["minMember"],
        "parent": one["parent"] or "",
        "pods": one["pods"] or [],
        "topologyConstraint": _given(one["topologyConstraint"]),
    }


def _constraint(one: Constraint | None) -> Object:
    if one is None:
        return {}
    return _given(
        {
            "topology": one.topology,
            "requiredTopologyLevel": one.required,
            "preferredTopologyLevel": one.preferred,
        }
    )


def _given(constraint: Object | None) -> Object:
    return {key: value for key, value in (constraint or {}).items() if value}


FILES = {"kai/podgrouper*": check_case}
