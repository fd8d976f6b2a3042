"""`make bench-state`: memory and CPU per event of the cluster state, with one role and with both."""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from bayplan.cli.running.role_controllers import controllers_for
from bayplan.dialects.api import Event, Happened, Kind, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND, NodeWire, PodWire
from bayplan.dialects.kueue.names import api_kinds
from bayplan.runtime.core.loop import Loop
from tests.support.api_objects import READY, api_object, container, node, pod

ROOT = Path(__file__).resolve().parents[2]
NODES_COUNT, PODS_COUNT, NODE_CHANGES, POD_CHURN = 100_000, 200_000, 1_000, 10_000
BATCH = 1_000
ROLES = {"scheduler": ("scheduler",), "admission": ("admission",), "both": ("admission", "scheduler")}
EVENT_P99_MS = 1.0
RACK, BLOCK, HOST = "example.com/rack", "example.com/block", "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class Figures:
    """What one process with some roles took."""

    roles: str
    bare_us: float  # decoding JSON into wire objects, per pod: what no state can avoid
    pod_us: float
    node_change_us: float
    node_change_p99_ms: float
    churn_us: float
    churn_p99_ms: float
    megabytes: float  # resident memory that the state added


class Scripted:
    """A backend that reports the events it is given."""

    def __init__(self) -> None:
        self.queue: list[Event] = []
        self.kinds: Sequence[Kind] = ()

    def watch(self, kinds: Sequence[Kind]) -> None:
        self.kinds = kinds
        self.queue += [Event(Happened.SYNCED, kind) for kind in kinds]

    def events(self) -> Iterable[Event]:
        found, self.queue = self.queue, []
        return found

    def submit(self, writes: Sequence[Write]) -> None: ...

    def outcomes(self) -> Iterable[WriteOutcome]:
        return ()

    def wait(self, seconds: float) -> None: ...

    def close(self, grace_seconds: float = 10.0) -> None: ...


class Silent:
    """A journal that records nothing."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


def node_json(number: int, cpu: str = "64") -> bytes:
    labels = {RACK: f"r{number // 32}", BLOCK: f"b{number // 1024}", "pool": "gpu"}
    amounts = {"cpu": cpu, "memory": "512Gi", "nvidia.com/gpu": "8", "pods": "110"}
    return json.dumps(node(f"host-{number:06}", amounts, labels, conditions=[READY])).encode()


def pod_json(number: int, generation: int = 0) -> bytes:
    name = f"pod-{number:06}-{generation}"
    requests = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
    whole = pod(
        name, requests, namespace=f"team-{number % 50}", labels={"app": f"app-{number % 500}"},
        metadata={"uid": name, "resourceVersion": str(number + 1)},
        status={"phase": "Running"}, nodeName=f"host-{number // 2 % NODES_COUNT:06}", schedulerName="bayplan",
        containers=[container(requests, requests)],
    )  # fmt: skip
    return json.dumps(whole).encode()


def seen(kind: Kind, body: bytes, happened: Happened = Happened.SEEN) -> Event:
    return Event(happened, kind, msgspec.json.decode(body, type=PodWire if kind is PODS_KIND else NodeWire))


def resident() -> float:
    """Megabytes of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def measured(roles: str, nodes: int, pods: int) -> Figures:
    """Fill a state, then change and churn it one event at a time."""
    backend = Scripted()
    loop = Loop(backend, controllers_for(frozenset(ROLES[roles])), Silent())
    loop.apply_events(0.0)
    levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOST)]
    topology = api_object(api_kinds.TOPOLOGIES.api_version, "Topology", "hall", spec={"levels": levels})
    watched = [kind for kind in backend.kinds if kind.kind == "Topology" and kind.group == "kueue.x-k8s.io"]
    backend.queue += [Event(Happened.SEEN, kind, topology) for kind in watched]
    loop.apply_events(0.0)
    before = resident()
    for start in range(0, nodes, BATCH):
        backend.queue += [seen(NODES, node_json(n)) for n in range(start, min(start + BATCH, nodes))]
        loop.apply_events(0.0)
    fold, bare = 0.0, 0.0
    for start in range(0, pods, BATCH):
        bodies = [pod_json(n) for n in range(start, min(start + BATCH, pods))]
        began = time.process_time()
        backend.queue += [seen(PODS_KIND, body) for body in bodies]
        decoded = time.process_time()
        loop.apply_events(0.0)
        fold, bare = fold + time.process_time() - decoded, bare + decoded - began
    for controller in loop.controllers:
        controller.snapshot(1.0)
    megabytes = resident() - before
    changes = list(_each(loop, backend, _node_changes(nodes)))
    churn = list(_each(loop, backend, _churn(pods)))
    return Figures(
        roles, bare / pods * 1e6, fold / pods * 1e6,
        sum(changes) / len(changes) * 1e6, _p99(changes) * 1e3,
        sum(churn) / len(churn) * 1e6, _p99(churn) * 1e3, megabytes,
    )  # fmt: skip


def _node_changes(nodes: int) -> Iterator[Event]:
    step = max(1, nodes // NODE_CHANGES)
    for number in range(0, min(nodes, step * NODE_CHANGES), step):
        yield seen(NODES, node_json(number, cpu="60"))


def _churn(pods: int) -> Iterator[Event]:
    step = max(1, pods // (POD_CHURN // 2))
    for number in range(0, min(pods, step * (POD_CHURN // 2)), step):
        yield seen(PODS_KIND, pod_json(number), Happened.GONE)
        yield seen(PODS_KIND, pod_json(number, generation=1))


def _each(loop: Loop, backend: Scripted, events: Iterator[Event]) -> Iterator[float]:
    """Seconds of CPU for each event. A snapshot before it makes the state copy what it shares."""
    for number, event in enumerate(events):
        if number % 100 == 0:
            for controller in loop.controllers:
                controller.snapshot(1.0)
        backend.queue.append(event)
        began = time.process_time()
        loop.apply_events(1.0)
        yield time.process_time() - began


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def main() -> int:
    """Measure each set of roles in a process of its own, print a table, and say what was missed."""
    parser = argparse.ArgumentParser(prog="state", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES_COUNT)
    parser.add_argument("--pods", type=int, default=PODS_COUNT)
    parser.add_argument("--roles", choices=ROLES, help="measure these alone, and print JSON")
    options = parser.parse_args()
    if options.roles:
        print(json.dumps(asdict(measured(options.roles, options.nodes, options.pods))))
        return 0
    found = []
    for roles in ROLES:
        command = [sys.executable, "-m", "tests.benchmarks.state", "--roles", roles]
        command += ["--nodes", str(options.nodes), "--pods", str(options.pods)]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        found.append(Figures(**json.loads(ran.stdout.splitlines()[-1])))
    return _told(found, options.nodes, options.pods)


def _told(found: list[Figures], nodes: int, pods: int) -> int:
    print(f"{nodes:,} nodes, {pods:,} pods; CPU per event, p99 of single events, memory of the state")
    print(
        f"{'roles':12}{'pod':>12}{'of bare':>9}{'node':>10}{'p99 ms':>8}{'churn':>10}{'p99 ms':>8}{'MB':>8}"
    )
    for one in found:
        print(
            f"{one.roles:12}{one.pod_us:>9.1f} us{one.pod_us / one.bare_us:>8.1f}x"
            f"{one.node_change_us:>7.0f} us{one.node_change_p99_ms:>8.2f}"
            f"{one.churn_us:>7.0f} us{one.churn_p99_ms:>8.2f}{one.megabytes:>8.0f}"
        )
    alone = sum(one.megabytes for one in found if one.roles != "both")
    both = next(one for one in found if one.roles == "both")
    print(f"both roles share: {both.megabytes / alone:.0%} of the memory of two processes")
    slow = [one.roles for one in found if max(one.churn_p99_ms, one.node_change_p99_ms) > EVENT_P99_MS]
    print(f"p99 above {EVENT_P99_MS:g} ms: {', '.join(slow) or 'none'}")
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
