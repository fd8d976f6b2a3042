"""The mark to compare with: every gang is admitted as it appears, by a loop that decides nothing.

Per Workload it makes the writes that a manager has to make: one status with an admission, and two events. Per
Job it also makes a Workload, starts the Job once that is admitted, and takes the gate from each pod.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.kubeconfig import load
from bayplan.backends.remote.writer import LOW_PRIORITY_IN_FLIGHT
from tests.benchmarks.bare_connections import JSON, Ask, bare_connections, bare_watch
from tests.benchmarks.peers.bare_jobs import JOBS, PODS, make_workloads, start, ungate
from tests.benchmarks.peers.loads import HOST
from tests.support.api_objects import KUEUE, Object

IN_FLIGHT = 64
AT = "2026-01-01T00:00:00Z"
Queue = asyncio.Queue[Object]


def main() -> None:
    asyncio.run(_admit_all(load(Path(sys.argv[1]))))


async def _admit_all(access: Access) -> None:
    kinds = [*(f"/apis/{KUEUE}/{plural}" for plural in ("workloads", "clusterqueues")), JOBS, PODS]
    async with bare_connections(access, IN_FLIGHT + LOW_PRIORITY_IN_FLIGHT) as ask:
        for path in kinds:
            while (await ask("GET", path, b"", JSON)).status != 200:  # its definition is new
                await asyncio.sleep(0.5)
        await _work(access, ask, kinds)


async def _work(access: Access, ask: Ask, kinds: list[str]) -> None:
    gangs, queues, jobs, pods, events = Queue(), Queue(), Queue(), Queue(), Queue()
    waiting: dict[str, Object] = {}  # Jobs, by the name of their Workload
    async with asyncio.TaskGroup() as group:  # one that fails ends them all
        for path, queue in zip(kinds, (gangs, queues, jobs, pods), strict=True):
            group.create_task(_take(access, path, queue))
        group.create_task(_open(ask, queues))
        for _ in range(IN_FLIGHT):
            group.create_task(_admit(ask, gangs, events, waiting))
            group.create_task(make_workloads(ask, jobs, waiting))
            group.create_task(ungate(ask, pods))
        for _ in range(LOW_PRIORITY_IN_FLIGHT):
            group.create_task(_announce(ask, events))
        print("ready", flush=True)


async def _take(access: Access, path: str, queue: Queue) -> None:
    """Every object once. A watch ends whenever the definition of its kind changes."""
    known: set[str] = set()
    while True:
        async with bare_watch(access, f"{path}?watch=true") as stream:
            async for line in stream.content:
                event = json.loads(line)
                if event["type"] == "ADDED" and (uid := event["object"]["metadata"]["uid"]) not in known:
                    known.add(uid)
                    queue.put_nowait(event["object"])


async def _open(ask: Ask, queues: Queue) -> None:
    """Call every queue active, once."""
    while True:
        queue = await queues.get()
        status = {"conditions": [_condition("Active", "Ready")]}
        await _put(
            ask, f"/apis/{KUEUE}/clusterqueues/{queue['metadata']['name']}", {**queue, "status": status}
        )


async def _admit(ask: Ask, gangs: Queue, events: Queue, waiting: dict[str, Object]) -> None:
    while True:
        gang = await gangs.get()
        meta, spec = gang["metadata"], gang["spec"]
        [pods] = spec["podSets"]
        asked = pods["template"]["spec"]["containers"][0]["resources"]["requests"]
        [(resource, amount)] = asked.items()
        placed = {
            "levels": [HOST],
            "slices": [
                {
                    "domainCount": 1,
                    "valuesPerLevel": [{"universal": "r000-h00"}],
                    "podCounts": {"universal": pods["count"]},
                }
            ],
        }
        assignment = {
            "name": pods["name"],
            "count": pods["count"],
            "flavors": {resource: "gpu"},
            "resourceUsage": {resource: str(int(amount) * pods["count"])},
            "topologyAssignment": placed,
        }
        status = {
            "admission": {"clusterQueue": spec["queueName"], "podSetAssignments": [assignment]},
            "conditions": [_condition("QuotaReserved", "QuotaReserved"), _condition("Admitted", "Admitted")],
        }
        path = f"/apis/{KUEUE}/namespaces/{meta['namespace']}/workloads/{meta['name']}"
        await _put(ask, path, {**gang, "status": status})
        for reason in ("QuotaReserved", "Admitted"):
            events.put_nowait(_event(gang, reason))
        if job := waiting.pop(meta["name"], None):
            await start(ask, job)
            for reason in ("CreatedWorkload", "Started"):
                events.put_nowait(_event(job, reason))


async def _announce(ask: Ask, events: Queue) -> None:
    while True:
        event = await events.get()
        path = f"/api/v1/namespaces/{event['metadata']['namespace']}/events"
        answer = await ask("POST", path, json.dumps(event).encode(), JSON)
        assert answer.status == 201, answer


async def _put(ask: Ask, path: str, body: Object) -> None:
    answer = await ask("PUT", f"{path}/status", json.dumps(body).encode(), JSON)
    assert answer.status == 200, answer


def _condition(kind: str, reason: str) -> Object:
    return {"type": kind, "status": "True", "reason": reason, "message": "bare", "lastTransitionTime": AT}


def _event(obj: Object, reason: str) -> Object:
    meta = obj["metadata"]
    about = {key: obj[key] for key in ("apiVersion", "kind")}
    about |= {key: meta[key] for key in ("namespace", "name", "uid")}
    return {
        "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
        "involvedObject": about,
        "reason": reason,
        "message": "The workload was admitted by a loop that decides nothing",
        "type": "Normal",
        "source": {"component": "bare"},
        "firstTimestamp": AT,
        "lastTimestamp": AT,
        "count": 1,
    }


if __name__ == "__main__":
    main()
