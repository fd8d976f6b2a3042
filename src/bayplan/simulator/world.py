"""A small random cluster and the jobs that come to it, by one seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from bayplan.model.node import HOSTNAME

Object = dict[str, Any]

BLOCK, RACK = "topology.bayplan.dev/block", "topology.bayplan.dev/rack"
NAMESPACE = "default"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
PREFERRED = "kueue.x-k8s.io/podset-preferred-topology"
SEGMENT_LEVEL = "kueue.x-k8s.io/podset-slice-required-topology"
SEGMENT_SIZE = "kueue.x-k8s.io/podset-slice-size"


@dataclass(frozen=True, slots=True)
class Arrival:
    """A job that comes at a moment."""

    when: float
    job: Object


def topology() -> Object:
    """Block, rack, host."""
    levels = [{"nodeLabel": level} for level in (BLOCK, RACK, HOSTNAME)]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": "data-centre"},
        "spec": {"levels": levels},
    }


def node(name: str, block: str, rack: str, gpus: int) -> Object:
    """A ready host."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {BLOCK: block, RACK: rack, HOSTNAME: name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "96", "memory": "1024Gi", "nvidia.com/gpu": str(gpus), "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def nodes(rng: Random) -> list[Object]:
    """One to three blocks of one to three racks of two to four hosts."""
    found: list[Object] = []
    for block in range(rng.randint(1, 3)):
        for rack in range(rng.randint(1, 3)):
            for _ in range(rng.randint(2, 4)):
                found.append(node(f"n{len(found):03d}", f"b{block}", f"r{rack}", rng.choice((4, 8))))
    return found


def job(name: str, pods: int, gpus: int, annotations: dict[str, str], seconds: float, fails: bool) -> Object:
    """An indexed job whose pods name us as their scheduler."""
    notes = (
        annotations
        | {"bayplan.dev/run-seconds": f"{seconds:.0f}"}
        | ({"bayplan.dev/exit": "1"} if fails else {})
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 3,
            "template": {
                "metadata": {"annotations": notes},
                "spec": {
                    "schedulerName": "bayplan",
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": "example",
                            "resources": {
                                "requests": {"cpu": "1"},
                                "limits": {"nvidia.com/gpu": str(gpus)},
                            },
                        }
                    ],
                },
            },
        },
    }


def arrivals(rng: Random, until: float) -> list[Arrival]:
    """Jobs of all kinds of wishes, spread over the time."""
    found = []
    for number in range(rng.randint(4, 12)):
        pods, gpus = rng.choice((1, 2, 3, 4, 6, 8)), rng.choice((1, 2, 4))
        wish = job(
            f"job-{number}", pods, gpus, _wishes(rng, pods), rng.choice((5, 20, 60)), rng.random() < 0.05
        )
        found.append(Arrival(rng.uniform(0, until), wish))
    return sorted(found, key=lambda arrival: arrival.when)


def _wishes(rng: Random, pods: int) -> dict[str, str]:
    kind = rng.random()
    level = rng.choice((BLOCK, RACK))
    notes: dict[str, str] = {}
    if kind < 0.3:
        notes[REQUIRED] = level
    elif kind < 0.6:
        notes[PREFERRED] = level
    if pods >= 4 and rng.random() < 0.3:
        notes |= {SEGMENT_LEVEL: RACK, SEGMENT_SIZE: str(rng.choice((2, pods // 2)))}
        if notes.get(REQUIRED) == RACK or notes.get(PREFERRED) == RACK:
            notes = {REQUIRED: BLOCK} | {k: v for k, v in notes.items() if k not in (REQUIRED, PREFERRED)}
    return notes
