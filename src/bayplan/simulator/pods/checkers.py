"""What must always hold of pods that our scheduler binds, read from the API's own objects after every step.

Another scheduler binds pods as well. Of its pods only those count against us of which we were told before
we decided (`told`): nobody can respect what he cannot know. All pods of ours count as soon as they are bound.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bayplan.backends.embedded.api.selectors import selector_matcher
from bayplan.backends.fake_controllers.objects import is_leaving
from bayplan.model.plan import Plan, PreemptPod
from bayplan.simulator.core.checkers import check_localities, over_committed, pods_on_nodes
from bayplan.simulator.pods.gang_view import (
    GangView,
    List,
    Object,
    gang_of,
    gang_views,
    is_ours,
    priority_of,
    stands,
    waits,
)

GRACE_SECONDS = 60.0  # writes that nobody answers, backoff, pods that take their time to go
Told = Callable[[Object], str]
"""The node of a pod as we were told last; empty: none, or nothing was said."""
Labels = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class GangPreemption:
    """Somebody was preempted for a gang that waits."""

    when: float
    victim: str
    by: str
    priority: int
    waiting: tuple[str, ...]  # uids


@dataclass(slots=True)
class PodChecker:
    """Remembers what a single look cannot see: who was bound when, who had its minimum, who went for whom."""

    heal_seconds: float
    bound: dict[str, float] = field(default_factory=dict)  # pods of ours, by uid, since when
    importance: list[tuple[float, int]] = field(default_factory=list)  # of each that was bound
    had: dict[tuple[str, str], None] = field(default_factory=dict)  # gangs that were whole once
    since: dict[str, float] = field(default_factory=dict)  # gangs in part, that never were whole
    preemptions: list[GangPreemption] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)  # uids of those who were sent away
    preempted_gangs: set[str] = field(default_factory=set)  # gangs of which some made room for others

    def check(
        self, objects: List, now: float, told: Told, disturbed: Iterable[str], *, exact: bool
    ) -> Iterator[str]:
        """Everything that is wrong right now. `exact`: every write of late did what we believe it did."""
        nodes = objects("nodes")
        labels = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}
        fresh = [pod for pod in objects("pods") if self._is_new(pod)]
        found = gang_views(objects)
        if fresh:
            there = [pod for pod in pods_on_nodes(objects("pods")) if is_ours(pod) or told(pod)]
            touched = {pod["spec"]["nodeName"] for pod in fresh}
            yield from over_committed([n for n in nodes if n["metadata"]["name"] in touched], there)
            for pod in fresh:
                yield from check_ports_and_anti_affinity(pod, there, labels)
                if exact:
                    yield from check_spread(pod, fresh, there, labels)
            for name in dict.fromkeys(map(gang_of, fresh)):
                if name:
                    yield from check_required_domain(found[name], labels)
        for pod in fresh:
            self.bound[pod["metadata"]["uid"]] = now
            self.importance.append((now, priority_of(pod)))
        for view in found.values():
            yield from self._partial(view, now, disturbed)

    def _is_new(self, pod: Object) -> bool:
        bound = is_ours(pod) and bool(pod["spec"].get("nodeName"))
        return bound and pod["metadata"]["uid"] not in self.bound

    def _partial(self, view: GangView, now: float, disturbed: Iterable[str]) -> Iterator[str]:
        """A gang that never had its minimum must not hold a part of it for long, while others of it wait.

        Unless somebody else took pods of it away, or others were let have their room: then nobody can tell
        whether it ever was whole.
        """
        standing, key = len(view.standing()), (view.name, view.uid)
        if view.known and standing >= view.minimum:
            self.had[key] = None
        holds = bool(pods_on_nodes(view.standing()))  # those that did their part are in nobody's way
        partial = holds and standing < view.minimum and view.waiting() and key not in self.had
        if not partial or not view.known or view.name in disturbed or view.name in self.preempted_gangs:
            self.since.pop(view.name, None)
        elif now - self.since.setdefault(view.name, now) > self.heal_seconds + GRACE_SECONDS:
            seconds = now - self.since[view.name]
            yield f"{view.name} holds {standing} of {view.minimum} pods for {seconds:.0f} s"

    def restarted(self) -> None:
        """Whoever starts anew cannot know for how long a gang has stood in part."""
        self.since.clear()

    def check_plan(self, plan: Plan, objects: List, now: float) -> Iterator[str]:
        """Nobody yields to one that is not more important; who leaves whole, leaves whole."""
        moves = [one for one in plan.actions if isinstance(one, PreemptPod)]
        if not moves:
            return
        found = gang_views(objects)
        pods = {pod["metadata"]["uid"]: pod for pod in objects("pods")}
        self.sent |= {move.pod.uid for move in moves}
        for move in moves:
            by, victim = found.get(f"{move.by.kind}/{move.by.name}"), pods.get(move.pod.uid)
            if move.undoes or by is None or victim is None:
                continue
            name = victim["metadata"]["name"]
            whose = found[gang_of(victim) or f"Pod/{name}"]
            rank = whose.priority if whose.whole else priority_of(victim)
            if rank >= by.priority:
                yield f"pod {name} of priority {rank} would be preempted for {by.name} of priority {by.priority}"
            self.preempted_gangs.add(whose.name)
            waiting = tuple(pod["metadata"]["uid"] for pod in by.waiting())
            self.preemptions.append(GangPreemption(now, name, by.name, by.priority, waiting))
            left = [pod["metadata"]["name"] for pod in pods_on_nodes(whose.pods) if self._stays(pod)]
            if whose.whole and left:
                yield f"{whose.name} leaves whole or not at all, and {left} may stay when {name} goes"

    def _stays(self, pod: Object) -> bool:
        return not is_leaving(pod) and pod["metadata"]["uid"] not in self.sent

    def check_useful_preemptions(self, since: float) -> Iterator[str]:
        """Of those sent away after that moment: for whom, if not for one that then got its places?

        Or for one that had to give way to a more important one in the meantime.
        """
        for preemption in self.preemptions:
            got = any(self.bound.get(uid, -1.0) >= preemption.when for uid in preemption.waiting)
            overtaken = any(
                when >= preemption.when and rank > preemption.priority for when, rank in self.importance
            )
            if preemption.when > since and not got and not overtaken:
                yield f"pod {preemption.victim} was preempted for {preemption.by}, which got no node"


def check_ports_and_anti_affinity(pod: Object, others: Sequence[Object], labels: Labels) -> Iterator[str]:
    """Ports of the host, and pods that must not be near each other."""
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    ports = set(_ports(pod))
    for other in others:
        if other is pod or other["metadata"]["uid"] == pod["metadata"]["uid"]:
            continue
        whom, where = other["metadata"]["name"], other["spec"]["nodeName"]
        if where == node and ports & set(_ports(other)):
            yield f"pods {name} and {whom} want the same port of {node}"
        for one, two in ((pod, other), (other, pod)):
            for term in _apart(one):
                value = labels.get(node, {}).get(term["topologyKey"])
                if value is None or value != labels.get(where, {}).get(term["topologyKey"]):
                    continue
                if selector_matcher(term["labelSelector"])(two["metadata"].get("labels") or {}):
                    yield f"pods {name} and {whom} must not be in one {term['topologyKey']}, {value}"


def check_spread(
    pod: Object, fresh: Sequence[Object], others: Sequence[Object], labels: Labels
) -> Iterator[str]:
    """A hard spread holds once a pod is bound, if everybody bound with it who counts has the same one."""
    spec = pod["spec"]
    for spread in spec.get("topologySpreadConstraints") or ():
        key, means = spread["topologyKey"], selector_matcher(spread["labelSelector"])
        meant = [one for one in fresh if means(one["metadata"].get("labels") or {})]
        if any(spread not in (one["spec"].get("topologySpreadConstraints") or ()) for one in meant):
            continue
        wanted = (spec.get("nodeSelector") or {}).items()
        eligible = {
            name: of[key] for name, of in labels.items() if key in of and wanted <= of.items()
        }  # fmt: skip
        counts = Counter(dict.fromkeys(eligible.values(), 0))
        for one in others:
            where = one["spec"]["nodeName"]
            if where in eligible and stands(one) and means(one["metadata"].get("labels") or {}):
                counts[eligible[where]] += 1
        here = eligible.get(spec["nodeName"])
        if here is None:
            if spec["nodeName"] in labels:
                yield f"pod {pod['metadata']['name']} has to be spread over {key}, which its node lacks"
        elif counts[here] - min(counts.values()) > spread["maxSkew"]:
            yield f"pod {pod['metadata']['name']} is spread unevenly over {key}: {dict(counts)}"


def check_required_domain(view: GangView, labels: Labels) -> Iterator[str]:
    """All pods of a gang that we bound are where its rules want it."""
    pods = [pod for pod in view.standing() if is_ours(pod) and pod["spec"]["nodeName"] in labels]
    if view.level:
        values = {str(labels[pod["spec"]["nodeName"]].get(view.level)) for pod in pods}
        if len(values) > 1 or "None" in values:
            yield f"{view.name} must be in one {view.level} and is in {sorted(values)}"
    if view.job is not None:
        yield from check_localities(view.job, pods, labels)


def _ports(pod: Object) -> Iterator[int]:
    for container in pod["spec"]["containers"]:
        yield from (port["hostPort"] for port in container.get("ports") or () if "hostPort" in port)


def _apart(pod: Object) -> Sequence[Object]:
    said = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    terms: Sequence[Object] = said.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return terms


# ── at the end ─────────────────────────────────────────────────────────────────────────────────────


def check_pending_reasons(objects: List) -> Iterator[str]:
    """Whoever waits and is not held back carries a reason, or an event says it."""
    events = {
        (one.get("involvedObject") or {}).get("uid")
        for one in objects("events")
        if one.get("reason") == "FailedScheduling"
    }
    for pod in objects("pods"):
        if not waits(pod) or pod["spec"].get("schedulingGates"):
            continue
        said = any(
            one["type"] == "PodScheduled" and one["status"] == "False" and one.get("message")
            for one in (pod.get("status") or {}).get("conditions") or ()
        )
        if not said and pod["metadata"]["uid"] not in events:
            yield f"pod {pod['metadata']['name']} waits and nobody says why"
