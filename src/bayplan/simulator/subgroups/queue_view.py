"""Queues of a random cluster, and what each has by the API's own objects: a second opinion on all sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from bayplan.dialects.kube.decode.wire import PodWire, amounts_of, pod_amounts

Object = dict[str, Any]
Amounts = dict[str, int]
CPU = "cpu"
UNBOUNDED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def random_queues(rng: Random, nodes: Sequence[Object]) -> tuple[list[Object], tuple[str, ...]]:
    """Some teams, perhaps of departments; only CPU is scarce. Also the names of those that gangs may name."""
    total = sum(amounts_of(node["status"]["allocatable"])[CPU] for node in nodes)
    found: list[Object] = []
    departments = ["dept-a", "dept-b"][: rng.choice((0, 1, 2, 2))]
    found += [_queue(rng, name, "", total // len(departments)) for name in departments]
    leaves = ["default-queue", *(f"team-{number}" for number in range(rng.randint(1, 4)))]
    for name in leaves:
        parent = rng.choice(departments) if departments else ""
        found.append(_queue(rng, name, parent, total // len(leaves)))
    return found, tuple(leaves)


def _queue(rng: Random, name: str, parent: str, part: int) -> Object:
    """Whole CPUs; some have more quota than there is, some none, some no bound."""
    cpus = part // 1000 * 1000
    cpu = {
        "quota": rng.choice((0, cpus // 2, cpus, cpus, cpus * 2, -1)),
        "limit": rng.choice((-1, -1, max(cpus, 1000), cpus * 2)),
        "overQuotaWeight": rng.choice((1, 1, 2, 0)),
    }
    spec: Object = {"resources": {"cpu": cpu, "memory": UNBOUNDED, "gpu": UNBOUNDED}}
    if parent:
        spec["parentQueue"] = parent
    if rng.random() < 0.3:
        spec["priority"] = rng.choice((50, 150))
    return {"metadata": {"name": name}, "spec": spec}


def changed_queue(rng: Random, queue: Object) -> Object:
    """A queue of which somebody thinks anew: what is its own, what it gets beyond, whom it goes before."""
    cpu = queue["spec"]["resources"][CPU]
    before = max(cpu["quota"], 1000)
    quota = rng.choice((0, 1000, before // 2000 * 1000, before + 1000, before * 2, -1))
    said = {**cpu, "quota": quota, "overQuotaWeight": rng.choice((0, 1, 1, 3))}
    priority = rng.choice((50, 100, 100, 150))
    times = {
        key: rng.choice((None, None, "20s", "90s")) for key in ("preemptMinRuntime", "reclaimMinRuntime")
    }
    return {"priority": priority, "resources": {**queue["spec"]["resources"], CPU: said}, **times}


def amounts_of_pod(pod: Object) -> Amounts:
    """What a pod asks for."""
    return dict(pod_amounts(msgspec.convert(pod, PodWire).spec))


@dataclass(slots=True)
class QueueUsageView:
    """Of CPU alone, which alone is bounded: what queues may have, and have, with all below them."""

    queues: Mapping[str, Object]
    use: dict[str, int] = field(default_factory=dict)
    lasting: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(queues: Iterable[Object]) -> QueueUsageView:
        """Nobody has anything yet."""
        return QueueUsageView({queue["metadata"]["name"]: queue["spec"] for queue in queues})

    def up(self, name: str) -> Iterator[str]:
        """A queue and all above it."""
        while name in self.queues:
            yield name
            name = self.queues[name].get("parentQueue") or ""

    def take(self, queue: str, cpu: int, *, lasting: bool) -> None:
        """A queue has more, or less."""
        for name in self.up(queue):
            self.use[name] = self.use.get(name, 0) + cpu
            if lasting:
                self.lasting[name] = self.lasting.get(name, 0) + cpu

    def is_leaf(self, name: str) -> bool:
        """Whether gangs may name it."""
        parents = {spec.get("parentQueue") for spec in self.queues.values()}
        return name in self.queues and name not in parents

    def quota(self, name: str) -> int | None:
        """What is its own; None: no bound."""
        said = self.queues[name]["resources"]["cpu"]["quota"]
        return None if said < 0 else int(said)

    def limit(self, name: str) -> int | None:
        """What it may have at most; None: no bound. A limit of 0 rules out more than the quota."""
        said = self.queues[name]["resources"]["cpu"]["limit"]
        return None if said < 0 else int(said) or self.quota(name)

    def over_limit(self, queue: str, *, lasting: bool) -> Iterator[str]:
        """The queues, from this one up, that have more than they may.

        `lasting`: what was given last lasts. Other things do not make too much of that.
        """
        for name in self.up(queue):
            limit, quota = self.limit(name), self.quota(name)
            if limit is not None and self.use.get(name, 0) > limit:
                yield f"queue {name} has {self.use[name]} cpu, more than its limit of {limit}"
            if lasting and quota is not None and self.lasting.get(name, 0) > quota:
                yield f"queue {name} has {self.lasting[name]} cpu that lasts, more than its quota of {quota}"

    def diverging_queues(self, one: str, other: str) -> tuple[str, str]:
        """Seen from the top, the first two that differ."""
        mine, theirs = [*self.up(one)][::-1], [*self.up(other)][::-1]
        for pair in zip(mine, theirs, strict=False):
            if pair[0] != pair[1]:
                return pair
        return one, other
