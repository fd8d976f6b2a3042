"""Which rules are applied to what people write: switches that a cluster may have set differently."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FeatureSwitches:
    """How strict we are. The defaults are ours; each switch is a feature gate elsewhere, or a kindness."""

    forgiving: bool = True  # layer sizes in quotes and trailing commas are understood
    topology: bool = True  # pod sets ask for a topology at all (TopologyAwareScheduling)
    layers: bool = True  # segments in more than one layer (TASMultiLayerTopology)
    segment_sizes: bool = True  # of Workloads (TASValidateWorkloadSliceSize)
    elastic: bool = True  # jobs that change their size while they run (ElasticJobsViaWorkloadSlices)
    identifiers: bool = True  # names too long for a label in annotations (WorkloadIdentifierAnnotations)
    selector_alone: bool = False  # a pod set that one domain holds is sent there by a node selector, ungated
    every_job: bool = False  # jobs without a queue name are ours too (manageJobsWithoutQueueName)


RULES = FeatureSwitches()
