"""Admitted Workloads and their gated pods in a few lines, for tests of ungating."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kueue.names.annotations import TOPOLOGY_GATE
from bayplan.dialects.kueue.pods.ungating import AdmittedPlacement, admitted_placement, ungatings
from bayplan.model.assignment import Path
from bayplan.model.node import HOSTNAME
from tests.support.api_objects import pod

Object = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
SUBGROUP = "jobset.sigs.k8s.io/job-index"
RANKED: Object = {"podIndexLabel": INDEX}
MAIN = "main"


def assignment(hosts: Sequence[tuple[str, int]]) -> Object:
    return {
        "levels": [HOSTNAME],
        "slices": [
            {
                "domainCount": len(hosts),
                "valuesPerLevel": [{"individual": {"roots": [host for host, _ in hosts]}}],
                "podCounts": {"individual": [count for _, count in hosts]},
            }
        ],
    }


def assigned_gang(
    *hosts: tuple[str, int], request: Object | None = None, count: int = 0, name: str = "gang"
) -> Object:
    """A Workload with one pod set on these hosts, in rank order."""
    return groups({MAIN: hosts}, request or {}, count=count, name=name)


def groups(
    hosts: Mapping[str, Sequence[tuple[str, int]]], request: Object, *, count: int = 0, name: str = "gang"
) -> Object:
    """A Workload with several pod sets that ask for the same."""
    sizes = {part: count or sum(number for _, number in where) for part, where in hosts.items()}
    at = "2027-01-15T08:00:00Z"
    admitted = {"type": "Admitted", "status": "True", "reason": "Admitted", "lastTransitionTime": at}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"namespace": "ml", "name": name, "uid": f"uid-{name}", "creationTimestamp": at},
        "spec": {
            "podSets": [
                {"name": part, "count": size, "topologyRequest": request} for part, size in sizes.items()
            ]
        },
        "status": {
            "admission": {
                "clusterQueue": "q",
                "podSetAssignments": [
                    {"name": part, "count": sizes[part], "topologyAssignment": assignment(where)}
                    for part, where in hosts.items()
                ],
            },
            "conditions": [{**admitted, "message": ""}],
        },
    }


def gang_pod(
    name: str,
    index: int | str | None = None,
    *,
    on: str = "",
    part: str = MAIN,
    phase: str = "Pending",
    leaving: bool = False,
    labels: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    of: str = "gang",
    uid: str = "",
    job: str = "",
) -> Object:
    """A pod of the gang; gated unless it is `on` a host."""
    numbered = {} if index is None else {INDEX: str(index)}
    gone = {"deletionTimestamp": "2027-01-15T08:01:00Z"} if leaving else {}
    owners = {"ownerReferences": [{"kind": "Job", "uid": job, "controller": True}]} if job else {}
    spec: Object = {"nodeSelector": {HOSTNAME: on}} if on else {"schedulingGates": [{"name": TOPOLOGY_GATE}]}
    return pod(
        name,
        namespace="ml",
        labels={"kueue.x-k8s.io/podset": part, **numbered, **(labels or {})},
        annotations={"kueue.x-k8s.io/workload": of, **(notes or {})},
        metadata={"uid": uid or f"uid-{name}", **owners, **gone},
        status={"phase": phase},
        **spec,
    )


def wire(obj: Object) -> PodWire:
    return msgspec.convert(obj, PodWire, strict=False)


def where(
    workload: Object, *pods: Object, expected: Mapping[str, Path | None] | None = None
) -> dict[str, str]:
    """The host that each pod is sent to now."""
    places = admitted_placement(workload)
    assert isinstance(places, AdmittedPlacement)
    answer = ungatings(places, [wire(one) for one in pods], expected or {})
    assert not answer.error
    return {one.pod.metadata.name: one.domain[-1] for one in answer.pods}
