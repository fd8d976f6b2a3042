"""A small random cluster with queues, and the trees of pods that people bring to it, by one seed."""

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
from bayplan.simulator.core.arrivals import TimedObject, job_coming, some_arrivals, some_job
from bayplan.simulator.core.fixtures import PLAIN_PODS
from bayplan.simulator.pods.world import (
    CLASSES,
    DEDICATED,
    EXIT,
    GANG,
    OTHER,
    POOL,
    RUN_SECONDS,
    some_nodes,
    some_profile,
    worker,
)
from bayplan.simulator.subgroups.queue_view import Object, some_queues

HALL = "hall"
LEVELS = (BLOCK, RACK)
PRIORITIES = {"low": 10, "high": 75, "steady": 110}
"""Classes that are there; groups of the last say nothing of being preemptible, and are not."""
UNTOLD = 50  # the priority of a group that names no class
LOOSE: Object = {}


@dataclass(frozen=True, slots=True)
class TreesWorld:
    """What there is at the start, and what comes when."""

    profile: Profile
    nodes: list[Object]
    rules: list[tuple[Kind, Object]]
    comings: list[TimedObject]


def trees_world(rng: Random, until: float) -> TreesWorld:
    """Hosts in racks, queues or none, and everything that a scheduler is asked for."""
    rules = [(CLASSES, {"metadata": {"name": name}, "value": value}) for name, value in PRIORITIES.items()]
    levels = [{"nodeLabel": level} for level in LEVELS]
    rules.append((names.TOPOLOGY, {"metadata": {"name": HALL}, "spec": {"levels": levels}}))
    nodes = some_nodes(rng)
    queues, leaves = some_queues(rng, nodes) if rng.random() < 0.75 else ([], ())
    rules += [(names.QUEUE, queue) for queue in queues]
    comings: list[TimedObject] = []
    bring = GroupGenerator(rng, leaves, comings)
    ways = (0.7, "tree", bring.tree), (0.88, "job", bring.job), (1.0, "lone", bring.lone)
    some_arrivals(rng, until, (5, 13), ways)
    profile = some_profile(rng)
    comings.sort(key=lambda coming: coming.when)
    return TreesWorld(profile, nodes, rules, comings)


def bond(required: str = "", preferred: str = "") -> Object:
    """Where pods belong, as a group or a sub-group says it."""
    asked = {"requiredTopologyLevel": required, "preferredTopologyLevel": preferred}
    said = {key: level for key, level in asked.items() if level}
    return {"topologyConstraint": {"topology": HALL, **said}} if said else {}


class GroupGenerator:
    """Makes what people bring: groups with their pods, jobs that are put into groups, and single pods."""

    def __init__(self, rng: Random, queues: Sequence[str], comings: list[TimedObject]) -> None:
        self.rng, self.queues, self.comings = rng, queues, comings

    def tree(self, name: str, when: float) -> None:
        """A group of one of many shapes, and its pods, a few more or less than it asks for."""
        rng = self.rng
        shape = rng.choice((self._flat, self._roles, self._segments, self._segments, self._branches))
        spec, parts = shape()
        spec |= self._claim()
        late = rng.choice((0.0, 0.0, rng.uniform(0, 15)))
        meta = {"name": name, "namespace": NAMESPACE}
        self.comings.append(TimedObject(when + late, names.POD_GROUP, {"metadata": meta, "spec": spec}))
        pod, spread = self._template(name), rng.choice((0.0, 0.0, 3.0, 20.0))
        if rng.random() < 0.06:
            parts["nobody"] = 1
        for part, count in parts.items():
            big = rng.random() < 0.15
            for number in range(count):
                self._pod(
                    f"{name}-{part or 'p'}-{number}", part, name, when + rng.uniform(0, spread), pod, big
                )

    def lone(self, name: str, when: float) -> None:
        """Pods that name no group; some of another scheduler."""
        rng, pod = self.rng, self._template(name)
        ours = rng.random() < 0.5
        for number in range(rng.choice((1, 1, 2, 4))):
            made = self._copy(pod, f"{name}-{number}")
            made["metadata"]["labels"] |= self._labels() if ours else {}
            made["spec"]["schedulerName"] = SCHEDULER if ours else OTHER
            self.comings.append(TimedObject(when + rng.uniform(0, 3), PLAIN_PODS, made))

    def job(self, name: str, when: float) -> None:
        """An indexed Job, mostly in segments, or a JobSet of such."""
        rng, pods = self.rng, self.rng.choice((1, 2, 3, 4, 5, 6))
        pod = self._template(name)
        notes = dict(pod["metadata"]["annotations"])
        if rng.random() < 0.75:
            notes[names.SEGMENT_SIZE] = str(rng.choice((1, 2, 2, 3)))
            notes[names.SEGMENT_REQUIRED] = RACK
        kind, spec = some_job(rng, pod, notes, pods, 0.25)
        wishes: Object = rng.choice(({}, {names.REQUIRED: BLOCK}, {names.PREFERRED: BLOCK}))
        about = {"labels": self._labels(), "annotations": {names.TOPOLOGY_NAME: HALL, **wishes}}
        self.comings.append(job_coming(when, kind, name, spec, **about))

    # ── shapes: the spec of a group, and how many pods come of each part ──

    def _flat(self) -> tuple[Object, dict[str, int]]:
        size = self.rng.choice((1, 2, 3, 4, 6))
        least = size if self.rng.random() < 0.5 else self.rng.randint(1, size)
        return {"minMember": least, **self._asked((RACK, BLOCK))}, {"": size}

    def _roles(self) -> tuple[Object, dict[str, int]]:
        """A leader, and workers of one or two sorts, each where it belongs."""
        rng = self.rng
        counts = {"leader": 1} | {
            sort: rng.randint(1, 4) for sort in ("worker", "helper")[: rng.randint(1, 2)]
        }
        parts = []
        for name, count in counts.items():
            least = count if rng.random() < 0.6 else rng.randint(0, count)
            parts.append({"name": name, "minMember": least, **self._asked((RACK,))})
        return {**self._sum(parts), **self._asked((BLOCK,)), "subGroups": parts}, counts

    def _segments(self) -> tuple[Object, dict[str, int]]:
        """Equal shares of the workers, each in a rack of its own; the last ones may be missing."""
        rng = self.rng
        size, needed, more = rng.choice((1, 2, 2, 3)), rng.randint(1, 3), rng.choice((0, 0, 1, 2))
        each = bond(RACK) if rng.random() < 0.8 else bond("", RACK)
        parts: list[Object] = [{"name": "worker", "minMember": 1, **self._asked((BLOCK,))}]
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
        return {**self._sum(parts), **self._asked((BLOCK,)), "subGroups": parts}, counts

    def _branches(self) -> tuple[Object, dict[str, int]]:
        """Two branches that ask for one domain each, with two leaves each."""
        rng = self.rng
        parts: list[Object] = []
        counts: dict[str, int] = {}
        for branch in ("left", "right"):
            parts.append({"name": branch, "minMember": 1, **self._asked((BLOCK, RACK))})
            for leaf in (f"{branch}-one", f"{branch}-two"):
                counts[leaf] = count = rng.randint(1, 3)
                least = count if rng.random() < 0.6 else rng.randint(0, count)
                parts.append({"name": leaf, "parent": branch, "minMember": least, **self._asked((RACK,))})
        return {**self._sum(parts), "subGroups": parts}, counts

    def _asked(self, levels: Sequence[str]) -> Object:
        rng, kind = self.rng, self.rng.random()
        if kind < 0.45:
            return LOOSE
        if kind < 0.8:
            return bond(rng.choice(levels))
        if kind < 0.95 or BLOCK not in levels:
            return bond("", rng.choice(levels))
        return bond(BLOCK, RACK)

    def _sum(self, parts: Sequence[Object]) -> Object:
        parents = {part.get("parent") for part in parts}
        return {"minMember": max(sum(p["minMember"] for p in parts if p["name"] not in parents), 1)}

    # ── what all have in common ──

    def _queue(self) -> str:
        if not self.queues or self.rng.random() < 0.03:
            return "nobodys"
        return self.rng.choice(self.queues)

    def _claim(self) -> Object:
        """Whose share a group uses, how important it is, and whether it may be made to go."""
        rng = self.rng
        said: Object = {"queue": self._queue()}
        if wanted := rng.choice(("", "", "low", "high", "steady")):
            said["priorityClassName"] = wanted
        if rng.random() < 0.25:
            said["preemptibility"] = rng.choice((names.PREEMPTIBLE, names.NON_PREEMPTIBLE))
        return said

    def _labels(self) -> Object:
        """The same for what is put into a group."""
        claim = self._claim()
        keys = {"queue": names.QUEUE_LABEL, "priorityClassName": names.PRIORITY_LABEL,
                "preemptibility": names.PREEMPTIBILITY}  # fmt: skip
        return {keys[key]: value for key, value in claim.items()}

    def _pod(self, name: str, part: str, group: str, when: float, pod: Object, big: bool) -> None:
        made = self._copy(pod, name)
        made["metadata"]["annotations"][names.POD_GROUP_NAME] = group
        if part:
            made["metadata"]["labels"][names.SUB_GROUP_NAME] = part
        made["spec"]["schedulerName"] = SCHEDULER
        if big:
            made["spec"]["containers"] = [worker("3")]
        if self.rng.random() < 0.02:
            made["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        self.comings.append(TimedObject(when, PLAIN_PODS, made))

    @staticmethod
    def _copy(pod: Object, name: str) -> Object:
        meta: dict[str, Any] = {"name": name, "namespace": NAMESPACE}
        meta |= {key: dict(pod["metadata"][key]) for key in ("labels", "annotations")}
        return {"metadata": meta, "spec": dict(pod["spec"])}

    def _template(self, name: str) -> Object:
        rng = self.rng
        seconds = rng.choice(("5", "15", "40", "80", "", "", ""))
        notes = {RUN_SECONDS: seconds} if seconds else {}
        if rng.random() < 0.05:
            notes[EXIT] = "1"
        spec: Object = {"containers": [worker(rng.choice(("500m", "1", "1", "2", "2")))]}
        spec["terminationGracePeriodSeconds"] = rng.choice((0, 1, 5, 30))
        if rng.random() < 0.3:
            spec["tolerations"] = [{"key": DEDICATED["key"], "operator": "Exists"}]
        if rng.random() < 0.1:
            spec["nodeSelector"] = {POOL: rng.choice(("gold", "silver"))}
        if rng.random() < 0.15:
            spec["priorityClassName"] = rng.choice(("low", "high"))
        return {"metadata": {"labels": {GANG: name}, "annotations": notes}, "spec": spec}
