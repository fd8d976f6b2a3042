"""Invariants of jobs and nodes, checked against the objects in the API after every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bayplan.dialects.kube.decode.wire import PodWire, amounts_of, pod_amounts
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_gang import job_gang
from bayplan.model.gang import Gang, PodSet, Ref, Segment
from bayplan.model.plan import Bind, Plan, PreemptPod
from bayplan.simulator.core.documents import once_per_document, once_per_listing
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState

Object = dict[str, Any]
List = Callable[[str], Sequence[Object]]
OVER = ("Succeeded", "Failed")
PARTIAL_SECONDS = 180.0
PACE_SECONDS = 600.0
PACE_MAX = 9  # three preemptions at once, then after 10, 20, 40, 80, 160 and 300 s


@dataclass(slots=True)
class InvariantChecker:
    """Checks jobs and nodes, and remembers since when a gang has run only partially."""

    partial_since: dict[str, float] = field(default_factory=dict)

    def check(self, objects: List, now: float) -> Iterator[str]:
        """Yield a sentence for each violation in the current state."""
        yield from over_committed_nodes(objects("nodes"), objects("pods"))
        for job, misplaced, partial in _look_at_jobs(objects("jobs"), objects("nodes"), objects("pods")):
            yield from misplaced
            yield from self._partial(job, partial, now)

    def _partial(self, job: Object, partial: bool, now: float) -> Iterator[str]:
        name = job["metadata"]["name"]
        if partial:
            since = self.partial_since.setdefault(name, now)
            if now - since > PARTIAL_SECONDS and not _may_be_unplaceable(job):
                yield f"job {name} has run only partially for {now - since:.0f} s"
        else:
            self.partial_since.pop(name, None)


@once_per_listing
def _look_at_jobs(
    jobs: Sequence[Object], nodes: Sequence[Object], pods: Sequence[Object]
) -> tuple[tuple[Object, tuple[str, ...], bool], ...]:
    """Each job, what is wrong with the places of its pods, and whether it runs only partially."""
    labels, by_owner, found = labels_by_node(nodes), _by_owner(pods), []
    for job in jobs:
        own_pods = by_owner.get(job["metadata"]["uid"], ())
        running = pods_on_nodes(own_pods)
        succeeded = [pod for pod in own_pods if _has_succeeded(pod)]
        misplaced = tuple(check_localities(job, [*running, *succeeded], labels))
        unfinished = (pod for pod in own_pods if pod["status"].get("phase") not in OVER)
        partial = bool(running) and any(not pod["spec"].get("nodeName") for pod in unfinished)
        found.append((job, misplaced, partial))
    return tuple(found)


def over_committed(
    nodes: Iterable[Object], pods: Iterable[Object], node_of: Callable[[Object], str] | None = None
) -> Iterator[str]:
    """Nodes whose pods request more than is allocatable."""
    for name, resource, amount, limit in use_of(nodes, used_by(pods, node_of or bound_to)):
        if amount > limit:
            yield f"node {name} holds {amount} {resource} of {limit}"


@once_per_listing
def over_committed_nodes(nodes: Sequence[Object], pods: Sequence[Object]) -> tuple[str, ...]:
    """The same for all pods that are bound, as sentences."""
    return tuple(over_committed(nodes, pods_on_nodes(pods)))


@once_per_document
def allocatable_of(node: Object) -> Mapping[str, int]:
    """The allocatable amounts of a node."""
    return amounts_of(node["status"].get("allocatable"))


@once_per_document
def pod_requests(pod: Object) -> Mapping[str, int]:
    """The requests of a pod."""
    return pod_amounts(msgspec.convert(pod, PodWire).spec)


@once_per_document
def gang_of_job(job: Object) -> Gang:
    """The gang that a job asks for."""
    return job_gang(Field(job))


def bound_to(pod: Object) -> str:
    """The node of a bound pod."""
    return str(pod["spec"]["nodeName"])


def use_of(
    nodes: Iterable[Object], used: Mapping[str, Mapping[str, int]]
) -> Iterator[tuple[str, str, int, int]]:
    """Node, resource, used amount and allocatable amount."""
    for node in nodes:
        name = node["metadata"]["name"]
        allocatable = allocatable_of(node)
        for resource, amount in used.get(name, {}).items():
            yield name, resource, amount, allocatable.get(resource, 0)


def used_by(pods: Iterable[Object], node_of: Callable[[Object], str] = bound_to) -> dict[str, dict[str, int]]:
    """The sum of pod requests by node."""
    used: dict[str, dict[str, int]] = {}
    for pod in pods:
        node_usage = used.setdefault(node_of(pod), {})
        for name, amount in pod_requests(pod).items():
            node_usage[name] = node_usage.get(name, 0) + amount
    return used


@once_per_listing
def pods_on_nodes(pods: Sequence[Object]) -> tuple[Object, ...]:
    """Pods that use resources of a node."""
    return tuple([pod for pod in pods if _uses_node(pod)])


@once_per_listing
def labels_by_node(nodes: Sequence[Object]) -> Mapping[str, Mapping[str, str]]:
    """The labels of every node, by its name."""
    return {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}


def check_localities(
    job: Object, pods: Sequence[Object], labels: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Violations of required domains and segments, among running and succeeded pods."""
    name = job["metadata"]["name"]
    placed = [pod for pod in pods if pod["spec"]["nodeName"] in labels]
    for pod_set in gang_of_job(job).root.pod_sets():
        if pod_set.locality.required:
            domains = {labels[pod["spec"]["nodeName"]].get(pod_set.locality.required) for pod in placed}
            if len(domains) > 1:
                level = pod_set.locality.required
                yield f"job {name} must be in one {level} but is in {sorted(map(str, domains))}"
        for segment in pod_set.segments:
            yield from _segments(name, placed, segment, labels, pod_set)


def _segments(
    name: str,
    pods: Sequence[Object],
    segment: Segment,
    labels: Mapping[str, Mapping[str, str]],
    whole: PodSet,
) -> Iterator[str]:
    counts: dict[str, int] = {}
    for pod in pods:
        domain = labels[pod["spec"]["nodeName"]].get(segment.level, "")
        counts[domain] = counts.get(domain, 0) + 1
    if len(pods) < whole.count:
        return
    uneven = [domain for domain, count in counts.items() if count % segment.size]
    if len(uneven) > (1 if whole.count % segment.size else 0):
        yield f"job {name} has broken segments of {segment.size} in {segment.level} {uneven}"


def check_whole_gangs(plan: Plan, state: SchedulingState) -> Iterator[str]:
    """A plan binds all pending pods of a gang or none."""
    bound: dict[Ref, int] = {}
    for action in plan.actions:
        if isinstance(action, Bind):
            bound[action.gang] = bound.get(action.gang, 0) + 1
    for ref, count in bound.items():
        pending = len(state.pending(ref))
        if count != pending:
            yield f"gang {ref.name} would start {count} of {pending} pods"


@dataclass(slots=True)
class PreemptionPace:
    """How often each gang preempts pods without getting a node, in the life of one process."""

    preempted: dict[Ref, list[float]] = field(default_factory=dict)  # when, since it got a node

    def check(self, plan: Plan, now: float) -> Iterator[str]:
        """A gang that preempts again and again, without getting a node, pauses."""
        for action in plan.actions:
            if isinstance(action, Bind):
                self.preempted.pop(action.gang, None)
        by = {one.by: None for one in plan.actions if isinstance(one, PreemptPod) and not one.undoes}
        for gang in by:
            times = [when for when in self.preempted.get(gang, ()) if when > now - PACE_SECONDS]
            self.preempted[gang] = [*times, now]
            if len(times) == PACE_MAX:
                yield f"{gang.name} preempts for the {PACE_MAX + 1}th time in {now - times[0]:.0f} s"


def check_no_gang_is_bound_and_preempted(plan: Plan) -> Iterator[str]:
    """A plan does not bind pods of a gang and preempt others of it, unless the gang does so itself."""
    bound = {action.gang for action in plan.actions if isinstance(action, Bind)}
    for action in plan.actions:
        if isinstance(action, PreemptPod) and action.pod.gang in bound and action.by != action.pod.gang:
            yield f"pod {action.pod.key.name} would be preempted while its gang gets nodes"


def check_consistency(state: SchedulingState) -> Iterator[str]:
    """The ledger, the usage by node and the scheduling queue agree with each other."""
    sums = state.store.nodes.ledger.by_node()
    for cluster in state.store.nodes.topologies.values():
        for name, used in cluster.used.items():
            if used == sums.get(name):
                continue
            held = {resource: amount for resource, amount in used.items() if amount}
            if held != {r: a for r, a in sums.get(name, {}).items() if a}:
                yield f"node {name}: the ledger says {sums.get(name, {})}, the cluster {held}"
    entries = list(state.entries())
    queued = {entry.ref for entry in entries}
    for ref in state.store.specs:
        if ref not in queued:
            yield f"gang {ref} is in no queue"
    for entry in entries:
        if entry.state in (EntryState.BACKOFF, EntryState.BINDING) and entry.due == float("inf"):
            yield f"gang {entry.ref} stays {entry.state} forever"


def _uses_node(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and (pod.get("status") or {}).get("phase") not in OVER


def _has_succeeded(pod: Object) -> bool:
    return pod["status"].get("phase") == "Succeeded" and not pod["metadata"].get("deletionTimestamp")


@once_per_listing
def _by_owner(pods: Sequence[Object]) -> Mapping[str, tuple[Object, ...]]:
    """Pods by the uid of each of their owners."""
    found: dict[str, list[Object]] = {}
    for pod in pods:
        for uid in {reference["uid"] for reference in pod["metadata"].get("ownerReferences") or ()}:
            found.setdefault(uid, []).append(pod)
    return {uid: tuple(owned) for uid, owned in found.items()}


def _may_be_unplaceable(job: Object) -> bool:
    """Whether a required domain may have become too small; the rest of the gang then stays pending."""
    return any(pod_set.locality.required or pod_set.segments for pod_set in gang_of_job(job).root.pod_sets())
