"""What must always hold of queued jobs and their pods, read from the API's own objects after every step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bayplan.backends.fake_controllers.manifests import Object, is_finished
from bayplan.backends.fake_controllers.objects import OVER, is_leaving, phase_of
from bayplan.dialects.kueue.names.annotations import POD_SET, STOPPING, TOPOLOGY_GATE, WORKLOAD_NAME
from bayplan.model.node import HOSTNAME
from bayplan.simulator.core.checkers import over_committed
from bayplan.simulator.jobs.slots import SlotTable, slot_tables
from bayplan.simulator.queues.workload_view import conditions_of

List = Callable[[str], Sequence[Object]]
STRANDED_SECONDS = 60.0


@dataclass(slots=True)
class AdmissionPeriod:
    """A Workload while it has an admission."""

    admission: Object
    seats: dict[str, SlotTable]
    failed: set[str]  # hosts that were listed as failed at the last look


@dataclass(slots=True)
class JobGangChecker:
    """Remembers what a single look cannot see: who had which place, and what people wrote."""

    written: Mapping[str, Object]  # jobs as they were kept at first, by uid
    stays: dict[str, AdmissionPeriod] = field(default_factory=dict)  # by the Workload's uid
    left: dict[str, AdmissionPeriod] = field(default_factory=dict)  # those that ended at the last look
    ungated: set[str] = field(default_factory=set)  # pods that lost their gate, by uid
    vain: dict[str, float] = field(default_factory=dict)  # pods that wait for a place not theirs, since when

    def check(self, objects: List, now: float) -> Iterator[str]:
        """Everything that is wrong right now."""
        pods = [pod for pod in objects("pods") if is_active(pod)]
        crews: dict[str, list[Object]] = {}
        for pod in pods:
            crews.setdefault(gang_of(pod), []).append(pod)
        self.left = {}
        workloads = {one["metadata"]["name"]: one for one in objects("workloads")}
        for name, workload in workloads.items():
            yield from (f"gang {name}: {one}" for one in self._stay(workload))
        for name, fake_controllers in crews.items():
            if name:
                found = self._crew(workloads.get(name), fake_controllers, now)
                yield from (f"gang {name}: {one}" for one in found)
        yield from over_committed(objects("nodes"), [_sent(pod) for pod in pods if is_ungated(pod)])
        yield from self._restored([*objects("jobs"), *objects("jobsets")])
        self.ungated = {pod["metadata"]["uid"] for pod in pods if is_ungated(pod)}

    def _stay(self, workload: Object) -> Iterator[str]:
        """Places change only where nodes failed."""
        uid, status = workload["metadata"]["uid"], workload.get("status") or {}
        known, admission = self.stays.get(uid), status.get("admission")
        if admission is None:
            if known is not None:
                self.left[uid] = self.stays.pop(uid)
            return
        listed = {one["name"] for one in status.get("unhealthyNodes") or ()}
        if known is None:
            self.stays[uid] = AdmissionPeriod(admission, slot_tables(workload), listed)
            return
        if admission == known.admission:
            for seat in known.seats.values():
                seat.before = seat.slots
        else:
            for name, fresh in slot_tables(workload).items():
                yield from known.seats[name].moves(fresh.by_rank, known.failed | listed)
        known.admission, known.failed = admission, listed

    def _crew(self, workload: Object | None, pods: Sequence[Object], now: float) -> Iterator[str]:
        """Each pod in a slot of its own, that of its rank, and none that was not let go."""
        free = [pod for pod in pods if is_ungated(pod)]
        fresh = [pod for pod in free if pod["metadata"]["uid"] not in self.ungated]
        uid = workload["metadata"]["uid"] if workload is not None else ""
        stay = self.stays.get(uid) or self.left.get(uid)
        if stay is None:
            for pod in fresh:
                yield f"pod {pod['metadata']['name']} may go, and its gang is not admitted"
            return
        taken: dict[str, Counter[tuple[str, ...]]] = {}
        for pod in free:
            seat = stay.seats.get(pod_set_of(pod))
            if seat is not None:
                taken.setdefault(seat.pod_set, Counter())[seat.place_of(pod)] += 1
        for name, counts in taken.items():
            seat = stay.seats[name]
            for place, count in counts.items():
                if place in seat.slots and count > max(seat.slots[place], seat.before[place]):
                    yield f"{count} pods of {name} stand in {seat.slots[place]} slots on {place[-1]}"
        unranked = {pod_set_of(pod) for pod in pods if _rank(pod, stay) is None}  # then nobody's rank counts
        for pod in fresh:
            seat = stay.seats.get(pod_set_of(pod))
            if seat is not None:
                yield from _rightly(pod, seat, ranked=pod_set_of(pod) not in unranked)
        yield from self._in_vain(free, stay, now)

    def _in_vain(self, pods: Iterable[Object], stay: AdmissionPeriod, now: float) -> Iterator[str]:
        """Nobody waits for long for a host where its gang has no slot any more."""
        for pod in pods:
            uid, seat = pod["metadata"]["uid"], stay.seats.get(pod_set_of(pod))
            if seat is None or seat.place_of(pod) in seat.slots or pod["spec"].get("nodeName"):
                self.vain.pop(uid, None)
            elif now - self.vain.setdefault(uid, now) > STRANDED_SECONDS:
                yield f"pod {pod['metadata']['name']} waits for lost node {seat.place_of(pod)[-1]}"

    def _restored(self, jobs: Iterable[Object]) -> Iterator[str]:
        """A job that is held back is what its author wrote."""
        for job in jobs:
            meta, spec = job["metadata"], job["spec"]
            first = self.written.get(meta["uid"])
            notes = meta.get("annotations") or {}
            if first is None or not spec.get("suspend") or STOPPING in notes or is_finished(job):
                continue
            if {**spec, "suspend": True} != {**first["spec"], "suspend": True}:
                why = _differs(spec, first["spec"])
                yield f"job {meta['name']} is held back and is not what it was: {why}"
            if notes != (first["metadata"].get("annotations") or {}):
                yield f"job {meta['name']} is held back with other annotations than it had"
            if meta.get("labels") != first["metadata"].get("labels"):
                yield f"job {meta['name']} is held back with other labels than it had"


def _rank(pod: Object, stay: AdmissionPeriod) -> int | None:
    seat = stay.seats.get(pod_set_of(pod))
    return None if seat is None else seat.rank_of(pod)


def _rightly(pod: Object, seat: SlotTable, *, ranked: bool) -> Iterator[str]:
    """A pod that was just let go is where it belongs."""
    name, place = pod["metadata"]["name"], seat.place_of(pod)
    rank = seat.rank_of(pod) if ranked else None
    if place not in seat.slots and place not in seat.before:
        yield f"pod {name} was sent to {place}, where its gang has no slot"
    elif rank is not None and not seat.suits(rank, place) and place in seat.slots:
        yield f"pod {name} has rank {rank}, whose place is {seat.by_rank[rank]}, and was sent to {place}"


def is_active(pod: Object) -> bool:
    """Whether a pod runs, or will."""
    return phase_of(pod) not in OVER and not is_leaving(pod)


def is_ungated(pod: Object) -> bool:
    """Whether a pod of a gang was told where to go."""
    gates = pod["spec"].get("schedulingGates") or ()
    return bool(gang_of(pod)) and not any(gate["name"] == TOPOLOGY_GATE for gate in gates)


def gang_of(pod: Object) -> str:
    """The Workload that a pod belongs to, if any."""
    return str((pod["metadata"].get("annotations") or {}).get(WORKLOAD_NAME, ""))


def pod_set_of(pod: Object) -> str:
    """The pod set of a pod."""
    return str((pod["metadata"].get("labels") or {}).get(POD_SET, ""))


def _sent(pod: Object) -> Object:
    """A pod as if it were on its node already."""
    spec = pod["spec"]
    told = (spec.get("nodeSelector") or {}).get(HOSTNAME, "")
    return {**pod, "spec": {**spec, "nodeName": spec.get("nodeName") or told}}


def _differs(one: object, other: object, path: str = "spec") -> str:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            if key != "suspend" and one.get(key) != other.get(key):
                return _differs(one.get(key), other.get(key), f"{path}.{key}")
    return f"{path} is {one} instead of {other}"


# ── at the end ─────────────────────────────────────────────────────────────────────────────────────


def final_violations(objects: List, written: Mapping[str, Object]) -> Iterator[str]:
    """After the faults, when nothing will happen any more: whoever can is finished, nothing is left over."""
    jobs = [job for job in (*objects("jobs"), *objects("jobsets")) if job["metadata"]["uid"] in written]
    workloads = {_owner(workload): workload for workload in objects("workloads")}
    there = {obj["metadata"]["uid"] for plural in ("jobs", "jobsets") for obj in objects(plural)}
    pods = objects("pods")
    for job in jobs:
        yield from _ended(job, workloads.get(job["metadata"]["uid"]))
    for workload in objects("workloads"):
        name = workload["metadata"]["name"]
        if _owner(workload) not in there:
            yield f"workload {name} is left of a job that is no more"
        mine = [pod for pod in pods if gang_of(pod) == name and is_active(pod)]
        gated = sum(not is_ungated(pod) for pod in mine)
        if gated and (gated < len(mine) or conditions_of(workload).get("Admitted")):
            yield f"gang {name} has {gated} of {len(mine)} pods gated forever"
        if conditions_of(workload).get("Finished") and workload["metadata"].get("finalizers"):
            yield f"workload {name} is finished and keeps {workload['metadata']['finalizers']}"
    for plural in ("jobs", "jobsets", "workloads", "pods"):
        for obj in objects(plural):
            if is_leaving(obj):
                yield f"{plural} {obj['metadata']['name']} is being deleted forever"
    for pod in pods:
        if not any(ref["uid"] in there for ref in pod["metadata"].get("ownerReferences") or ()):
            yield f"pod {pod['metadata']['name']} is left of a job that is no more"


def _ended(job: Object, workload: Object | None) -> Iterator[str]:
    """A job is finished, or is held back with a Workload that waits and was told why."""
    name, conditions = job["metadata"]["name"], conditions_of(workload or {})
    told = (job.get("status") or {}).get("conditions") or ()
    if is_finished(job) or any(c["type"] == "Completed" and c["status"] == "True" for c in told):
        if workload is not None and not conditions.get("Finished"):  # somebody may have deleted it
            yield f"job {name} is over and its workload is not"
    elif workload is None:
        yield f"job {name} has no workload"
    elif conditions.get("Finished"):
        yield f"workload of job {name} is over and the job is not"
    elif conditions.get("QuotaReserved"):
        yield f"job {name} has quota and does not finish"
    elif not job["spec"].get("suspend"):
        yield f"job {name} waits and is not held back"


def _owner(workload: Object) -> str:
    owners = workload["metadata"].get("ownerReferences") or ()
    return next((str(one["uid"]) for one in owners if one.get("controller")), "")
