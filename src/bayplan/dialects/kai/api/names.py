"""The labels, annotations and words of this family, each written once."""

from __future__ import annotations

from bayplan.dialects.api import Kind

GROUP = "scheduling.run.ai"
POD_GROUP = Kind(GROUP, "v2alpha2", "PodGroup", "podgroups", optional=True)
QUEUE = Kind(GROUP, "v2", "Queue", "queues", namespaced=False, optional=True)
TOPOLOGY = Kind("kai.scheduler", "v1alpha1", "Topology", "topologies", namespaced=False, optional=True)

DIALECT = "kai"
"""The dialect of a gang's Ref."""

# A pod says which group and sub-group it belongs to.
POD_GROUP_NAME = "pod-group-name"
SUB_GROUP_NAME = "kai.scheduler/subgroup-name"

# On a workload, or on a pod template.
TOPOLOGY_NAME = "kai.scheduler/topology"
REQUIRED = "kai.scheduler/topology-required-placement"
PREFERRED = "kai.scheduler/topology-preferred-placement"
TOPOLOGY_NOTES = (TOPOLOGY_NAME, REQUIRED, PREFERRED)

# On a pod template.
SEGMENT_SIZE = "kai.scheduler/segment-size"
SEGMENT_REQUIRED = "kai.scheduler/segment-topology-required-placement"
SEGMENT_PREFERRED = "kai.scheduler/segment-topology-preferred-placement"
POD_INDEX_LABEL = "kai.scheduler/pod-index-label"

# What we add to a pod that is in a segment, and to a group that cannot be as it is asked for.
SEGMENT_INDEX = "kai.scheduler/segment-index"
SEGMENT_INDEX_VARIABLE = "KAI_SEGMENT_INDEX"
FLAW = "bayplan.dev/flaw"
ANSWER = "bayplan.dev/owner-asks"
"""On a group that we made: queue, priority and preemptibility as its owner had them when we last wrote."""

QUEUE_LABEL = "kai.scheduler/queue"
NODE_POOL_LABEL = "kai.scheduler/node-pool"
PREEMPTIBILITY = "kai.scheduler/preemptibility"
PRIORITY_LABEL = "priorityClassName"
PROJECT_LABEL = "project"
USER_LABEL = "user"

DEFAULT_QUEUE = "default-queue"
TRAIN, BUILD, INFERENCE = "train", "build", "inference"
INTERACTIVE_PREEMPTIBLE = "interactive-preemptible"
PREEMPTIBLE, NON_PREEMPTIBLE = "preemptible", "non-preemptible"
PREEMPTIBLE_BELOW = 100
"""A group that does not say so itself is preemptible if its priority is lower."""
