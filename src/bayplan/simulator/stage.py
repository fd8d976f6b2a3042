"""Kinds as the simulator reads them: as plain objects, all of them."""

from __future__ import annotations

from dataclasses import replace

from bayplan.dialects.kube.wire import NODES, PODS_KIND
from bayplan.dialects.kueue import admitting, scheduled

PLAIN_NODES = replace(NODES, wire=None)
PLAIN_PODS = replace(PODS_KIND, wire=None)
LISTED = {"nodes": PLAIN_NODES, "pods": PLAIN_PODS, "jobs": scheduled.JOBS} | {
    kind.plural: kind
    for kind in (
        admitting.TOPOLOGIES,
        admitting.FLAVORS,
        admitting.COHORTS,
        admitting.CLUSTER_QUEUES,
        admitting.WORKLOADS,
    )
}
