"""A small random cluster with queues, and the pod groups that arrive there, generated from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from bayplan.backends.fake_controllers.manifests import BLOCK, NAMESPACE, RACK
from bayplan.dialects.api import Kind
from bayplan.dialects.kai.api import names
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.model.profile import Profile
from bayplan.simulator.core.arrivals import TimedObject, generate_arrivals, random_job, timed_job
from bayplan.simulator.core.fixtures import PLAIN_PODS
from bayplan.simulator.pods.world import (
    CLASSES,
    DEDICATED,
    EXIT,
    GANG,
    OTHER,
    POOL,
    RUN_SECONDS,
    WAIT_GATE,
    random_nodes,
    random_profile,
    worker,
)
from bayplan.simulator.subgroups.queue_view import Object, random_queues

HALL = "hall"
LEVELS = (BLOCK, RACK)
PRIORITIES = {"low": 10, "high": 75, "steady": 110}
"""The PriorityClasses; groups of the last one are not preemptible unless they say so."""
DEFAULT_PRIORITY = 50  # the priority of a group that names no class
UNCONSTRAINED: Object = {}


@dataclass(frozen=True, slots=True)
class TreesWorld:
    """The objects at the start, and the objects that are created later."""

    profile: Profile
    nodes: list[Object]
    rules: list[tuple[Kind, Object]]
    arrivals: list[TimedObject]


def trees_world(rng: Random, until: float) -> TreesWorld:
    """Hosts in racks, queues in three of four seeds, and arrivals of pod groups, jobs and single pods."""
    rules = [(CLASSES, {"metadata": {"name": name}, "value": value}) for name, value in PRIORITIES.items()]
    levels = [{"nodeLabel": level} for level in LEVELS]
    rules.append((names.TOPOLOGY, {"metadata": {"name": HALL}, "spec": {"levels": levels}}))
    nodes = random_nodes(rng)
    queues, leaves = random_queues(rng, nodes) if rng.random() < 0.75 else ([], ())
    rules += [(names.QUEUE, queue) for queue in queues]
    arrivals: list[TimedObject] = []
    generator = GroupGenerator(rng, leaves, arrivals)
    generators = (0.7, "tree", generator.tree), (0.88, "job", generator.job), (1.0, "lone", generator.lone)
    generate_arrivals(rng, until, (5, 13), generators)
    profile = random_profile(rng)
    arrivals.sort(key=lambda arrival: arrival.when)
    return TreesWorld(profile, nodes, rules, arrivals)


def topology_constraint(required: str = "", preferred: str = "") -> Object:
    """The topology constraint of a group or a sub-group, as part of its spec."""
    levels = {"requiredTopologyLevel": required, "preferredTopologyLevel": preferred}
    fields = {key: level for key, level in levels.items() if level}
    return {"topologyConstraint": {"topology": HALL, **fields}} if fields else {}


class GroupGenerator:
    """Generates arrivals: groups with their pods, jobs for the pod grouper, and single pods."""

    def __init__(self, rng: Random, queues: Sequence[str], arrivals: list[TimedObject]) -> None:
        self.rng, self.queues, self.arrivals = rng, queues, arrivals

    def tree(self, name: str, when: float) -> None:
        """A group of a random structure, and its pods, a few more or fewer than its minimum."""
        rng = self.rng
        shape = rng.choice((self._flat, self._roles, self._segments, self._segments, self._branches))
        spec, parts = shape()
        spec |= self._scheduling_fields()
        late = rng.choice((0.0, 0.0, rng.uniform(0, 15)))
        meta = {"name": name, "namespace": NAMESPACE}
        self.arrivals.append(TimedObject(when + late, names.POD_GROUP, {"metadata": meta, "spec": spec}))
        pod, spread = self._template(name), rng.choice((0.0, 0.0, 3.0, 20.0))
        if rng.random() < 0.06:
            parts["unknown"] = 1
        for part, count in parts.items():
            big = rng.random() < 0.15
            for number in range(count):
                self._pod(
                    f"{name}-{part or 'p'}-{number}", part, name, when + rng.uniform(0, spread), pod, big
                )

    def lone(self, name: str, when: float) -> None:
        """Pods without a group; some belong to another scheduler."""
        rng, pod = self.rng, self._template(name)
        ours = rng.random() < 0.5
        for number in range(rng.choice((1, 1, 2, 4))):
            single = self._copy(pod, f"{name}-{number}")
            single["metadata"]["labels"] |= self._labels() if ours else {}
            single["spec"]["schedulerName"] = SCHEDULER if ours else OTHER
            self.arrivals.append(TimedObject(when + rng.uniform(0, 3), PLAIN_PODS, single))

    def job(self, name: str, when: float) -> None:
        """An indexed Job, usually in segments, or a JobSet of indexed Jobs."""
        rng, pods = self.rng, self.rng.choice((1, 2, 3, 4, 5, 6))
        pod = self._template(name)
        annotations = dict(pod["metadata"]["annotations"])
        if rng.random() < 0.75:
            annotations[names.SEGMENT_SIZE] = str(rng.choice((1, 2, 2, 3)))
            annotations[names.SEGMENT_REQUIRED] = RACK
        kind, spec = random_job(rng, pod, annotations, pods, 0.25)
        wishes: Object = rng.choice(({}, {names.REQUIRED: BLOCK}, {names.PREFERRED: BLOCK}))
        about = {"labels": self._labels(), "annotations": {names.TOPOLOGY_NAME: HALL, **wishes}}
        self.arrivals.append(timed_job(when, kind, name, spec, **about))

    # ── shapes: the spec of a group, and how many pods come of each part ──

    def _flat(self) -> tuple[Object, dict[str, int]]:
        size = self.rng.choice((1, 2, 3, 4, 6))
        least = size if self.rng.random() < 0.5 else self.rng.randint(1, size)
        return {"minMember": least, **self._random_constraint((RACK, BLOCK))}, {"": size}

    def _roles(self) -> tuple[Object, dict[str, int]]:
        """A leader, and workers of one or two roles, each with a topology constraint of its own."""
        rng = self.rng
        counts = {"leader": 1} | {
            sort: rng.randint(1, 4) for sort in ("worker", "helper")[: rng.randint(1, 2)]
        }
        parts = []
        for name, count in counts.items():
            least = count if rng.random() < 0.6 else rng.randint(0, count)
            parts.append({"name": name, "minMember": least, **self._random_constraint((RACK,))})
        return {**self._sum(parts), **self._random_constraint((BLOCK,)), "subGroups": parts}, counts

    def _segments(self) -> tuple[Object, dict[str, int]]:
        """Segments of workers, each in one rack; pods of the last segments may be missing."""
        rng = self.rng
        size, needed, more = rng.choice((1, 2, 2, 3)), rng.randint(1, 3), rng.choice((0, 0, 1, 2))
        each = topology_constraint(RACK) if rng.random() < 0.8 else topology_constraint("", RACK)
        parts: list[Object] = [{"name": "worker", "minMember": 1, **self._random_constraint((BLOCK,))}]
        counts: dict[str, int] = {}
        for number in range(needed + more):
            last = number == needed + more - 1 and rng.random() < 0.3
            counts[f"worker-{number}"] = count = max(size - 1, 1) if last else size
            least = count if number < needed else 0
            parts.append({"name": f"worker-{number}", "parent": "worker", "minMember": least, **each})
        if rng.random() < 0.3:
            parts.append({"name": "leader", "minMember": 1})
            counts["leader"] = 1
        if more and rng.random() < 0.3:
            del counts[f"worker-{needed + more - 1}"]  # they never come
        return {**self._sum(parts), **self._random_constraint((BLOCK,)), "subGroups": parts}, counts

    def _branches(self) -> tuple[Object, dict[str, int]]:
        """Two branches with a topology constraint each, and two leaves each."""
        rng = self.rng
        parts: list[Object] = []
        counts: dict[str, int] = {}
        for branch in ("left", "right"):
            parts.append({"name": branch, "minMember": 1, **self._random_constraint((BLOCK, RACK))})
            for leaf in (f"{branch}-one", f"{branch}-two"):
                counts[leaf] = count = rng.randint(1, 3)
                least = count if rng.random() < 0.6 else rng.randint(0, count)
                parts.append(
                    {"name": leaf, "parent": branch, "minMember": least, **self._random_constraint((RACK,))}
                )
        return {**self._sum(parts), "subGroups": parts}, counts

    def _random_constraint(self, levels: Sequence[str]) -> Object:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.45:
            return UNCONSTRAINED
        if kind < 0.8:
            return topology_constraint(rng.choice(levels))
        if kind < 0.95 or BLOCK not in levels:
            return topology_constraint("", rng.choice(levels))
        return topology_constraint(BLOCK, RACK)

    def _sum(self, parts: Sequence[Object]) -> Object:
        parents = {part.get("parent") for part in parts}
        return {"minMember": max(sum(p["minMember"] for p in parts if p["name"] not in parents), 1)}

    # ── what all have in common ──

    def _queue(self) -> str:
        if not self.queues or self.rng.random() < 0.03:
            return "missing-queue"
        return self.rng.choice(self.queues)

    def _scheduling_fields(self) -> Object:
        """The queue, priority class and preemptibility of a group."""
        rng = self.rng
        fields: Object = {"queue": self._queue()}
        if wanted := rng.choice(("", "", "low", "high", "steady")):
            fields["priorityClassName"] = wanted
        if rng.random() < 0.25:
            fields["preemptibility"] = rng.choice((names.PREEMPTIBLE, names.NON_PREEMPTIBLE))
        return fields

    def _labels(self) -> Object:
        """The same as labels, for objects that the pod grouper puts into a group."""
        fields = self._scheduling_fields()
        keys = {"queue": names.QUEUE_LABEL, "priorityClassName": names.PRIORITY_LABEL,
                "preemptibility": names.PREEMPTIBILITY}  # fmt: skip
        return {keys[key]: value for key, value in fields.items()}

    def _pod(self, name: str, part: str, group: str, when: float, pod: Object, big: bool) -> None:
        pod = self._copy(pod, name)
        pod["metadata"]["annotations"][names.POD_GROUP_NAME] = group
        if part:
            pod["metadata"]["labels"][names.SUB_GROUP_NAME] = part
        pod["spec"]["schedulerName"] = SCHEDULER
        if big:
            pod["spec"]["containers"] = [worker("3")]
        if self.rng.random() < 0.02:
            pod["spec"]["schedulingGates"] = [{"name": WAIT_GATE}]
        self.arrivals.append(TimedObject(when, PLAIN_PODS, pod))

    @staticmethod
    def _copy(pod: Object, name: str) -> Object:
        meta: dict[str, Any] = {"name": name, "namespace": NAMESPACE}
        meta |= {key: dict(pod["metadata"][key]) for key in ("labels", "annotations")}
        return {"metadata": meta, "spec": dict(pod["spec"])}

    def _template(self, name: str) -> Object:
        rng = self.rng
        seconds = rng.choice(("5", "15", "40", "80", "", "", ""))
        annotations = {RUN_SECONDS: seconds} if seconds else {}
        if rng.random() < 0.05:
            annotations[EXIT] = "1"
        spec: Object = {"containers": [worker(rng.choice(("500m", "1", "1", "2", "2")))]}
        spec["terminationGracePeriodSeconds"] = rng.choice((0, 1, 5, 30))
        if rng.random() < 0.3:
            spec["tolerations"] = [{"key": DEDICATED["key"], "operator": "Exists"}]
        if rng.random() < 0.1:
            spec["nodeSelector"] = {POOL: rng.choice(("gold", "silver"))}
        if rng.random() < 0.15:
            spec["priorityClassName"] = rng.choice(("low", "high"))
        return {"metadata": {"labels": {GANG: name}, "annotations": annotations}, "spec": spec}
