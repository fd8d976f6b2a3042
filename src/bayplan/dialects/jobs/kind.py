"""The entry of a job kind: everything that any part of Bayplan knows about it.

Entries hold data, and functions that read objects of the kind. How a family interprets them is in the family:
the queue integration reads pod sets, suspension and serving, the pod grouper reads `grouping`, the scheduler
reads `ranks`, and the installation reads `changes` and `access`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.injection import Injected
from bayplan.dialects.jobs.part import Find, JobPart
from bayplan.dialects.jobs.status import JobStatusReader
from bayplan.dialects.kube.fields.reader import Field

Object = dict[str, Any]
Path = tuple[str, ...]
Parts = Callable[[Field, Find], list[JobPart]]
Inject = Callable[[Object, Sequence[Injected], Find], None]
Restore = Callable[[Object, Sequence[Object]], None]

SUSPEND = ("spec", "suspend")
BUILT_IN = ("", "apps", "batch")
"""API groups that every cluster has; kinds of other groups may be missing."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """What the rules of a kind need to know about the queue of a job."""

    queued: bool  # it names a queue, or jobs without one are managed too
    asks_elastic: bool = False  # its annotation says that it may be resized while it runs
    elastic: bool = False  # and that is enabled


Check = Callable[[Field, QueuedJob], None]
CheckUpdate = Callable[[Field, Field, QueuedJob], None]


class GroupBy(Enum):
    """What the pods of an owner share a group by."""

    OWNER = "all pods of the owner; one starts it"
    TOP = "the same, but without segments, and only the topmost owner names its priority"
    BELOW = "the next owner below it: the kind only wraps others"
    POD = "each pod by itself"
    POD_OF_JOB = "each pod of a Job by itself, unless the Job has segments"
    CHILD_JOB = "the Job that the owner created"
    RUN = "each parallel run, by the name of the pod"
    APPLICATION = "the application that plain pods name, else the pod"
    POD_SET = "all pods of its only pod set at once"
    REPLICATED_JOBS = "all replicated jobs, or each if they start in order"
    REPLICA_TYPES = "all replicas, with a sub-group for each type"
    LEADERS = "each leader with its workers"
    REVISION = "each revision of a service"
    CLUSTER = "a head and groups of workers"
    POD_GANG = "the object that the owner created for each gang"
    NODE_COUNT = "all pods of the owner; a field counts them"


@dataclass(frozen=True, slots=True)
class Grouping:
    """How the pod grouper makes groups of the pods of an owner."""

    by: GroupBy = GroupBy.OWNER
    work: str = "train"  # the priority class of the kind
    specs: str = ""  # the field with the map of replica types
    mandatory: tuple[str, ...] = ()  # replica types without which the job is invalid
    always: bool = False  # sub-groups for replica types also without segments
    elastic: bool = False  # elasticPolicy.minReplicas is the minimum
    waits: bool = False  # the launcher may be created after the workers are ready
    one_replica: bool = False  # spec.replicas defaults to 1
    count: Path = ()  # where the number of pods is
    cluster: Path = ()  # where the spec of the cluster is
    cluster_names: tuple[Path, ...] = ()  # where the names of the clusters that it created are
    of_pod: bool = False  # the cluster that owns the pod comes first


@dataclass(frozen=True, slots=True)
class Ranks:
    """How a pod tells its job, its pod set and its rank, where the scheduler takes the job for a gang.

    Labels of pods; without `owner`, the owner reference names the job.
    """

    index: str
    owner: str = ""
    pod_set: str = ""
    outer: str = ""  # counts before `index`
    names: str = ""  # CEL: a pod template of the object names the scheduler SCHEDULER


@dataclass(frozen=True, slots=True)
class Serving:
    """A kind without a suspend flag: its pods are gated one by one, and know of it by an annotation."""

    parent: str  # the name of the kind in that annotation
    queue: bool = True  # the template gets the queue and priority class of the object
    managed: bool = False  # the template gets the label of managed pods
    marked: bool = False  # the template gets the annotation of serving pods
    only_top: bool = False  # not if the object has an owner
    ahead: bool = False  # its Workloads are created before the pods, which join them
    owner_label: str = ""  # the label of a pod that names the object; empty: the controlling reference
    copy_label: str = ""  # the label of a pod with the number of its copy
    group: Callable[[Field, Field], tuple[int, str]] | None = None  # pod, object: pods of its gang, its role


@dataclass(frozen=True, slots=True)
class Resizing:
    """A kind whose jobs may be scaled while they run."""

    in_place: bool = True  # by a new slice of the Workload; else the job is restarted
    gated_at_start: bool = False  # the gate of new pods is added when the job starts, not on creation
    child: str = ""  # the kind of the child whose size counts
    find_child: Callable[[Field, Find], Object | None] | None = None


@dataclass(frozen=True, slots=True)
class JobKind:
    """One kind. Without `parts` it cannot be queued, and only owns pods."""

    kind: str
    group: str  # "" for the core group
    version: str
    plural: str
    parts: Parts | None = None
    older: tuple[str, ...] = ()  # versions that owners of pods may have too

    # pods
    copies: Callable[[Field], int] | None = None  # how many gangs the job consists of; None: one
    index_label: str = ""  # the label with the index of a pod; segments are cut by it
    ranks: Ranks | None = None  # for kinds that are gangs of the scheduler without a queue
    grouping: Grouping | None = None  # None: the grouper does not look at objects of the kind
    looked_up: bool = False  # the grouper looks objects up by name too
    names_pods: bool = False  # an object names its pods, so a change concerns each of them
    offsets: bool = False  # the indexes of a pod set may not start at 0: its pods are told by how much
    replica_specs: str = ""  # the field with the map of replica types, if the kind has one
    copies_metadata: bool = True  # Workloads copy the metadata of the template
    is_pod: bool = False  # the object is a pod, gated itself

    # starting and stopping
    suspend: Path = ()  # path of the suspend flag; empty: its pods are gated instead
    status_reader: JobStatusReader | None = None  # None for kinds without a suspend flag
    inject: Inject | None = None  # injects pod set infos elsewhere than into the pod templates
    restore: Restore | None = None  # undoes `inject`
    in_steps: bool = False  # the spec can only be changed while it is suspended and has no pods
    clears_start_time: bool = False  # the template can only be changed while the status has no startTime
    controller_labels: tuple[str, ...] = ()  # pod template labels written by the kind's own controller
    run_labels: tuple[str, ...] = ()  # those that differ from run to run
    serving: Serving | None = None
    job_labels: Path = ()  # labels for the Job that its controller creates, which is queued in its place
    resizing: Resizing | None = None
    partial: bool = False  # it may be admitted with fewer pods than it asks for
    prebuilt: bool = True  # the job may name a prebuilt Workload
    references: tuple[Kind, ...] = ()  # kinds of objects that its pod sets depend on

    # webhooks
    default: Callable[[Object], None] | None = None  # what is added to a queued job on creation
    check: Check | None = None
    check_update: CheckUpdate | None = None

    # owners
    creates_pods: bool = False  # a controller of Kubernetes itself creates the pods
    between: bool = False  # an object of the kind may stand between a pod and its job
    never_queued: bool = False  # its pods are never queued

    # installation
    changes: tuple[str, ...] = ()  # CEL: what must hold for a change of a job by our account

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> Kind:
        """The API resource."""
        return Kind(self.group, self.version, self.kind, self.plural, optional=self.group not in BUILT_IN)

    @property
    def versions(self) -> Iterator[Kind]:
        """The API resource in each version; the current one is last."""
        optional = self.group not in BUILT_IN
        for version in (*self.older, self.version):
            yield Kind(self.group, version, self.kind, self.plural, optional=optional)

    @property
    def elastic(self) -> bool:
        return self.resizing is not None

    @property
    def resized_in_place(self) -> bool:
        return self.resizing is not None and self.resizing.in_place

    @property
    def ahead(self) -> bool:
        """Whether its Workloads are created before the pods, and owned but not controlled by it."""
        return self.serving is not None and self.serving.ahead

    @property
    def reconciled(self) -> bool:
        """Whether the jobs controller reconciles objects of the kind."""
        return bool(self.suspend) or self.ahead

    @property
    def access(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """The resources that the admission role writes for a job, each with the verbs."""
        if self.suspend:
            yield self.plural, ("patch",)
            yield f"{self.plural}/finalizers", ("update",)  # to be an owner of Workloads
        if self.clears_start_time:
            yield f"{self.plural}/status", ("patch",)
