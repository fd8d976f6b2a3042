"""Kinds of jobs that are handled in a way of their own."""

from __future__ import annotations

PARENTS = {
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/leaderworkerset",
    "StatefulSet": "statefulset",
    "Deployment": "deployment",
}
"""Kinds whose pods are gated one by one, with the name by which the pods refer to them."""
SCALED = ("Job", "RayCluster", "RayJob")
"""Kinds that may change their size while they run."""
