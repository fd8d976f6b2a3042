"""Invariants of queued jobs and their pods, checked against the objects in the API after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

from bayplan.backends.fake_controllers.manifests import Object, is_finished
from bayplan.backends.fake_controllers.objects import OVER, is_terminating, phase_of
from bayplan.dialects.kueue.names.annotations import POD_SET, STOPPING, TOPOLOGY_GATE, WORKLOAD_NAME
from bayplan.model.node import HOSTNAME
from bayplan.simulator.core.checkers import labels_by_node, over_committed
from bayplan.simulator.core.documents import LastLook, once_per_listing
from bayplan.simulator.jobs.slots import SlotTable, slot_tables
from bayplan.simulator.queues.workload_view import conditions_of

List = Callable[[str], Sequence[Object]]
STRANDED_SECONDS = 60.0


@dataclass(slots=True)
class AdmissionPeriod:
    """The time during which a Workload has one admission."""

    admission: Object
    tables: dict[str, SlotTable]
    failed: set[str]  # hosts that were listed as failed at the last look


@dataclass(slots=True)
class JobGangChecker:
    """Checks gangs of jobs, and remembers their slots and the jobs as users wrote them."""

    written: Mapping[str, Object]  # jobs as they were kept at first, by uid
    periods: dict[str, AdmissionPeriod] = field(default_factory=dict)  # by the Workload's uid
    ended: dict[str, AdmissionPeriod] = field(default_factory=dict)  # those that ended at the last look
    ungated: Collection[str] = frozenset()  # pods that lost their gate, by uid
    restored: dict[str, tuple[Object, tuple[str, ...]]] = field(default_factory=dict)  # by uid, of a document
    hosts: Set[str] = frozenset()  # that existed at the last look
    taken: Collection[str] = ()  # hosts that pods outside the queues took: a gang may move away from there
    last_look: LastLook = field(default_factory=LastLook)
    settled: bool = False  # whether the last look was at the same Workloads as the one before
    stranded: dict[str, float] = field(
        default_factory=dict
    )  # pods that wait for a place not theirs, since when

    def check(self, objects: List, now: float) -> Iterator[str]:
        """Yield a sentence for each violation in the current state."""
        self.ended = {}
        pods, workloads = objects("pods"), _by_name(objects("workloads"))
        hosts = labels_by_node(objects("nodes")).keys()
        repeated = self.last_look.repeats(objects("workloads"))
        if not (repeated and self.settled):
            stayed = hosts & self.hosts
            for name, workload in workloads.items():
                violations = self._check_admission(workload, stayed)
                yield from (f"gang {name}: {one}" for one in violations)
        self.hosts, self.settled = hosts, repeated
        for name, gang_pods in _active_by_gang(pods).items():
            if name:
                violations = self._check_gang(workloads.get(name), gang_pods, now)
                yield from (f"gang {name}: {one}" for one in violations)
        yield from _over_asked(objects("nodes"), pods)
        yield from self._restored([*objects("jobs"), *objects("jobsets")])
        self.ungated = _ungated(pods)

    def _check_admission(self, workload: Object, stayed: Set[str]) -> Iterator[str]:
        """Slots change only where nodes failed; one that is deleted has failed before it is listed."""
        uid, status = workload["metadata"]["uid"], workload.get("status") or {}
        known, admission = self.periods.get(uid), status.get("admission")
        if admission is None:
            if known is not None:
                self.ended[uid] = self.periods.pop(uid)
            return
        failed = {one["name"] for one in status.get("unhealthyNodes") or ()}
        if known is None:
            self.periods[uid] = AdmissionPeriod(admission, slot_tables(workload), failed)
            return
        if admission is known.admission or admission == known.admission:
            for table in known.tables.values():
                table.before = table.slots
        else:
            for name, fresh in slot_tables(workload).items():
                before = known.tables[name]
                gone = before.hosts() - stayed
                yield from before.update(fresh.by_rank, {*known.failed, *failed, *self.taken, *gone})
        known.admission, known.failed = admission, failed

    def _check_gang(self, workload: Object | None, pods: Sequence[Object], now: float) -> Iterator[str]:
        """Each ungated pod has its own slot, that of its rank, and its gang is admitted."""
        ungated_pods = [pod for pod in pods if is_ungated(pod)]
        fresh = [pod for pod in ungated_pods if pod["metadata"]["uid"] not in self.ungated]
        uid = workload["metadata"]["uid"] if workload is not None else ""
        period = self.periods.get(uid) or self.ended.get(uid)
        if period is None:
            for pod in fresh:
                yield f"pod {pod['metadata']['name']} is ungated, but its gang is not admitted"
            return
        taken: dict[str, Counter[tuple[str, ...]]] = {}
        for pod in ungated_pods:
            table = period.tables.get(pod_set_of(pod))
            if table is not None:
                taken.setdefault(table.pod_set, Counter())[table.place_of(pod)] += 1
        for name, counts in taken.items():
            table = period.tables[name]
            for place, count in counts.items():
                if place in table.slots and count > max(table.slots[place], table.before[place]):
                    yield f"{count} pods of {name} use {table.slots[place]} slots on {place[-1]}"
        unranked = {
            pod_set_of(pod) for pod in pods if _rank(pod, period) is None
        }  # then ranks are not checked
        for pod in fresh:
            table = period.tables.get(pod_set_of(pod))
            if table is not None:
                yield from _check_slot(pod, table, ranked=pod_set_of(pod) not in unranked)
        yield from self._check_stranded(ungated_pods, period, now)

    def _check_stranded(self, pods: Iterable[Object], period: AdmissionPeriod, now: float) -> Iterator[str]:
        """No pod stays pending for a host where its gang has no slot any more."""
        for pod in pods:
            uid, table = pod["metadata"]["uid"], period.tables.get(pod_set_of(pod))
            if table is None or table.place_of(pod) in table.slots or pod["spec"].get("nodeName"):
                self.stranded.pop(uid, None)
            elif now - self.stranded.setdefault(uid, now) > STRANDED_SECONDS:
                yield f"pod {pod['metadata']['name']} waits for lost node {table.place_of(pod)[-1]}"

    def _restored(self, jobs: Iterable[Object]) -> Iterator[str]:
        """A suspended job equals what its author wrote."""
        for job in jobs:
            uid = job["metadata"]["uid"]
            known, sentences = self.restored.get(uid, (None, ()))
            if known is not job and uid in self.written:  # else it is the document of the last look
                sentences = tuple(_not_restored(job, self.written[uid]))
                self.restored[uid] = (job, sentences)
            yield from sentences


@once_per_listing
def _by_name(found: Sequence[Object]) -> Mapping[str, Object]:
    return {one["metadata"]["name"]: one for one in found}


@once_per_listing
def _active_by_gang(pods: Sequence[Object]) -> Mapping[str, Sequence[Object]]:
    """The pods that run or are pending, by Workload."""
    found: dict[str, list[Object]] = {}
    for pod in pods:
        if is_active(pod):
            found.setdefault(gang_of(pod), []).append(pod)
    return found


@once_per_listing
def _ungated(pods: Sequence[Object]) -> frozenset[str]:
    """The uids of active pods that lost their gate."""
    return frozenset(pod["metadata"]["uid"] for pod in pods if is_active(pod) and is_ungated(pod))


@once_per_listing
def _over_asked(nodes: Sequence[Object], pods: Sequence[Object]) -> tuple[str, ...]:
    """Nodes of which ungated pods ask for more than there is."""
    asking = [pod for pod in pods if is_active(pod) and is_ungated(pod)]
    return tuple(over_committed(nodes, asking, _node_asked_for))


def _not_restored(job: Object, submitted: Object) -> Iterator[str]:
    """How a suspended job differs from what its author wrote."""
    meta, spec = job["metadata"], job["spec"]
    annotations = meta.get("annotations") or {}
    if not spec.get("suspend") or STOPPING in annotations or is_finished(job):
        return
    if {**spec, "suspend": True} != {**submitted["spec"], "suspend": True}:
        difference = _differs(spec, submitted["spec"])
        yield f"job {meta['name']} is suspended and differs from what was submitted: {difference}"
    if annotations != (submitted["metadata"].get("annotations") or {}):
        yield f"job {meta['name']} is suspended with other annotations than it had"
    if meta.get("labels") != submitted["metadata"].get("labels"):
        yield f"job {meta['name']} is suspended with other labels than it had"


def _rank(pod: Object, period: AdmissionPeriod) -> int | None:
    table = period.tables.get(pod_set_of(pod))
    return None if table is None else table.rank_of(pod)


def _check_slot(pod: Object, table: SlotTable, *, ranked: bool) -> Iterator[str]:
    """A pod that was just ungated has a slot of its gang, that of its rank."""
    name, place = pod["metadata"]["name"], table.place_of(pod)
    rank = table.rank_of(pod) if ranked else None
    if place not in table.slots and place not in table.before:
        yield f"pod {name} was assigned to {place}, where its gang has no slot"
    elif rank is not None and not table.allows(rank, place) and place in table.slots:
        yield f"pod {name} has rank {rank}, whose slot is {table.by_rank[rank]}, but was assigned to {place}"


def is_active(pod: Object) -> bool:
    """Whether a pod runs or is pending."""
    return phase_of(pod) not in OVER and not is_terminating(pod)


def is_ungated(pod: Object) -> bool:
    """Whether the topology gate of a gang's pod was removed."""
    gates = pod["spec"].get("schedulingGates") or ()
    return bool(gang_of(pod)) and not any(gate["name"] == TOPOLOGY_GATE for gate in gates)


def gang_of(pod: Object) -> str:
    """The Workload of a pod, or an empty string."""
    return str((pod["metadata"].get("annotations") or {}).get(WORKLOAD_NAME, ""))


def pod_set_of(pod: Object) -> str:
    """The pod set of a pod."""
    return str((pod["metadata"].get("labels") or {}).get(POD_SET, ""))


def _node_asked_for(pod: Object) -> str:
    """The node of a pod, also if it is not bound yet to the node of its selector."""
    spec = pod["spec"]
    return str(spec.get("nodeName") or (spec.get("nodeSelector") or {}).get(HOSTNAME, ""))


def _differs(one: object, other: object, path: str = "spec") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if key != "suspend" and one.get(key) != other.get(key):
                return _differs(one.get(key), other.get(key), f"{path}.{key}")
    return f"{path} is {one} instead of {other}"


# ── at the end ─────────────────────────────────────────────────────────────────────────────────────


def final_violations(objects: List, written: Mapping[str, Object]) -> Iterator[str]:
    """At the end: jobs are finished or pending with a reason, and no object is left over."""
    jobs = [job for job in (*objects("jobs"), *objects("jobsets")) if job["metadata"]["uid"] in written]
    workloads = {_owner(workload): workload for workload in objects("workloads")}
    existing = {obj["metadata"]["uid"] for plural in ("jobs", "jobsets") for obj in objects(plural)}
    pods = objects("pods")
    for job in jobs:
        yield from _check_end(job, workloads.get(job["metadata"]["uid"]))
    for workload in objects("workloads"):
        name = workload["metadata"]["name"]
        if _owner(workload) not in existing:
            yield f"workload {name} is left of a deleted job"
        own_pods = [pod for pod in pods if gang_of(pod) == name and is_active(pod)]
        gated = sum(not is_ungated(pod) for pod in own_pods)
        if gated and (gated < len(own_pods) or conditions_of(workload).get("Admitted")):
            yield f"gang {name} has {gated} of {len(own_pods)} pods gated forever"
        if conditions_of(workload).get("Finished") and workload["metadata"].get("finalizers"):
            yield f"workload {name} is finished and keeps {workload['metadata']['finalizers']}"
    for plural in ("jobs", "jobsets", "workloads", "pods"):
        for obj in objects(plural):
            if is_terminating(obj):
                yield f"{plural} {obj['metadata']['name']} is being deleted forever"
    for pod in pods:
        if not any(ref["uid"] in existing for ref in pod["metadata"].get("ownerReferences") or ()):
            yield f"pod {pod['metadata']['name']} is left of a deleted job"


def _check_end(job: Object, workload: Object | None) -> Iterator[str]:
    """A job is finished, or suspended with a pending Workload."""
    name, conditions = job["metadata"]["name"], conditions_of(workload or {})
    job_conditions = (job.get("status") or {}).get("conditions") or ()
    if is_finished(job) or any(c["type"] == "Completed" and c["status"] == "True" for c in job_conditions):
        if workload is not None and not conditions.get("Finished"):  # it may have been deleted
            yield f"job {name} is finished and its workload is not"
    elif workload is None:
        yield f"job {name} has no workload"
    elif conditions.get("Finished"):
        yield f"workload of job {name} is finished and the job is not"
    elif conditions.get("QuotaReserved"):
        yield f"job {name} has quota and does not finish"
    elif not job["spec"].get("suspend"):
        yield f"job {name} is pending and not suspended"


def _owner(workload: Object) -> str:
    owners = workload["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")
