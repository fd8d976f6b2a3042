"""The versions of the gang scheduling API, and its feature gates."""

from __future__ import annotations

GROUP = "scheduling.k8s.io"
FIRST, SECOND, THIRD = "v1alpha1", "v1alpha2", "v1beta1"
VERSIONS = (FIRST, SECOND, THIRD)
"""From Kubernetes 1.35, 1.36 and 1.37, oldest first; upstream never serves two of them together."""
OF_COMPOSITES = "v1alpha3"
"""Served together with v1beta1, only for CompositePodGroups."""

TOPOLOGY = "TopologyAwareWorkloadScheduling"
CLAIMS = "DRAWorkloadResourceClaims"
PREEMPTION = "WorkloadAwarePreemption"  # in v1alpha2 only; always enabled since
POLICY = "PodGroupPreemptionPolicy"
COMPOSITE = "CompositePodGroup"

Gates = frozenset[str]

EVERY_GATE: Gates = frozenset({TOPOLOGY, CLAIMS, PREEMPTION, POLICY, COMPOSITE})
USUAL_GATES: Gates = EVERY_GATE
"""The gates of the in-memory cluster."""
