"""API objects as the API server holds them: plain dicts, each kind built in one place.

A test file that needs a pod, a node, a Job, a Workload or a ClusterQueue of its own shape calls these with
the fields that matter to it. Fields that are not given are left out, apart from those every such object has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]

HOSTNAME = "kubernetes.io/hostname"
KUEUE = "kueue.x-k8s.io/v1beta2"


def api_object(api_version: str, kind: str, name: str, **fields: Any) -> Object:
    """Fields of the metadata and of the object itself; those without a value are left out."""
    in_metadata = ("namespace", "labels", "annotations")
    metadata = {key: fields.pop(key, None) for key in in_metadata} | (fields.pop("metadata", None) or {})
    named = {"name": name} | {key: value for key, value in metadata.items() if value not in (None, "")}
    own = {key: value for key, value in fields.items() if value is not None}
    return {"apiVersion": api_version, "kind": kind, "metadata": named, **own}


def container(
    requests: Mapping[str, Any] | None = None,
    limits: Mapping[str, Any] | None = None,
    *,
    name: str = "main",
    image: str = "none",
) -> Object:
    given = {"requests": requests, "limits": limits}
    resources = {key: dict(amounts) for key, amounts in given.items() if amounts}
    return {"name": name, "image": image} | ({"resources": resources} if resources else {})


def pod(
    name: str = "p",
    requests: Mapping[str, Any] | None = None,
    *,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """A pod of one container, unless `containers` says otherwise."""
    return api_object(
        "v1",
        "Pod",
        name,
        namespace=namespace,
        labels=labels,
        annotations=annotations,
        metadata=metadata,
        spec={"containers": [container(requests)], **spec},
        status=status,
    )


def node(
    name: str,
    amounts: Mapping[str, Any],
    labels: Mapping[str, str] | None = None,
    *,
    conditions: Sequence[Object] = (),
    **fields: Any,
) -> Object:
    """A node whose whole capacity is allocatable, labelled with its own name."""
    status: Object = {"capacity": dict(amounts), "allocatable": dict(amounts)}
    if conditions:
        status["conditions"] = [dict(condition) for condition in conditions]
    return api_object("v1", "Node", name, labels={HOSTNAME: name, **(labels or {})}, status=status) | fields


READY = {"type": "Ready", "status": "True"}


def job(
    name: str,
    template: Mapping[str, Any],
    pods: int | None = None,
    *,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """A batch Job; `pods` run at the same time and each completes once."""
    counts = {} if pods is None else {"parallelism": pods, "completions": pods}
    return api_object(
        "batch/v1",
        "Job",
        name,
        namespace=namespace,
        labels=labels,
        annotations=annotations,
        metadata=metadata,
        spec={**counts, **spec, "template": template},
    )


def workload(
    name: str,
    *pod_sets: Object,
    namespace: str = "",
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """A Workload of Kueue's API."""
    whole = {"podSets": list(pod_sets), **spec}
    return api_object(
        KUEUE, "Workload", name, namespace=namespace, metadata=metadata, spec=whole, status=status
    )


def cluster_queue(
    name: str,
    resources: Sequence[Object],
    flavors: Sequence[str],
    *,
    status: Mapping[str, Any] | None = None,
    **spec: Any,
) -> Object:
    """A ClusterQueue with the same quota of these resources in each flavor."""
    offered = [{"name": flavor, "resources": list(resources)} for flavor in flavors]
    group = {"coveredResources": [resource["name"] for resource in resources], "flavors": offered}
    groups = {"resourceGroups": [group] if resources else []}
    return api_object(KUEUE, "ClusterQueue", name, spec={**groups, **spec}, status=status)
