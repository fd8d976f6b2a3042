"""Job kinds that need special handling."""

from __future__ import annotations

PARENTS = {
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/leaderworkerset",
    "StatefulSet": "statefulset",
    "Deployment": "deployment",
}
"""Kinds whose pods are gated one by one, and the name of the kind in the annotation on its pods."""
SCALED = ("Job", "RayCluster", "RayJob")
"""Kinds that can be elastic."""
