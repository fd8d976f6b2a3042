"""`make bench-scale`: a replica on a large cluster of a real API server, and one that takes over from it.

No controllers run beside it, so every write but those to Leases is Bayplan's, or one that is made here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Thread

from tests.benchmarks.device_pods import claim
from tests.benchmarks.gang_load import PODS, load_pod
from tests.benchmarks.scale_events import change, changeable
from tests.benchmarks.scale_world import NAMESPACE, store
from tests.end_to_end.storm import Api
from tests.support.listening import free_address
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import APISERVER, Trouble
from tools.controlplane.start import control_plane, restart

READY_SECONDS = 900.0
QUIET_SECONDS = 10.0
"""Without a write until everything counts as settled."""
AGAIN_SECONDS_MAX, AGAIN_NODES = 5.0, 5000
"""From the Lease to the first decision, on so many nodes."""
MEMORY_MAX = 4096.0
"""Megabytes of a replica on 100,000 nodes."""
EVENT_SECONDS = 20.0
"""At the rate that is asked for."""
WARM_SECONDS = 2.0
OUTAGE_SECONDS, OUTAGE_RATE = 6.0, 300
"""The API server is away for so long, while so many pods change per second."""
OUTAGE_PAUSE_SECONDS = 45.0
"""Until everything is listed again, and freed memory went back to the system."""
STEPS = re.compile(r'bayplan_step_seconds_bucket\{le="([^"]+)"\} (\S+)')
EVENTS = re.compile(r'bayplan_events_total\{.*kind="Pod".*\} (\S+)')
WRITTEN = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
UNCOUNTED = {"leases"}
Counts = Counter[tuple[str, ...]]


@dataclass(slots=True)
class Row:
    """What was measured on one cluster."""

    nodes: int
    pods: int
    inside: bool = False  # NUMA zones and devices of all nodes
    ready_seconds: float = 0.0  # from the start of the process until it knows all objects
    ready_cpu_seconds: float = 0.0
    megabytes: float = 0.0  # of a replica that leads
    standby_megabytes: float = 0.0
    lease_seconds: float = 0.0  # from the kill of the leader until the other one has the Lease
    again_seconds: float = 0.0  # from then until a pod is bound
    cold_ready_seconds: float = 0.0  # of a replica that starts when there is no other
    cold_again_seconds: float = 0.0  # from its Lease until a pod is bound
    event_rate: float = 0.0
    event_milliseconds: float = 0.0  # of the leader's CPU
    step_p99: float = 0.0  # upper bound of the bucket, seconds
    repeated: dict[str, int] = field(default_factory=dict)  # writes after it, beside the pod's
    cold_repeated: dict[str, int] = field(default_factory=dict)
    outages: int = 0
    outage_megabytes: list[float] = field(default_factory=list)  # of the leader, after each outage
    missed: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale", description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--inside", action="store_true", help="nodes have NUMA zones and devices")
    parser.add_argument("--events", type=int, default=1000, help="for each second (%(default)s)")
    parser.add_argument(
        "--outages", type=int, default=0, help="kill the API server so often while pods change (%(default)s)"
    )
    parser.add_argument("--report", type=Path, default=Path("build/bench/scale.json"))
    wishes = parser.parse_args()
    kept = store(wishes.nodes, wishes.pods, inside=wishes.inside)
    with (
        tempfile.TemporaryDirectory(prefix="bayplan-scale-") as name,
        control_plane(state=Path(name) / "cluster", store=kept) as cluster,
    ):
        row = Row(wishes.nodes, wishes.pods, wishes.inside, outages=wishes.outages)
        measured(cluster, Path(name), row, wishes.events)
    print(told(row))
    wishes.report.parent.mkdir(parents=True, exist_ok=True)
    wishes.report.write_text(json.dumps(asdict(row), indent=1) + "\n")
    return 1 if row.missed else 0


def measured(cluster: Cluster, folder: Path, row: Row, events: int) -> None:
    api = Api.of(cluster)
    with replica(cluster, folder / "a.log") as first:
        row.ready_seconds, row.ready_cpu_seconds = first.wait_ready(), first.cpu()
        print(f"ready after {row.ready_seconds:.1f} s", flush=True)
        settle(api)
        row.megabytes = first.megabytes()
        if events:
            _under_events(cluster, row, first, events)
            settle(api)
        if row.outages:
            cluster = _through_outages(cluster, row, first)
            settle(api)
        with replica(cluster, folder / "b.log") as second:
            second.wait_ready()
            settle(api)
            row.standby_megabytes = second.megabytes()
            row.lease_seconds, row.again_seconds, row.repeated = taken_over(
                cluster, api, first, second, "warm", inside=row.inside
            )
            second.process.kill()
            second.process.wait()
            with replica(cluster, folder / "c.log") as third:
                row.cold_ready_seconds = third.wait_ready()
                _, row.cold_again_seconds, cold = taken_over(
                    cluster, api, None, third, "cold", inside=row.inside
                )
                row.cold_repeated = cold
    row.missed = _missed(row)


@dataclass(slots=True)
class Running:
    """A process of `bayplan run`."""

    process: subprocess.Popen[bytes]
    address: str
    began: float

    def wait_ready(self) -> float:
        """The seconds from its start until it knows all objects."""
        end = self.began + READY_SECONDS
        while not self._answers("/readyz?exclude=leader"):
            assert self.process.poll() is None and time.monotonic() < end, "the replica is not ready"
            time.sleep(0.1)
        return time.monotonic() - self.began

    def _answers(self, path: str) -> bool:
        try:
            return bool(self.text(path))
        except OSError:
            return False

    def text(self, path: str) -> str:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://{self.address}{path}", timeout=30) as answer:
            found: str = answer.read().decode()
            return found

    def megabytes(self) -> float:
        """Resident now."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024

    def cpu(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def replica(cluster: Cluster, log: Path) -> Iterator[Running]:
    """All default roles, with an election."""
    address = str(free_address())
    command = [sys.executable, "-m", "bayplan", "run", f"--kubeconfig={cluster.kubeconfig}"]
    command += [f"--namespace={NAMESPACE}", f"--listen={address}", "--log-level=warning"]
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        yield Running(process, address, time.monotonic())
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


# ── taking over ────────────────────────────────────────────────────────────────────────────────────


def taken_over(
    cluster: Cluster, api: Api, leader: Running | None, other: Running, name: str, *, inside: bool
) -> tuple[float, float, dict[str, int]]:
    """Kill the leader: seconds until the other one has the Lease, and from then until it has bound a pod.

    And the writes since then, beside the pod and its binding.
    """
    probe = load_pod(f"probe-{name}", "bayplan", 0)
    if inside:
        api.ask(*claim(f"probe-{name}"))
        probe["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": f"probe-{name}"}]
    before, killed = written(api), time.time()
    if leader is not None:
        leader.process.kill()
        leader.process.wait()
    api.ask("POST", PODS, probe)
    while not api.ask("GET", f"{PODS}/probe-{name}")["spec"].get("nodeName"):
        assert other.process.poll() is None and time.time() < killed + READY_SECONDS, "no pod is bound"
        time.sleep(0.05)
    bound = time.time()
    acquired = _acquired(cluster)
    settle(api)
    writes = written(api)
    writes.subtract(before)
    own = {("POST", "pods", ""), ("POST", "pods", "binding"), ("POST", "events", "")}
    if inside:
        own |= {("PATCH", "resourceclaims", ""), ("PATCH", "resourceclaims", "status")}
    return (
        acquired - killed,
        bound - acquired,
        {" ".join(key).strip(): count for key, count in writes.items() if count > (key in own)},
    )


def _acquired(cluster: Cluster) -> float:
    for lease in cluster.get("leases", "-n", NAMESPACE)["items"]:
        return datetime.fromisoformat(lease["spec"]["acquireTime"]).timestamp()
    raise Trouble("there is no Lease of Bayplan")


def settle(api: Api) -> None:
    """Wait until nothing is written any more."""
    before, since = written(api), time.monotonic()
    while time.monotonic() - since < QUIET_SECONDS:
        time.sleep(1.0)
        if (now := written(api)) != before:
            before, since = now, time.monotonic()


def written(api: Api) -> Counts:
    """Writes that succeeded, by verb, resource and subresource, as the API server counts them."""
    with api.asked("GET", "/metrics") as answer:
        text = answer.read().decode()
    found = Counts()
    for labels, value in WRITTEN.findall(text):
        of = dict(LABEL.findall(labels))
        if of["verb"] in WRITES and of["code"].startswith("2") and of["resource"] not in UNCOUNTED:
            found[of["verb"], of["resource"], of["subresource"]] += int(float(value))
    return found


WRITES = {"POST", "PUT", "PATCH", "DELETE", "APPLY", "CREATE", "UPDATE"}


# ── events ─────────────────────────────────────────────────────────────────────────────────────────


def _under_events(cluster: Cluster, row: Row, leader: Running, rate: int) -> None:
    """Change pods so often: the rate that was reached, CPU of the leader, and the slowest of 100 steps."""
    names = [f"bound-{number:06d}" for number in range(row.pods)]
    pods = changeable(cluster, names)
    change(cluster, pods, rate, WARM_SECONDS)
    time.sleep(WARM_SECONDS)
    before, seen, spent = _steps(leader), _events(leader), leader.cpu()
    row.event_rate = change(cluster, pods, rate, EVENT_SECONDS)
    time.sleep(WARM_SECONDS)  # all of them have arrived
    seen = _events(leader) - seen
    assert seen >= rate * EVENT_SECONDS, f"the replica saw {seen} events of {rate * EVENT_SECONDS:.0f}"
    row.event_milliseconds = 1000 * (leader.cpu() - spent) / seen
    after = _steps(leader)
    counts = {edge: after[edge] - before.get(edge, 0.0) for edge in after}
    total = max(counts.values())
    row.step_p99 = min(edge for edge, count in counts.items() if count >= 0.99 * total)


def _through_outages(cluster: Cluster, row: Row, leader: Running) -> Cluster:
    """Kill the API server again and again while pods change: everything has to be listed anew."""
    pods = changeable(cluster, [f"bound-{number:06d}" for number in range(row.pods)])
    for _ in range(row.outages):
        changes = Thread(target=change, args=(cluster, pods, OUTAGE_RATE, OUTAGE_SECONDS))
        changes.start()
        cluster = restart(cluster, APISERVER, OUTAGE_SECONDS)
        changes.join()
        time.sleep(OUTAGE_PAUSE_SECONDS)
        row.outage_megabytes.append(leader.megabytes())
        print(f"after an outage: {row.outage_megabytes[-1]:,.0f} MB", flush=True)
    return cluster


def _steps(leader: Running) -> dict[float, float]:
    return {float(edge): float(count) for edge, count in STEPS.findall(leader.text("/metrics"))}


def _events(leader: Running) -> int:
    """The events of pods that a replica has seen."""
    return sum(int(float(count)) for count in EVENTS.findall(leader.text("/metrics")))


# ── report ─────────────────────────────────────────────────────────────────────────────────────────


def _missed(row: Row) -> list[str]:
    found = []
    for name, seconds in (("warm", row.again_seconds), ("cold", row.cold_again_seconds)):
        if seconds > AGAIN_SECONDS_MAX and row.nodes <= AGAIN_NODES:
            found.append(
                f"{name}: decides {seconds:.1f} s after the Lease, not within {AGAIN_SECONDS_MAX:g} s"
            )
    for name, writes in (("warm", row.repeated), ("cold", row.cold_repeated)):
        if writes:
            found.append(f"{name}: writes that nothing asked for: {writes}")
    if row.megabytes > MEMORY_MAX:
        found.append(f"a replica has {row.megabytes:,.0f} MB, not {MEMORY_MAX:,.0f}")
    return found


def told(row: Row) -> str:
    """The table."""
    lines = [
        f"{row.nodes:,} nodes, {row.pods:,} bound pods{', NUMA zones and devices' * row.inside}; "
        "roles admission, scheduler and webhooks",
        f"  time to ready          {row.ready_seconds:8.1f} s ({row.ready_cpu_seconds:.1f} s of CPU)",
        f"  memory, leader         {row.megabytes:8,.0f} MB",
        f"  memory, standby        {row.standby_megabytes:8,.0f} MB",
        *(
            f"  memory after outage {number:<2} {size:8,.0f} MB"
            for number, size in enumerate(row.outage_megabytes, start=1)
        ),
        f"  kill -9 to Lease       {row.lease_seconds:8.1f} s",
        f"  Lease to first binding {row.again_seconds:8.2f} s (standby), "
        f"{row.cold_again_seconds:.2f} s (started anew, ready after {row.cold_ready_seconds:.1f} s)",
        f"  step p99               {1000 * row.step_p99:8.0f} ms at most, at {row.event_rate:,.0f} events/s "
        f"({row.event_milliseconds:.2f} ms of CPU for each)",
        f"  writes after the take-over, beside the pod's: {row.repeated or 'none'} (standby), "
        f"{row.cold_repeated or 'none'} (started anew)",
        *(f"  missed: {one}" for one in row.missed),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
