"""MiniCluster of the Flux operator: a broker in each pod of a Job that the operator creates.

A MiniCluster has no suspend flag, but its Job has one: the queue is handed to the Job, by the labels that the
operator copies to it.
"""

from __future__ import annotations

from typing import Any

from bayplan.dialects.jobs.kind import GroupBy, Grouping, JobKind
from bayplan.dialects.jobs.part import COMPLETION_INDEX, MAIN_POD_SET, Find, JobPart
from bayplan.dialects.kube.fields.reader import Field

_POD_FIELDS = ("nodeSelector", "schedulerName", "serviceAccountName")


def mini_cluster_parts(cluster: Field, find: Find) -> list[JobPart]:
    """The pod set of a MiniCluster: a broker for each pod."""
    spec = cluster.at("spec")
    return [
        JobPart(
            MAIN_POD_SET,
            spec.at("size").integer(default=1),
            spec.derived(_template(spec), spec.path),
            cluster.at("metadata", "name"),
            COMPLETION_INDEX,
            pod_metadata=spec.at("pod"),
        )
    ]


def _template(spec: Field) -> dict[str, Any]:
    """The pod template that the operator makes; the view of Flux is an init container."""
    pod = spec.at("pod")
    metadata = {key: pod.at(key).texts() for key in ("labels", "annotations") if pod.at(key).present}
    flux = spec.at("flux", "container")
    pod_spec: dict[str, Any] = {
        "containers": [_container(one, f"flux-{number}") for number, one in enumerate(_containers(spec))],
        "initContainers": [] if flux.at("disable").flag() else [_container(flux, "flux-view")],
    }
    return {
        "metadata": metadata,
        "spec": pod_spec | {key: pod.at(key).value for key in _POD_FIELDS if pod.at(key).present},
    }


def _containers(spec: Field) -> list[Field]:
    return [*spec.at("containers").items(), *spec.at("services").items()]


def _container(field: Field, default: str) -> dict[str, Any]:
    resources = {key: dict(field.at("resources", key).entries()) for key in ("requests", "limits")}
    return {
        "name": field.at("name").text() or default,
        "resources": {
            key: {name: amount.value for name, amount in amounts.items()}
            for key, amounts in resources.items()
            if amounts
        },
    }


MINI_CLUSTER = JobKind(
    "MiniCluster",
    "flux-framework.org",
    "v1alpha2",
    "miniclusters",
    mini_cluster_parts,
    index_label=COMPLETION_INDEX,
    grouping=Grouping(GroupBy.POD_SET),
    job_labels=("spec", "jobLabels"),
    prebuilt=False,
)

ENTRIES = (MINI_CLUSTER,)
