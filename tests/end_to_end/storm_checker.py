"""Judges a cluster by its API alone: every state that pods and Workloads were in, one after the other.

`resourceVersion` is one clock for everything in the store, so what watches of different kinds have told
can be put into the order in which it happened, and each state in between is looked at. A pod stands from
the moment it loses its gate until it is over or being deleted; what becomes of its place after that is
between the kubelet and kube-scheduler.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

KUEUE = "kueue.x-k8s.io/"
GATE = f"{KUEUE}topology"
REQUIRED, SEGMENT = f"{KUEUE}podset-required-topology", f"{KUEUE}podset-slice-required-topology"
SEGMENT_SIZE = f"{KUEUE}podset-slice-size"
INDEX, JOB_INDEX = "batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/job-index"
HOST, GPU = "kubernetes.io/hostname", "nvidia.com/gpu"
OVER = ("Succeeded", "Failed")
Object = dict[str, Any]
Slots = dict[str, tuple[str, ...]]  # by pod set: the host of each rank


@dataclass(frozen=True, slots=True)
class Seen:
    """A state of one object, as the API told it."""

    version: int
    at: float  # seconds, when it was told
    obj: Object
    gone: bool = False
    unsure: bool = False  # from now on: it changed while nobody watched, and holds nothing until seen again


@dataclass(frozen=True, slots=True)
class Held:
    """What a Workload holds while it has a reservation."""

    queue: str
    amount: int
    slots: Slots
    each: Mapping[str, int]  # GPUs of a pod, by pod set
    counts: Mapping[str, int]  # pods that were asked for, by pod set

    def load(self) -> Counter[str]:
        found = Counter[str]()
        for name, hosts in self.slots.items():
            for host in hosts:
                found[host] += self.each[name]
        return found


@dataclass(slots=True)
class Gang:
    """A Workload and the pods that name it."""

    workload: Object | None = None
    held: Held | None = None
    pods: dict[str, Object] = field(default_factory=dict)  # by uid
    since: float | None = None  # some pods stand and others are gated
    unsure: bool = False


class Checker:
    """Folds states in the order in which they were, and notes what none of them may show."""

    def __init__(self, nodes: Iterable[Object], queues: Iterable[Object], patience: float) -> None:
        self.labels = {one["metadata"]["labels"][HOST]: one["metadata"]["labels"] for one in nodes}
        self.room = {one["metadata"]["labels"][HOST]: int(one["status"]["allocatable"][GPU]) for one in nodes}
        self.purses, self.budgets = _budgets(queues)
        self.patience = patience
        self.gangs: dict[str, Gang] = {}
        self.promised, self.loaded, self.spent = Counter[str](), Counter[str](), Counter[str]()
        self.found: dict[str, str] = {}  # each violation once, with the first moment it was seen
        self.moment = ""

    def judge(self, history: Iterable[Seen]) -> list[str]:
        """All that was ever wrong, in order."""
        for seen in sorted(history, key=lambda seen: seen.version):
            self.moment = f"version {seen.version}, {seen.at:.1f} s"
            if seen.obj["kind"] == "Pod":
                self._pod(seen)
            else:
                self._workload(seen)
        return [f"{sentence} ({moment})" for sentence, moment in self.found.items()]

    # ── Workloads ─────────────────────────────────────────────────────────────────────────────────

    def _workload(self, seen: Seen) -> None:
        name = seen.obj["metadata"]["name"]
        gang = self.gangs.setdefault(name, Gang())
        before, gang.held = gang.held, None if seen.gone else held(seen.obj)
        gang.workload, gang.unsure = None if seen.gone else seen.obj, seen.unsure
        if seen.unsure:
            self._rebook(before, None)
            gang.held = None
            return
        if before != gang.held:
            if before and gang.held and before.slots != gang.held.slots:
                self._note(name, "was moved while it held its place")
            self._rebook(before, gang.held)
            if gang.held:
                self._check_whole(name, seen.obj, gang.held)
        evicted = condition(seen.obj, "Evicted")
        if evicted.get("status") == "True" and evicted.get("reason") != "Preempted":
            self._note(name, f"was evicted: {evicted.get('reason')}, {evicted.get('message')}")
        for pod in gang.pods.values():
            if stands(pod):
                self._check_pod(name, gang, pod)

    def _rebook(self, before: Held | None, after: Held | None) -> None:
        for one, sign in ((before, -1), (after, 1)):
            if one is not None:
                self.spent[self.purses.get(one.queue, one.queue)] += sign * one.amount
                for host, amount in one.load().items():
                    self.promised[host] += sign * amount
        if after is not None:
            purse = self.purses.get(after.queue, after.queue)
            if self.spent[purse] > self.budgets.get(purse, 0):
                self._note(purse, f"gave {self.spent[purse]} of {self.budgets.get(purse, 0)} {GPU}")
            for host in sorted(after.load()):
                if self.promised[host] > self.room.get(host, 0):
                    told = f"{self.promised[host]} of {self.room.get(host, 0)} {GPU} are promised"
                    self._note(host, told)

    def _check_whole(self, name: str, workload: Object, given: Held) -> None:
        """A place for each pod that is to run, even when quota comes back as the first of them end."""
        over = reclaimed(workload)
        for pod_set in workload["spec"]["podSets"]:
            places = len(given.slots.get(pod_set["name"], ()))
            if not pod_set["count"] - over.get(pod_set["name"], 0) <= places <= pod_set["count"]:
                told = f"holds {places} places for {pod_set['count']} pods of {pod_set['name']}"
                self._note(name, told)

    # ── pods ──────────────────────────────────────────────────────────────────────────────────────

    def _pod(self, seen: Seen) -> None:
        meta = seen.obj["metadata"]
        name = (meta.get("annotations") or {}).get(f"{KUEUE}workload", "")
        gang = self.gangs.setdefault(name, Gang())
        before = gang.pods.get(meta["uid"])
        if before and stands(before):
            self.loaded[host_of(before)] -= gpus(before)
        if seen.gone or seen.unsure:
            gang.pods.pop(meta["uid"], None)
        else:
            gang.pods[meta["uid"]] = seen.obj
            if stands(seen.obj):
                self._check_pod(name, gang, seen.obj)
                self._load(seen.obj)
        self._check_partial(name, gang, seen.at)

    def _load(self, pod: Object) -> None:
        host = host_of(pod)
        self.loaded[host] += gpus(pod)
        if self.loaded[host] > self.room.get(host, 0):
            told = f"pods of {self.loaded[host]} stand on {self.room.get(host, 0)} {GPU}"
            self._note(host or "(no host)", told)

    def _check_pod(self, name: str, gang: Gang, pod: Object) -> None:
        called = pod["metadata"]["name"]
        if gang.unsure:
            return
        if gang.held is None or condition(gang.workload or {}, "Admitted").get("status") != "True":
            self._note(called, f"stands, but its Workload {name or '(none)'} is not admitted")
            return
        host, bound = host_of(pod), pod["spec"].get("nodeName") or host_of(pod)
        if bound != host:
            self._note(called, f"was sent to {host} and is on {bound}")
        part = pod["metadata"]["labels"].get(f"{KUEUE}podset", "")
        slots = gang.held.slots.get(part, ())
        crew = [
            one
            for one in gang.pods.values()
            if stands(one) and one["metadata"]["labels"].get(f"{KUEUE}podset", "") == part
        ]
        there = sum(host_of(one) == host for one in crew)
        if there > slots.count(host):
            self._note(name, f"has {there} pods on {host}, which is given to {slots.count(host)}")
        rank = rank_of(pod, len(slots))
        is_whole = len(slots) == gang.held.counts.get(part)  # else some ranks were over when it came back
        if is_whole and (not 0 <= rank < len(slots) or slots[rank] != host):
            self._note(called, f"has rank {rank} and stands on {host}; the ranks are {' '.join(slots)}")
        self._check_close(called, pod, slots)

    def _check_close(self, called: str, pod: Object, slots: Sequence[str]) -> None:
        """All of a pod set in one domain of the required level, each segment in one of its level."""
        asked = pod["metadata"].get("annotations") or {}
        for level, size in (
            (asked.get(REQUIRED), len(slots)),
            (asked.get(SEGMENT), int(asked.get(SEGMENT_SIZE, "1"))),
        ):
            for first in range(0, len(slots), size) if level else ():
                domains = {self._domain(host, level or "") for host in slots[first : first + size]}
                if len(domains) > 1:
                    self._note(called, f"ranks {first} to {first + size - 1} are in {sorted(domains)}")

    def _domain(self, host: str, level: str) -> str:
        return str(self.labels.get(host, {}).get(level, f"(none of {host})"))

    def _check_partial(self, name: str, gang: Gang, now: float) -> None:
        living = [pod for pod in gang.pods.values() if not is_leaving(pod)]
        standing = sum(stands(pod) for pod in living)
        gated = sum(is_gated(pod) for pod in living)
        if gang.since is not None and now - gang.since > self.patience:
            self._note(name, f"was partial for {now - gang.since:.0f} s")
            gang.since = None
        if not (standing and gated):
            gang.since = None
        elif gang.since is None:
            gang.since = now

    def _note(self, about: str, sentence: str) -> None:
        self.found.setdefault(f"{about}: {sentence}", self.moment)


def left(
    jobs: Iterable[Object], workloads: Iterable[Object], pods: Iterable[Object], queues: Iterable[Object]
) -> Iterator[str]:
    """What is not over yet, when all jobs should be."""
    for job in jobs:
        if not any(condition(job, kind).get("status") == "True" for kind in ("Complete", "Completed")):
            yield f"{job['kind']} {job['metadata']['name']} is not complete"
    for workload in workloads:
        if condition(workload, "Finished").get("status") != "True":
            yield f"Workload {workload['metadata']['name']} is not finished"
    for pod in pods:
        if is_gated(pod):
            yield f"Pod {pod['metadata']['name']} is gated"
        elif pod["status"].get("phase") not in OVER:
            yield f"Pod {pod['metadata']['name']} is {pod['status'].get('phase')}"
    for queue in queues:
        status = queue.get("status") or {}
        for key in ("flavorsReservation", "flavorsUsage"):
            for flavor in status.get(key) or ({"resources": [{"total": "unknown"}]},):
                for resource in flavor["resources"]:
                    if resource["total"] != "0":
                        yield f"{queue['metadata']['name']}: {key} is {resource['total']}"
        for key in ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads"):
            if status.get(key):
                yield f"{queue['metadata']['name']}: {key} is {status[key]}"


def forgotten(jobs: Iterable[Object], pods: Iterable[Object]) -> list[str]:
    """Jobs that may run and have fewer pods than they need; to make them is the Job controller's part."""
    there = Counter(
        owner["uid"]
        for pod in pods
        if not is_leaving(pod) and pod["status"].get("phase") != "Failed"
        for owner in pod["metadata"].get("ownerReferences") or ()
    )
    return [
        job["metadata"]["name"]
        for job in jobs
        if not job["spec"].get("suspend")
        and condition(job, "Complete").get("status") != "True"
        and there[job["metadata"]["uid"]] < job["spec"]["completions"]
    ]


def unstarted(pods: Iterable[Object]) -> list[str]:
    """Pods that are bound and do not run; kwok, which stands for the kubelets, has to start them."""
    return [
        pod["metadata"]["name"]
        for pod in pods
        if pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending" and not is_leaving(pod)
    ]


# ── reading ───────────────────────────────────────────────────────────────────────────────────────


def held(workload: Object) -> Held | None:
    """What a Workload holds: nothing without a reservation, or when it is finished."""
    admission = (workload.get("status") or {}).get("admission")
    reserved = condition(workload, "QuotaReserved").get("status") == "True"
    if not admission or not reserved or condition(workload, "Finished").get("status") == "True":
        return None
    each = {one["name"]: gpus(one["template"]) for one in workload["spec"]["podSets"]}
    counts = {one["name"]: one["count"] for one in workload["spec"]["podSets"]}
    over = reclaimed(workload)
    parts = {one["name"]: one for one in admission["podSetAssignments"]}
    amount = sum(
        each[name] * min(part["count"], counts[name] - over.get(name, 0)) for name, part in parts.items()
    )
    slots = {name: _hosts(part.get("topologyAssignment") or {}) for name, part in parts.items()}
    return Held(admission["clusterQueue"], amount, slots, each, counts)


def reclaimed(workload: Object) -> dict[str, int]:
    """Pods that are over while others of their pod set still run; their quota is given back."""
    return {one["name"]: one["count"] for one in workload["status"].get("reclaimablePods") or ()}


def _hosts(assignment: Object) -> tuple[str, ...]:
    """The host of each rank, from the compact form of v1beta2; hosts are the last level."""
    found: list[str] = []
    for part in assignment.get("slices") or ():
        count, values, pods = part["domainCount"], part["valuesPerLevel"][-1], part["podCounts"]
        several = values.get("individual") or {}
        ends = several.get("prefix", ""), several.get("suffix", "")
        hosts = [f"{ends[0]}{root}{ends[1]}" for root in several.get("roots", ())]
        counts = pods.get("individual") or [pods["universal"]] * count
        for host, number in zip(hosts or [values["universal"]] * count, counts, strict=True):
            found += [host] * number
    return tuple(found)


def _budgets(queues: Iterable[Object]) -> tuple[dict[str, str], Counter[str]]:
    """Whose quota a queue may use (its cohort's, if it is in one), and how much that is."""
    purses: dict[str, str] = {}
    budgets = Counter[str]()
    for queue in queues:
        name, spec = queue["metadata"]["name"], queue["spec"]
        purses[name] = spec.get("cohortName") or name
        for group in spec["resourceGroups"]:
            for flavor in group["flavors"]:
                budgets[purses[name]] += sum(int(one["nominalQuota"]) for one in flavor["resources"])
    return purses, budgets


def condition(obj: Object, kind: str) -> Object:
    """A condition of an object; an empty one, if it is not there."""
    found = (obj.get("status") or {}).get("conditions") or []
    return next((one for one in found if one["type"] == kind), {})


def gpus(pod: Object) -> int:
    """What a pod (or a template of one) asks for."""
    return sum(int(one["resources"]["requests"].get(GPU, "0")) for one in pod["spec"]["containers"])


def rank_of(pod: Object, pods: int) -> int:
    """A pod's place in its pod set: by its index, within its Job of a JobSet."""
    labels = pod["metadata"]["labels"]
    jobs = int(labels.get("jobset.sigs.k8s.io/replicatedjob-replicas", "1"))
    return int(labels.get(JOB_INDEX, "0")) * (pods // jobs) + int(labels.get(INDEX, "-1"))


def host_of(pod: Object) -> str:
    return str((pod["spec"].get("nodeSelector") or {}).get(HOST, ""))


def is_gated(pod: Object) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def is_leaving(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))


def stands(pod: Object) -> bool:
    """Whether a pod has been sent to a host and may still be there."""
    return not is_gated(pod) and not is_leaving(pod) and (pod.get("status") or {}).get("phase") not in OVER
