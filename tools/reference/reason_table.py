"""Every reason of a condition or event that Bayplan writes: what it means, and what to do about it.

A test finds the reasons in the code and compares them with this table.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason in one place."""

    name: str
    meaning: str
    action: str = "Nothing."


@dataclass(frozen=True, slots=True)
class ReasonGroup:
    """Reasons that are found in the same place."""

    title: str
    where: str
    reasons: tuple[Reason, ...]


WAIT = "Nothing: it goes on by itself."
REPORT = "Search the log for the id in the message, and report it with the journal."

PENDING_WORKLOADS = ReasonGroup(
    "Workloads that wait",
    "Condition `QuotaReserved` of a Workload with status `False`, and a Warning event on it. `bayplan explain NAMESPACE/NAME` "
    "shows the same with the closest domain, the gangs that use it and the smallest change that helps.",
    (
        Reason("PendingEvaluation", "It was not decided on yet, or not since its last eviction.", WAIT),
        Reason(
            "WaitingForQuota",
            "Quota or free capacity does not suffice now. The message names the flavor and the amount, or the domain that comes closest.",
            "Wait; or request less, raise the quota, or let the queue borrow or preempt. `bayplan explain` says which of these helps.",
        ),
        Reason(
            "ExceedsMaxQuota",
            "It requests more than its queue can ever have, borrowing included.",
            "Request less, or raise `nominalQuota`, `borrowingLimit` or the quota of the cohort.",
        ),
        Reason(
            "TopologyPlacementFailed",
            "Quota suffices, and no domain is large enough, even in an empty cluster.",
            "Request a higher level or fewer pods per domain; check node labels, selectors and taints.",
        ),
        Reason(
            "NoMatchingFlavor",
            "No flavor of the queue can be used: taints, node affinity, a missing topology or level.",
            "The message names the obstacle of each flavor. Add a toleration, correct the affinity or the level, or use another queue.",
        ),
        Reason("WaitingForPreemptedWorkloads", "Other Workloads are being preempted for it.", WAIT),
        Reason(
            "Misconfigured",
            "The queue does not exist or is not active, does not accept the namespace, or the Workload claims devices that quota cannot count.",
            "Correct what the message names; `bayplan list queues` shows why a queue is not active.",
        ),
        Reason(
            "Suspended",
            "Its LocalQueue or ClusterQueue is stopped (`stopPolicy`).",
            "Wait until an administrator resumes the queue, or use another queue.",
        ),
        Reason("OnHold", "The job is scaled to zero.", "Scale it up."),
        Reason(
            "WaitingForPodsReady", "Pods of an admitted Workload are not ready yet.", "Look at those pods."
        ),
        Reason(
            "Waiting",
            "The same with `scheduling.detailedReasons: false`.",
            "Look at the pods of admitted Workloads that are not ready.",
        ),
        Reason(
            "AdmissionGated",
            "The annotation `kueue.x-k8s.io/admission-gated-by` names a controller that has not removed its name.",
            "Look at that controller, or remove its name.",
        ),
        Reason("InternalError", "An error of Bayplan was contained to this gang; it is retried.", REPORT),
        Reason(
            "DecisionBudgetExceeded",
            "The decision took longer than `scheduling.decisionSeconds`; it is retried.",
            "Raise the limit, or make the request simpler (fewer layers of segments, not `exact`).",
        ),
    ),
)
WORKLOADS = ReasonGroup(
    "Workloads that are admitted",
    "Conditions `QuotaReserved`, `Admitted`, `Requeued` and `PodsReady` of a Workload, and Normal events on it.",
    (
        Reason("QuotaReserved", "It has quota, and its domains if it asks for a topology."),
        Reason("Admitted", "It may start."),
        Reason(
            "NoReservation",
            "It is not admitted, because it has no quota.",
            "See the condition `QuotaReserved`.",
        ),
        Reason(
            "UnsatisfiedAdmissionChecks",
            "It has quota, and an admission check is not ready.",
            "Look at `status.admissionChecks`: the message of the check says what it waits for.",
        ),
        Reason(
            "UnsatisfiedChecks",
            "The same with `scheduling.detailedReasons: false`.",
            "Look at `status.admissionChecks`.",
        ),
        Reason(
            "PendingDelayedTopologyRequests",
            "It has quota, and its nodes are placed when the checks are ready.",
            WAIT,
        ),
        Reason(
            "SecondPassFailed",
            "The nodes that were made for it do not hold it yet; it is retried.",
            "If it repeats, compare the nodes with the pod template.",
        ),
        Reason(
            "Inadmissible",
            "It is refused as it is, until an object that it names changes.",
            "Correct what the condition `QuotaReserved` names.",
        ),
        Reason("BackoffFinished", "The backoff after an eviction is over; it is queued again."),
        Reason("Reactivated", "`spec.active` was set to true again; it is queued again."),
        Reason("ClusterQueueRestarted", "The queue was resumed; it is queued again."),
        Reason("LocalQueueRestarted", "The queue was resumed; it is queued again."),
        Reason("WaitForStart", "Not all pods are ready since admission.", "If it lasts, look at the pods."),
        Reason("WaitForRecovery", "A pod that was ready is not ready any more.", "Look at the pods."),
        Reason("Started", "All pods are ready. As an event on a job or pod: it was started."),
        Reason("Recovered", "All pods are ready again."),
        Reason(
            "PodsFailed",
            "Failed pods of a group need replacements.",
            "Create the replacements, or delete the group.",
        ),
        Reason(
            "UngatingFailed",
            "A pod could not be given its slot, because of its own fields.",
            "The message names the pod and the field: correct the pod template.",
        ),
        Reason("AdmissionCheckUpdated", "An admission check has another state."),
        Reason("ProvisioningRequestCreated", "Nodes were requested from the autoscaler."),
        Reason(
            "FailedCreate",
            "The ProvisioningRequest or its PodTemplate was refused by the API server.",
            "The message has the answer: a missing permission, a quota of objects, or a policy.",
        ),
    ),
)
EVICTIONS = ReasonGroup(
    "Evictions and the end of Workloads",
    "Conditions `Evicted`, `Preempted`, `DeactivationTarget` and `Finished` of a Workload. The event of an eviction is `EvictedDueTo` "
    "and the reason.",
    (
        Reason(
            "Preempted", "Another gang preempted it; the condition `Preempted` says on which grounds.", WAIT
        ),
        Reason("InClusterQueue", "Preempted for a gang of higher priority in the same queue.", WAIT),
        Reason("InCohortReclamation", "Its queue had borrowed quota that the owner reclaimed.", WAIT),
        Reason("InCohortReclaimWhileBorrowing", "As above, for a queue that borrows itself.", WAIT),
        Reason("InCohortFairSharing", "Its queue was further above its fair share.", WAIT),
        Reason(
            "PreemptedWorkload",
            "Event on the other side: this Workload preempted the one that the message names.",
        ),
        Reason(
            "NodeFailures",
            "Nodes failed, and no replacement fits beside the running pods. It is queued again.",
            "Repair the nodes, or let nodes be replaced for longer (`scheduling.nodeReplacementFailFast: false`).",
        ),
        Reason(
            "NodesTaken",
            "Other pods were bound to its nodes first. It is queued again.",
            "Keep pods of other schedulers off these nodes (a taint), if it repeats.",
        ),
        Reason(
            "PodsRestarted",
            "The job starts pods again whose quota it had given back. It is queued again.",
            WAIT,
        ),
        Reason(
            "TopologyPlacementFailed",
            "No domain was found in time for nodes that were made to order. It is queued again.",
            "Compare the nodes that the autoscaler makes with the pod template.",
        ),
        Reason(
            "PodsReadyTimeout",
            "Its pods were not ready in time (`jobs.waitForPodsReady`).",
            "Look at the pods: image, volumes, probes. Raise the limit if they need longer.",
        ),
        Reason(
            "RequeuingLimitExceeded",
            "That happened more often than `retriesMax`; it is deactivated.",
            "Mend the job, then set `spec.active: true` on the Workload.",
        ),
        Reason(
            "MaximumExecutionTimeExceeded",
            "It ran longer than its limit; it is deactivated.",
            "Raise the label `kueue.x-k8s.io/max-exec-time-seconds`.",
        ),
        Reason(
            "AdmissionCheck",
            "An admission check asked for a retry, or rejected it.",
            "See the message of the check.",
        ),
        Reason(
            "AdmissionCheckRejected",
            "An admission check rejected it; it is deactivated.",
            "See the message of the check; set `spec.active: true` to try again.",
        ),
        Reason(
            "Deactivated",
            "`spec.active` is false: set by a user, or by a limit (`DeactivatedDueTo…`).",
            "Set `spec.active: true` to queue it again.",
        ),
        Reason("ClusterQueueStopped", "The queue is drained (`HoldAndDrain`).", "Wait until it is resumed."),
        Reason("LocalQueueStopped", "The queue is drained (`HoldAndDrain`).", "Wait until it is resumed."),
        Reason("Succeeded", "The job has succeeded."),
        Reason("Failed", "The job has failed.", "Look at the job and its pods."),
        Reason("OutOfSync", "The job changed, and this Workload is not its own any more; a new one is made."),
        Reason("OwnerNotFound", "The job is gone."),
        Reason("WorkloadSliceReplaced", "An elastic job was resized; a new slice replaces this one."),
        Reason(
            "FailedToStart",
            "The job could not be started with the admission, for example because a selector conflicts.",
            "Correct what the message names in the pod template.",
        ),
    ),
)
JOBS = ReasonGroup(
    "Queued jobs and pods",
    "Events on jobs and pods in a queue, and conditions of pods that are stopped.",
    (
        Reason("CreatedWorkload", "The job has a Workload now, and waits in its queue."),
        Reason("UpdatedWorkload", "The Workload follows a change of the job."),
        Reason("DeletedWorkload", "A Workload that does not match the job was deleted; a new one follows."),
        Reason("FinishedWorkload", "The job is over, and its Workload says so."),
        Reason("UpdatedAdmissionCheck", "What pending admission checks say.", "Read the message."),
        Reason("Suspended", "The job is suspended until it is admitted."),
        Reason(
            "Stopped", "The job was stopped; the message has the reason of the eviction.", "See the Workload."
        ),
        Reason(
            "InvalidJob",
            "The job cannot be queued as it is written.",
            "Correct the fields that the message names.",
        ),
        Reason(
            "ErrWorkloadCompose",
            "A group of pods has no Workload: too few pods, or pods that contradict each other.",
            "Create the missing pods, or correct `pod-group-total-count`.",
        ),
        Reason(
            "WorkloadNameConflict",
            "Another Workload has the name of the group.",
            "Rename the group, or delete that Workload.",
        ),
        Reason("OwnerReferencesAdded", "Pods were added to the owners of the Workload."),
        Reason(
            "ExcessPodDeleted", "The group had more pods than it says.", "Correct `pod-group-total-count`."
        ),
        Reason(
            "NoMatchingWorkload",
            "The pods match no Workload, and are stopped.",
            "Delete and create the group again.",
        ),
        Reason("NotAdmitted", "A pod runs without an admission, and is stopped.", WAIT),
        Reason("WorkloadDeleted", "The Workload was deleted; its pods are stopped."),
        Reason(
            "WorkloadEvictedDueTo",
            "Followed by the reason of the eviction: the pod is stopped.",
            "See the Workload.",
        ),
        Reason(
            "UnschedulableOnAssignedNode",
            "The node of the pod has a taint that it does not tolerate; it is replaced elsewhere.",
            WAIT,
        ),
        Reason("PodTerminatedByKueue", "The same, as an event.", WAIT),
    ),
)
PODS = ReasonGroup(
    "Pods and groups of the scheduler",
    "Condition `PodScheduled` of pods that name Bayplan as their scheduler, the condition of their PodGroup "
    "(`PodGroupScheduled`, `PodGroupInitiallyScheduled`), and events on both.",
    (
        Reason("Scheduled", "The pod is bound; of a group: as many as its minimum are."),
        Reason(
            "FailedScheduling",
            "Event with the sentence of the condition.",
            "See the reason of the condition.",
        ),
        Reason(
            "Unschedulable",
            "Nodes were tried, and too few fit. Cluster autoscalers act on this reason.",
            "The message counts nodes by what excludes them; `bayplan explain` names the closest domain.",
        ),
        Reason(
            "WaitingForGang",
            "The gang is not complete, has gated pods, or its quota or reservation does not allow it to start.",
            "The message says what is missing: pods, the group object, a gate.",
        ),
        Reason(
            "SchedulerError",
            "No node can help: the spec is invalid, asks for something unsupported, or bound pods contradict it.",
            "Correct what the message names.",
        ),
        Reason("Preempted", "Event on a pod that was preempted.", WAIT),
        Reason("PreemptionByScheduler", "Condition `DisruptionTarget` of a pod that was preempted.", WAIT),
        Reason(
            "GangNotStarted",
            "The gang could not start completely; what had started was evicted, and the gang is retried.",
            "If it repeats, look at the events of the pods that could not be bound.",
        ),
        Reason("InternalError", "An error of Bayplan was contained to this gang; it is retried.", REPORT),
        Reason(
            "DecisionBudgetExceeded",
            "The decision took longer than `scheduling.decisionSeconds`; it is retried.",
            "Raise the limit, or make the request simpler.",
        ),
        Reason(
            "ZonesNotUnderstood",
            "Event on a node: its NodeResourceTopology report cannot be read; its zones are not used.",
            "Correct what the message names, or update the agent that writes the report.",
        ),
    ),
)
GROUPS = ReasonGroup(
    "Pod groups and queues of the KAI API",
    "`schedulingConditions` (type `UnschedulableOnNodePool`) of a PodGroup, condition `Active` of a Queue, and events on both.",
    (
        Reason(
            "PodSchedulingErrors",
            "No room: the message names the sub-group and the closest domain.",
            "Wait, free capacity there, or ask for a higher level.",
        ),
        Reason(
            "OverLimit",
            "Its queue, or one above, has reached its limit.",
            "Wait until a group of the queue ends, or raise the limit.",
        ),
        Reason(
            "NonPreemptibleOverQuota",
            "It is not preemptible, so it may only use the quota of its queue.",
            "Make it preemptible, or raise the quota.",
        ),
        Reason(
            "QueueDoesNotExist",
            "Its queue does not exist, or is the parent of other queues.",
            "Create the queue, or name one without children.",
        ),
        Reason(
            "Unschedulable",
            "Pods are missing or gated, the sub-groups make no tree, or the topology or a level does not exist.",
            "Correct what the message names.",
        ),
        Reason(
            "ParentQueueDoesNotExist",
            "The parent of the queue does not exist.",
            "Create it, or remove `parentQueue`.",
        ),
        Reason(
            "ParentQueuesInCircle", "The queue is its own ancestor.", "Correct `parentQueue` of one of them."
        ),
        Reason("ParentQueuesTooDeep", "The queue is more than 64 levels deep.", "Remove levels."),
        Reason("Ready", "The queue can be used."),
        Reason(
            "SegmentsIgnored",
            "The segment annotations have no effect: no topology, or pods without a number.",
            "Add what the message names.",
        ),
        Reason(
            "SegmentsAdjusted",
            "Segments differ from what was asked for: the size is larger than the job, or has changed.",
            "Read the message.",
        ),
        Reason(
            "DefaultsIgnored",
            "Entries of the ConfigMap with defaults by kind cannot be read.",
            "Correct the entries that the message names.",
        ),
        Reason("InternalError", "As above.", REPORT),
        Reason("DecisionBudgetExceeded", "As above.", "Raise `scheduling.decisionSeconds`."),
    ),
)
QUEUES = ReasonGroup(
    "Queues and admission checks",
    "Condition `Active` of a ClusterQueue, LocalQueue or AdmissionCheck. `bayplan list queues` shows it.",
    (
        Reason("Ready", "The queue admits Workloads."),
        Reason("Active", "The admission check is evaluated."),
        Reason("Stopped", "`stopPolicy` of the queue is not `None`.", "Set `stopPolicy: None` to resume it."),
        Reason("Terminating", "The queue is being deleted, and stays until no Workload has its quota.", WAIT),
        Reason(
            "NotProtected",
            "The finalizer of the queue was refused, so it admits nothing.",
            "Let Bayplan patch ClusterQueues: install again, and look for a policy that denies it.",
        ),
        Reason("FlavorNotFound", "A ResourceFlavor does not exist.", "Create it, or correct the name."),
        Reason(
            "TopologyNotFound",
            "The Topology of a flavor does not exist.",
            "Create it, or correct `topologyName`.",
        ),
        Reason(
            "AdmissionCheckNotFound", "An AdmissionCheck does not exist.", "Create it, or correct the name."
        ),
        Reason("AdmissionCheckInactive", "An AdmissionCheck is not active.", "See its condition `Active`."),
        Reason(
            "CohortCycle",
            "A Cohort above the queue is its own ancestor.",
            "Correct `parentName` of one of them.",
        ),
        Reason("CohortTooDeep", "More than 64 Cohorts are above the queue.", "Remove levels."),
        Reason(
            "ClusterQueueDoesNotExist",
            "The ClusterQueue of a LocalQueue does not exist.",
            "Create it, or correct the name.",
        ),
        Reason(
            "ClusterQueueIsInactive",
            "The ClusterQueue of a LocalQueue is not active.",
            "See its condition `Active`.",
        ),
        Reason(
            "BadParametersRef",
            "The check names no ProvisioningRequestConfig that exists.",
            "Correct `spec.parameters`.",
        ),
        Reason(
            "MultipleMultiKueueAdmissionChecks", "Several clusters are not supported.", "Remove the check."
        ),
        Reason("MultiKueueAdmissionCheckAppliedPerFlavor", "As above.", "Remove the check."),
        Reason("MultiKueueWithProvisioningRequest", "As above.", "Remove the check."),
        Reason("Unknown", "The queue is not active for a reason without a name.", "Report it."),
    ),
)
GROUPED = (PENDING_WORKLOADS, WORKLOADS, EVICTIONS, JOBS, PODS, GROUPS, QUEUES)
