"""The versions of the gang scheduling API, and its feature gates."""

from __future__ import annotations

GROUP = "scheduling.k8s.io"
V1ALPHA1, V1ALPHA2, V1BETA1 = "v1alpha1", "v1alpha2", "v1beta1"
VERSIONS = (V1ALPHA1, V1ALPHA2, V1BETA1)
"""From Kubernetes 1.35, 1.36 and 1.37, oldest first; upstream never serves two of them together."""
V1ALPHA3 = "v1alpha3"
"""Served together with v1beta1, only for CompositePodGroups."""

TOPOLOGY = "TopologyAwareWorkloadScheduling"
CLAIMS = "DRAWorkloadResourceClaims"
PREEMPTION = "WorkloadAwarePreemption"  # in v1alpha2 only; always enabled since
POLICY = "PodGroupPreemptionPolicy"
COMPOSITE = "CompositePodGroup"

Gates = frozenset[str]

ALL_GATES: Gates = frozenset({TOPOLOGY, CLAIMS, PREEMPTION, POLICY, COMPOSITE})
DEFAULT_GATES: Gates = ALL_GATES
"""The gates of the in-memory cluster."""
