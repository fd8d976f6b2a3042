"""The labels, annotations and constants of the KAI API, each defined once."""

from __future__ import annotations

from bayplan.dialects.api import Kind

GROUP = "scheduling.run.ai"
POD_GROUP = Kind(GROUP, "v2alpha2", "PodGroup", "podgroups", optional=True)
QUEUE = Kind(GROUP, "v2", "Queue", "queues", namespaced=False, optional=True)
TOPOLOGY = Kind("kai.scheduler", "v1alpha1", "Topology", "topologies", namespaced=False, optional=True)

DIALECT = "kai"
"""The dialect in the Ref of a gang."""

# On a pod: its PodGroup and sub-group.
POD_GROUP_NAME = "pod-group-name"
SUB_GROUP_NAME = "kai.scheduler/subgroup-name"

# On a workload or a pod template.
TOPOLOGY_NAME = "kai.scheduler/topology"
REQUIRED = "kai.scheduler/topology-required-placement"
PREFERRED = "kai.scheduler/topology-preferred-placement"
TOPOLOGY_ANNOTATIONS = (TOPOLOGY_NAME, REQUIRED, PREFERRED)

# On a pod template.
SEGMENT_SIZE = "kai.scheduler/segment-size"
SEGMENT_REQUIRED = "kai.scheduler/segment-topology-required-placement"
SEGMENT_PREFERRED = "kai.scheduler/segment-topology-preferred-placement"
POD_INDEX_LABEL = "kai.scheduler/pod-index-label"

# Written by Bayplan: on pods of segments, and on PodGroups that cannot be placed as requested.
SEGMENT_INDEX = "kai.scheduler/segment-index"
SEGMENT_INDEX_VARIABLE = "KAI_SEGMENT_INDEX"
FLAW = "bayplan.dev/flaw"
OWNER_FIELDS = "bayplan.dev/owner-asks"
"""On a PodGroup that we created: queue, priority and preemptibility that its owner had at our last write."""

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
"""A PodGroup without preemptibility is preemptible if its priority is lower than this."""
