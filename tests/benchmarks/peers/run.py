"""One run of a load: create, watch from outside, end what ran, and judge every state that was seen."""

from __future__ import annotations

import heapq
import json
import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load as load_access
from bayplan.dialects.api import Ended, Happened, Kind, Verb, Write
from bayplan.dialects.kueue.names import api_kinds
from tests.benchmarks.gang_load import ask_all
from tests.benchmarks.jobs_site import GatedPod
from tests.benchmarks.peers.loads import GPU, HOST, LEVELS, NAMESPACE, Gang, Load
from tests.benchmarks.peers.managers import BARE, MANAGERS, Manager, server_cpu
from tests.benchmarks.peers.requests import without, writes_so_far
from tests.benchmarks.watched_processes import until
from tests.end_to_end.storm_checker import Checker, Object, Seen, condition
from tools.controlplane import processes
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import CONTROLLERS, JOBSET, KWOK

RUN_SECONDS = 300.0
RELEASE_SECONDS = 0.2
QUIET_SECONDS = 4.0
SETTLE_SECONDS = 60.0
LONG_AGO = "2026-01-01T00:00:00Z"
READY = [{"type": "Ready", "status": "True", "reason": "Bench", "message": "no kubelet"}]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a load took."""

    manager: str
    load: str
    seconds: float  # from the first creation to the last admission, or the last pod without a gate
    count: int  # gangs, or pods of Jobs
    p50: float  # seconds from creation to admission of a gang
    p99: float
    manager_cpu: float
    server_cpu: float
    megabytes: float
    evictions: int
    writes: dict[str, int] = field(default_factory=dict)  # of the manager, by verb and resource
    violations: list[str] = field(default_factory=list)


def run(cluster: Cluster, folder: Path, manager: str, load: Load) -> Outcome:
    """Furnish the cluster, start the manager, and measure."""
    for process in cluster.processes:
        idle = (JOBSET.name,) if load.jobs else (JOBSET.name, KWOK.name, CONTROLLERS.name)
        if process.name in idle:
            processes.stop(process)
    with MANAGERS[manager](cluster, folder) as running:
        _furnish(cluster, load)
        return _jobs(cluster, running, load) if load.jobs else _gangs(cluster, running, load)


def _furnish(cluster: Cluster, load: Load) -> None:
    access = load_access(cluster.kubeconfig)
    nodes = [{**one, "status": {**one["status"], "conditions": READY}} for one in load.nodes]
    ask_all(access, [("POST", "/api/v1/nodes", one) for one in nodes])
    paths = [f"/api/v1/nodes/{one['metadata']['name']}" for one in nodes]
    ask_all(access, [("PATCH", path, {"spec": {"taints": None}}) for path in paths])
    cluster.apply(*load.queues)
    queues = sum(one["kind"] == "ClusterQueue" for one in load.queues)
    active = "jsonpath={range .items[*]}{.status.conditions[?(@.type=='Active')].status} {end}"
    until(
        lambda: cluster.kubectl("get", "clusterqueues", "-o", active).split().count("True") == queues,
        "active queues",
    )
    time.sleep(QUIET_SECONDS)


def _settle(cluster: Cluster) -> None:
    """Until the manager writes nothing for a while: what it writes late counts, too."""
    end, before = time.monotonic() + SETTLE_SECONDS, Counter[str]()
    while (now := writes_so_far(cluster)) != before and time.monotonic() < end:
        before = now
        time.sleep(2.0)


# ── bare Workloads ─────────────────────────────────────────────────────────────────────────────────


class _Follower:
    """Watches Workloads, ends those whose time is over, and releases those that were evicted.

    Users and the controllers of jobs are different clients: what ends a job does not queue behind creations.
    """

    def __init__(self, cluster: Cluster, gangs: Iterable[Gang]) -> None:
        self.backend = RemoteBackend(load_access(cluster.kubeconfig))
        self.users = RemoteBackend(load_access(cluster.kubeconfig))
        self.backend.watch([api_kinds.WORKLOADS])
        self.runs = {one.obj["metadata"]["name"]: one.runs for one in gangs}
        self.began = time.monotonic()
        self.made: dict[str, float] = {}
        self.admitted: dict[str, float] = {}  # when first
        self.now: set[str] = set()  # admitted at this moment
        self.finished: set[str] = set()
        self.evictions = 0
        self.written = Counter[str]()  # by this follower
        self.ends: list[tuple[float, str]] = []
        self.due: dict[str, float] = {}  # when one that is admitted ends
        self.evicted: dict[str, float] = {}  # still with quota
        self.last: dict[str, Object] = {}
        self.history: list[Seen] = []

    def create(self, gangs: Iterable[Gang]) -> None:
        now = time.monotonic()
        writes = []
        for one in gangs:
            name = one.obj["metadata"]["name"]
            self.made[name] = now
            writes.append(Write(Verb.CREATE, api_kinds.WORKLOADS, NAMESPACE, name, one.obj))
        self.written[f"POST {api_kinds.WORKLOADS.plural}"] += len(writes)
        self.users.submit(writes)

    def follow(self, enough: int, *, finished: bool = False) -> float:
        """Until so many were admitted (and finished); when the last one was."""
        end = time.monotonic() + RUN_SECONDS
        while len(self.finished if finished else self.admitted) < enough:
            missing = enough - len(self.admitted)
            assert time.monotonic() < end, f"{missing} gangs were not admitted in {RUN_SECONDS:g} s"
            self.backend.wait(0.05)
            self._look()
            self._act()
            for outcome in self.users.outcomes():
                assert outcome.ended is Ended.DONE, f"{outcome.write.name} was not created: {outcome.ended}"
            for outcome in self.backend.outcomes():
                if outcome.ended is Ended.CONFLICT:  # the manager wrote first: again, with what it wrote
                    heapq.heappush(self.ends, (self.due.get(outcome.write.name, 0.0), outcome.write.name))
        return max(self.admitted.values())

    def _look(self) -> None:
        for event in self.backend.events():
            if event.happened is Happened.SYNCED or not event.object:
                continue
            at, obj = time.monotonic(), event.object
            name = obj["metadata"]["name"]
            gone = event.happened is Happened.GONE
            version = int(obj["metadata"]["resourceVersion"])
            self.history.append(Seen(version, at - self.began, {"kind": "Workload", **obj}, gone))
            self._take(name, obj, at)

    def _take(self, name: str, obj: Object, at: float) -> None:
        before, self.last[name] = self.last.get(name, {}), obj
        if _is(obj, "Finished"):
            self.finished.add(name)
            self.now.discard(name)
            return
        if _is(obj, "Evicted") and not _is(before, "Evicted"):
            self.evictions += 1
        if _is(obj, "Evicted") and _is(obj, "QuotaReserved"):
            self.evicted.setdefault(name, at)
        else:
            self.evicted.pop(name, None)
        if not _is(obj, "Admitted") or _is(obj, "Evicted"):
            self.now.discard(name)
        elif name not in self.now:
            self.now.add(name)
            self.admitted.setdefault(name, at)
            if runs := self.runs.get(name):
                self.due[name] = at + runs
                heapq.heappush(self.ends, (at + runs, name))

    def _act(self) -> None:
        """As a job's controller would: finish what ran, give back what was evicted."""
        at = time.monotonic()
        while self.ends and self.ends[0][0] <= at:
            end, name = heapq.heappop(self.ends)
            if name in self.now and self.due[name] == end:
                over = _told("Finished", "True", "Succeeded")
                self._patch(name, {"conditions": [*self._conditions(name, "Finished"), over]})
        for name in [name for name, since in self.evicted.items() if since + RELEASE_SECONDS < at]:
            del self.evicted[name]
            without = self._conditions(name, "QuotaReserved", "Admitted")
            free = [_told("QuotaReserved", "False", "Pending"), _told("Admitted", "False", "NoReservation")]
            self._patch(name, {"admission": None, "conditions": [*without, *free]})

    def _conditions(self, name: str, *but: str) -> list[Object]:
        return [one for one in self.last[name]["status"]["conditions"] if one["type"] not in but]

    def close(self) -> None:
        self.backend.close(0)
        self.users.close(0)

    def _patch(self, name: str, status: Object) -> None:
        body = {"status": status}
        version = self.last[name]["metadata"]["resourceVersion"]
        write = Write(Verb.MERGE_PATCH, api_kinds.WORKLOADS, NAMESPACE, name, body, "status", version=version)
        self.written[f"PATCH {api_kinds.WORKLOADS.plural}/status"] += 1
        self.backend.submit([write])


def _is(obj: Object, kind: str) -> bool:
    return bool(condition(obj, kind).get("status") == "True")


def _told(kind: str, status: str, reason: str) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "bench",
        "lastTransitionTime": LONG_AGO,
    }


def _gangs(cluster: Cluster, manager: Manager, load: Load) -> Outcome:
    follower = _Follower(cluster, load.gangs)
    try:
        if load.first:
            follower.create(load.first)
            follower.follow(len(load.first))
            time.sleep(QUIET_SECONDS)
        written, mine = writes_so_far(cluster), Counter(follower.written)
        before, served, evicted = manager.cpu(), server_cpu(cluster), follower.evictions
        start = time.monotonic()
        follower.create(load.gangs)
        ending = any(one.runs for one in load.gangs)
        last = follower.follow(len(load.first) + len(load.gangs)) if not ending else 0.0
        if ending:
            follower.follow(len(load.gangs), finished=True)
            last = max(follower.admitted.values())
        _settle(cluster)
        used, served = manager.cpu() - before, server_cpu(cluster) - served
        writes = without(writes_so_far(cluster), written + follower.written - mine)
    finally:
        follower.close()
    waits = [follower.admitted[one.obj["metadata"]["name"]] - start for one in load.gangs]
    queues = [one for one in load.queues if one["kind"] == "ClusterQueue"]
    judged = follower.history if manager.name != BARE else []  # it does not look at quota
    found = Checker(load.nodes, queues, RUN_SECONDS).judge(judged)
    return Outcome(
        manager.name, load.name, last - start, len(load.gangs), statistics.median(waits),
        sorted(waits)[int(len(waits) * 0.99)], used, served, manager.peak_megabytes(),
        follower.evictions - evicted, writes, found,
    )  # fmt: skip


# ── Jobs ───────────────────────────────────────────────────────────────────────────────────────────


def _jobs(cluster: Cluster, manager: Manager, load: Load) -> Outcome:
    backend = RemoteBackend(load_access(cluster.kubeconfig))
    kind = Kind("", "v1", "Pod", "pods", wire=GatedPod, label_selector="bench=yes")
    free: dict[str, float] = {}
    try:
        backend.watch([kind])
        until(lambda: any(event.happened is Happened.SYNCED for event in backend.events()), "watch")
        written = writes_so_far(cluster)
        before, served, start = manager.cpu(), server_cpu(cluster), time.monotonic()
        path = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
        ask_all(load_access(cluster.kubeconfig), [("POST", path, job) for job in load.jobs])
        while len(free) < load.pods:
            assert time.monotonic() - start < RUN_SECONDS, f"{len(free)} of {load.pods} pods have no gate"
            backend.wait(0.2)
            for event in backend.events():
                if event.happened is Happened.SEEN and not event.object.spec.scheduling_gates:
                    free.setdefault(event.object.metadata.uid, time.monotonic() - start)
        _settle(cluster)
        used, served = manager.cpu() - before, server_cpu(cluster) - served
        mine = Counter(
            {"POST jobs": len(load.jobs), "POST pods": load.pods}
        )  # the latter of the Job controller
        writes = without(writes_so_far(cluster), written + mine)
    finally:
        backend.close(0)
    waits = sorted(free.values())
    found = booked_twice(cluster, load.nodes) if manager.name != BARE else []  # it does not look at capacity
    return Outcome(
        manager.name, load.name, waits[-1], load.pods, statistics.median(waits),
        waits[int(len(waits) * 0.99)], used, served, manager.peak_megabytes(), 0, writes, found,
    )  # fmt: skip


def booked_twice(cluster: Cluster, nodes: Sequence[Object]) -> list[str]:
    """The domains that pods without gates were sent to with more GPUs than there are; each asks for one."""
    listed = cluster.kubectl("get", "pods", "-n", NAMESPACE, "-l", "bench=yes", "-o", "json")
    room, sent = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for node in nodes:
        labels, gpus = node["metadata"]["labels"], int(node["status"]["allocatable"][GPU])
        room.update({(level, labels[level]): gpus for level in LEVELS})
    wrong = []
    for pod in json.loads(listed)["items"]:
        selector = pod["spec"].get("nodeSelector") or {}
        if HOST not in selector:
            wrong.append(f"pod {pod['metadata']['name']} has no host")
        sent.update((level, selector[level]) for level in LEVELS if level in selector)
    wrong += [f"{domain} has {room[domain]} GPUs for {count}" for domain, count in sent.items()
              if count > room[domain]]  # fmt: skip
    return wrong
