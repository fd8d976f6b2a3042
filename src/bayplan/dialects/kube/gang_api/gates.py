"""Which parts of the gang API a cluster has: the versions of it, and the features behind switches."""

from __future__ import annotations

GROUP = "scheduling.k8s.io"
FIRST, SECOND, THIRD = "v1alpha1", "v1alpha2", "v1beta1"
VERSIONS = (FIRST, SECOND, THIRD)
"""From Kubernetes 1.35, 1.36 and 1.37, the oldest first; upstream never serves two of them at once."""
OF_COMPOSITES = "v1alpha3"
"""Beside the third, and only for groups of groups."""

TOPOLOGY = "TopologyAwareWorkloadScheduling"
CLAIMS = "DRAWorkloadResourceClaims"
PREEMPTION = "WorkloadAwarePreemption"  # in v1alpha2 only; later it is always on
POLICY = "PodGroupPreemptionPolicy"
COMPOSITE = "CompositePodGroup"

Gates = frozenset[str]

EVERY_GATE: Gates = frozenset({TOPOLOGY, CLAIMS, PREEMPTION, POLICY, COMPOSITE})
USUAL_GATES: Gates = EVERY_GATE
"""What our own cluster in memory has."""
