"""What the bare loop writes for a Job: its Workload, its start, and its pods without a gate."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from bayplan.backends.remote.request import MERGE_PATCH
from bayplan.dialects.kueue.names.annotations import POD_SET, QUEUE, TOPOLOGY_GATE
from tests.benchmarks.bare_connections import JSON, Ask
from tests.benchmarks.peers.loads import HOST
from tests.support.api_objects import KUEUE, Object, workload

Queue = asyncio.Queue[Any]
JOBS = "/apis/batch/v1/jobs"
PODS = "/api/v1/pods"


async def make_workloads(ask: Ask, jobs: Queue, waiting: dict[str, Object]) -> None:
    """A Workload for each Job, which then waits for its admission."""
    while True:
        job = await jobs.get()
        meta, spec = job["metadata"], job["spec"]
        pods = {"name": "main", "count": spec["parallelism"], "template": spec["template"]}
        one = workload(
            f"job-{meta['name']}", pods, namespace=meta["namespace"], queueName=meta["labels"][QUEUE]
        )
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
        one["metadata"]["ownerReferences"] = [owner | {"controller": True}]
        waiting[one["metadata"]["name"]] = job
        path = f"/apis/{KUEUE}/namespaces/{meta['namespace']}/workloads"
        answer = await ask("POST", path, json.dumps(one).encode(), JSON)
        assert answer.status == 201, answer


async def start(ask: Ask, job: Object) -> None:
    """Let the Job controller make the pods, each with a gate."""
    meta = job["metadata"]
    pods = {"metadata": {"labels": {POD_SET: "main"}}, "spec": {"schedulingGates": [{"name": TOPOLOGY_GATE}]}}
    path = f"/apis/batch/v1/namespaces/{meta['namespace']}/jobs/{meta['name']}"
    await _patch(ask, path, {"spec": {"suspend": False, "template": pods}})


async def ungate(ask: Ask, pods: Queue) -> None:
    """Every pod with a gate, as it appears."""
    while True:
        pod = await pods.get()
        if not pod["spec"].get("schedulingGates"):  # of another controller
            continue
        meta = pod["metadata"]
        spec = {"schedulingGates": [], "nodeSelector": {HOST: "r000-h00"}}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        await _patch(ask, path, {"metadata": {"uid": meta["uid"]}, "spec": spec})


async def _patch(ask: Ask, path: str, body: Object) -> None:
    answer = await ask("PATCH", path, json.dumps(body).encode(), MERGE_PATCH)
    assert answer.status == 200, answer
