"""Queues of a random cluster, and their usage by the API objects, computed independently of the scheduler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from bayplan.dialects.kube.decode.wire import amounts_of

Object = dict[str, Any]
Amounts = dict[str, int]
CPU = "cpu"
UNLIMITED = {"quota": -1, "limit": -1, "overQuotaWeight": 1}


def random_queues(rng: Random, nodes: Sequence[Object]) -> tuple[list[Object], tuple[str, ...]]:
    """Random team queues, possibly below departments, and the names of the leaves; only CPU is limited."""
    total = sum(amounts_of(node["status"]["allocatable"])[CPU] for node in nodes)
    queues: list[Object] = []
    departments = ["dept-a", "dept-b"][: rng.choice((0, 1, 2, 2))]
    queues += [_queue(rng, name, "", total // len(departments)) for name in departments]
    leaves = ["default-queue", *(f"team-{number}" for number in range(rng.randint(1, 4)))]
    for name in leaves:
        parent = rng.choice(departments) if departments else ""
        queues.append(_queue(rng, name, parent, total // len(leaves)))
    return queues, tuple(leaves)


def _queue(rng: Random, name: str, parent: str, share: int) -> Object:
    """A queue with a random quota in whole CPUs: none, too large, or unlimited."""
    cpus = share // 1000 * 1000
    cpu = {
        "quota": rng.choice((0, cpus // 2, cpus, cpus, cpus * 2, -1)),
        "limit": rng.choice((-1, -1, max(cpus, 1000), cpus * 2)),
        "overQuotaWeight": rng.choice((1, 1, 2, 0)),
    }
    spec: Object = {"resources": {"cpu": cpu, "memory": UNLIMITED, "gpu": UNLIMITED}}
    if parent:
        spec["parentQueue"] = parent
    if rng.random() < 0.3:
        spec["priority"] = rng.choice((50, 150))
    return {"metadata": {"name": name}, "spec": spec}


def changed_queue(rng: Random, queue: Object) -> Object:
    """A patch of the spec of a queue: another quota, weight, priority and minimum runtimes."""
    cpu = queue["spec"]["resources"][CPU]
    before = max(cpu["quota"], 1000)
    quota = rng.choice((0, 1000, before // 2000 * 1000, before + 1000, before * 2, -1))
    value = {**cpu, "quota": quota, "overQuotaWeight": rng.choice((0, 1, 1, 3))}
    priority = rng.choice((50, 100, 100, 150))
    times = {
        key: rng.choice((None, None, "20s", "90s")) for key in ("preemptMinRuntime", "reclaimMinRuntime")
    }
    return {"priority": priority, "resources": {**queue["spec"]["resources"], CPU: value}, **times}


@dataclass(slots=True)
class QueueUsageView:
    """CPU quota, limit and usage of queues, including the queues below them; only CPU is limited."""

    queues: Mapping[str, Object]
    use: dict[str, int] = field(default_factory=dict)
    non_preemptible: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def of(queues: Iterable[Object]) -> QueueUsageView:
        """Queues without usage."""
        return QueueUsageView({queue["metadata"]["name"]: queue["spec"] for queue in queues})

    def with_ancestors(self, name: str) -> Iterator[str]:
        """A queue and all queues above it."""
        while name in self.queues:
            yield name
            name = self.queues[name].get("parentQueue") or ""

    def take(self, queue: str, cpu: int, *, non_preemptible: bool) -> None:
        """Add to the usage of a queue and of all queues above it."""
        for name in self.with_ancestors(queue):
            self.use[name] = self.use.get(name, 0) + cpu
            if non_preemptible:
                self.non_preemptible[name] = self.non_preemptible.get(name, 0) + cpu

    def is_leaf(self, name: str) -> bool:
        """Whether gangs may name the queue."""
        parents = {spec.get("parentQueue") for spec in self.queues.values()}
        return name in self.queues and name not in parents

    def quota(self, name: str) -> int | None:
        """The quota of a queue; None if unlimited."""
        value = self.queues[name]["resources"]["cpu"]["quota"]
        return None if value < 0 else int(value)

    def limit(self, name: str) -> int | None:
        """The limit of a queue; None if unlimited. A limit of 0 means the quota."""
        value = self.queues[name]["resources"]["cpu"]["limit"]
        return None if value < 0 else int(value) or self.quota(name)

    def over_limit(self, queue: str, *, non_preemptible: bool) -> Iterator[str]:
        """The queues, from this one up, whose usage is above a limit.

        `non_preemptible`: also check the non-preemptible usage against the quota.
        """
        for name in self.with_ancestors(queue):
            limit, quota = self.limit(name), self.quota(name)
            if limit is not None and self.use.get(name, 0) > limit:
                yield f"queue {name} has {self.use[name]} cpu, more than its limit of {limit}"
            if non_preemptible and quota is not None and self.non_preemptible.get(name, 0) > quota:
                used = self.non_preemptible[name]
                yield f"queue {name} has {used} non-preemptible cpu, more than its quota of {quota}"

    def diverging_queues(self, one: str, other: str) -> tuple[str, str]:
        """The first two different queues on the paths from the top to two queues."""
        own_path, other_path = [*self.with_ancestors(one)][::-1], [*self.with_ancestors(other)][::-1]
        for pair in zip(own_path, other_path, strict=False):
            if pair[0] != pair[1]:
                return pair
        return one, other
