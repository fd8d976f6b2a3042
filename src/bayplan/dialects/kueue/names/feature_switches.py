"""Feature switches of decoding and validation: most are feature gates of Kueue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FeatureSwitches:
    """Which features are on and how strict decoding is; the defaults are Bayplan's, not Kueue's."""

    lenient: bool = True  # accept quoted layer sizes and trailing commas
    topology: bool = True  # topology requests of pod sets (TopologyAwareScheduling)
    layers: bool = True  # several layers of segments (TASMultiLayerTopology)
    segment_sizes: bool = True  # validate segment sizes of Workloads (TASValidateWorkloadSliceSize)
    elastic: bool = True  # elastic jobs (ElasticJobsViaWorkloadSlices)
    identifiers: bool = True  # long names in annotations (WorkloadIdentifierAnnotations)
    selector_without_gate: bool = False  # pod sets in one domain get a node selector and no topology gate
    detailed_reasons: bool = True  # detailed reasons of pending gangs (UnadmittedWorkloadsObservability)
    jobs_without_queue: bool = False  # also jobs without a queue name (manageJobsWithoutQueueName)


RULES = FeatureSwitches()
