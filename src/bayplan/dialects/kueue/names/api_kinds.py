"""The kinds of the Kueue API, and all kinds that the admission controller watches."""

from __future__ import annotations

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND

GROUP, VERSION = "kueue.x-k8s.io", "v1beta2"


def _kind(kind: str, plural: str, *, namespaced: bool = False) -> Kind:
    return Kind(GROUP, VERSION, kind, plural, namespaced=namespaced)


TOPOLOGIES = _kind("Topology", "topologies")
FLAVORS = _kind("ResourceFlavor", "resourceflavors")
COHORTS = _kind("Cohort", "cohorts")
CLUSTER_QUEUES = _kind("ClusterQueue", "clusterqueues")
LOCAL_QUEUES = _kind("LocalQueue", "localqueues", namespaced=True)
CHECKS = _kind("AdmissionCheck", "admissionchecks")
WORKLOADS = _kind("Workload", "workloads", namespaced=True)
CONFIGS = _kind("ProvisioningRequestConfig", "provisioningrequestconfigs")
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
KINDS = (
    NODES, PODS_KIND, NAMESPACES, TOPOLOGIES, FLAVORS, COHORTS, CLUSTER_QUEUES, LOCAL_QUEUES, CHECKS,
    CONFIGS, WORKLOADS,
)  # fmt: skip
