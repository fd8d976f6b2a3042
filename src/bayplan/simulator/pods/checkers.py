"""Invariants of pods that our scheduler binds, checked against the objects in the API after every step.

Another scheduler binds pods as well. Its pods count only if our scheduler had received the event before it
decided (`known_node`). Pods of our scheduler count as soon as they are bound. Bindings that waited for
devices follow their decision by seconds: capacity is looked at again then, ports and affinity are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bayplan.backends.embedded.api.selectors import selector_matcher
from bayplan.backends.fake_controllers.objects import is_terminating
from bayplan.model.plan import Plan, PreemptPod
from bayplan.simulator.core.checkers import (
    check_localities,
    labels_by_node,
    over_committed,
    pods_on_nodes,
)
from bayplan.simulator.core.documents import LastLook, once_per_listing
from bayplan.simulator.pods.gang_view import (
    GangView,
    List,
    Object,
    gang_of,
    gang_views,
    is_bound,
    is_ours,
    is_pending,
    priority_of,
)

GRACE_SECONDS = 60.0  # writes without an answer, backoff, pods that terminate slowly
KnownNode = Callable[[Object], str]
"""The node of a pod as of the last event; empty if unbound or unknown."""
Labels = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class GangPreemption:
    """A pod was preempted for a pending gang."""

    when: float
    victim: str
    by: str
    priority: int
    waiting: tuple[str, ...]  # uids


@dataclass(slots=True)
class PodChecker:
    """Checks bound pods; remembers when pods were bound, which gangs had their minimum, and preemptions."""

    heal_seconds: float
    bound: dict[str, float] = field(default_factory=dict)  # pods of ours, by uid, since when
    bound_priorities: list[tuple[float, int]] = field(default_factory=list)  # of each that was bound
    decides_before: float = 0.0  # seconds between a decision and the last of its bindings, at most
    known_since: dict[tuple[str, str], float] = field(default_factory=dict)  # pods of others, by uid and node
    had_minimum: dict[tuple[str, str], None] = field(default_factory=dict)  # gangs that were whole once
    partial_since: dict[str, float] = field(default_factory=dict)  # gangs in part, that never were whole
    preemptions: list[GangPreemption] = field(default_factory=list)
    preempted: dict[str, float] = field(default_factory=dict)  # uids of those who were sent away, and when
    preempted_gangs: set[str] = field(default_factory=set)  # gangs of which some made room for others
    last_look: LastLook = field(default_factory=LastLook)
    in_part: tuple[GangView, ...] = ()  # gangs that held capacity in part at the last look

    def check(
        self, objects: List, now: float, known_node: KnownNode, disturbed: Iterable[str], *, exact: bool
    ) -> Iterator[str]:
        """Yield each violation in the current state. `exact`: no recent write has an uncertain outcome."""
        new_pods = [pod for pod in _bound_ours(objects("pods")) if pod["metadata"]["uid"] not in self.bound]
        views = gang_views(objects)
        foreign = [pod for pod in _foreign_on_nodes(objects("pods")) if known_node(pod)]
        known_before = {pod["metadata"]["uid"] for pod in foreign if self._was_known(pod, now)}
        if new_pods:
            nodes, labels = objects("nodes"), labels_by_node(objects("nodes"))
            known = {pod["metadata"]["uid"] for pod in foreign}
            on_nodes = pods_on_nodes(objects("pods"))
            placed = [pod for pod in on_nodes if is_ours(pod) or pod["metadata"]["uid"] in known]
            decided_on = [pod for pod in placed if is_ours(pod) or pod["metadata"]["uid"] in known_before]
            leaving = {uid for uid, when in self.preempted.items() if when == now}
            touched = {pod["spec"]["nodeName"] for pod in new_pods}
            yield from over_committed([n for n in nodes if n["metadata"]["name"] in touched], placed)
            for pod in new_pods:
                gang = views[gang_of(pod)].pods if gang_of(pod) else [pod]
                waited = any(one["spec"].get("resourceClaims") for one in gang)
                yield from check_ports_and_anti_affinity(pod, decided_on if waited else placed, labels)
                if exact:
                    yield from check_spread(pod, new_pods, placed, labels, leaving)
            for name in dict.fromkeys(map(gang_of, new_pods)):
                if name:
                    yield from check_required_domain(views[name], labels)
        for pod in new_pods:
            self.bound[pod["metadata"]["uid"]] = now
            self.bound_priorities.append((now, priority_of(pod)))
        if not self.last_look.repeats(*(objects(one) for one in ("groups", "jobs", "jobsets", "pods"))):
            self._note_minimums(views)
        in_part = {view.name for view in self.in_part}
        for name in [one for one in self.partial_since if one in views and one not in in_part]:
            del self.partial_since[name]
        for view in self.in_part:
            yield from self._partial(view, now, disturbed)

    def _note_minimums(self, views: Mapping[str, GangView]) -> None:
        """Remember which gangs have their minimum, and which hold capacity without ever having had it."""
        in_part = []
        for view in views.values():
            bound_pods, key = view.bound_pods(), (view.name, view.uid)
            if view.known and len(bound_pods) >= view.minimum:
                self.had_minimum[key] = None
            holds = bool(pods_on_nodes(bound_pods))  # finished pods hold no capacity
            partial = holds and len(bound_pods) < view.minimum and view.pending_pods()
            if partial and view.known and key not in self.had_minimum:
                in_part.append(view)
        self.in_part = tuple(in_part)

    def _partial(self, view: GangView, now: float, disturbed: Iterable[str]) -> Iterator[str]:
        """A gang that never had its minimum must not stay partially bound while other pods of it are pending.

        Unless another actor deleted pods of it, or pods of it were preempted: then it is unknown whether it
        ever had its minimum.
        """
        if view.name in disturbed or view.name in self.preempted_gangs:
            self.partial_since.pop(view.name, None)
        elif now - self.partial_since.setdefault(view.name, now) > self.heal_seconds + GRACE_SECONDS:
            seconds = now - self.partial_since[view.name]
            yield f"{view.name} holds {len(view.bound_pods())} of {view.minimum} pods for {seconds:.0f} s"

    def restarted(self) -> None:
        """Forget since when gangs are partially bound, as the scheduler does when it restarts."""
        self.partial_since.clear()

    def check_plan(self, plan: Plan, objects: List, now: float) -> Iterator[str]:
        """Victims have a lower priority than the preemptor; gangs that are preempted as a whole are."""
        victims = [one for one in plan.actions if isinstance(one, PreemptPod)]
        if not victims:
            return
        views = gang_views(objects)
        pods = {pod["metadata"]["uid"]: pod for pod in objects("pods")}
        self.preempted |= {victim_action.pod.uid: now for victim_action in victims}
        for victim_action in victims:
            by, victim = (
                views.get(f"{victim_action.by.kind}/{victim_action.by.name}"),
                pods.get(victim_action.pod.uid),
            )
            if victim_action.undoes or by is None or victim is None:
                continue
            name = victim["metadata"]["name"]
            victim_gang = views[gang_of(victim) or f"Pod/{name}"]
            priority = victim_gang.priority if victim_gang.whole else priority_of(victim)
            if priority >= by.priority:
                yield f"pod {name} of priority {priority} would be preempted for {by.name} ({by.priority})"
            self.preempted_gangs.add(victim_gang.name)
            waiting = tuple(pod["metadata"]["uid"] for pod in by.pending_pods())
            self.preemptions.append(GangPreemption(now, name, by.name, by.priority, waiting))
            remaining = [
                pod["metadata"]["name"] for pod in pods_on_nodes(victim_gang.pods) if self._remains(pod)
            ]
            if victim_gang.whole and remaining:
                yield f"{victim_gang.name} is preempted as a whole, but {remaining} would stay without {name}"

    def _was_known(self, pod: Object, now: float) -> bool:
        key = (pod["metadata"]["uid"], pod["spec"]["nodeName"])
        return now - self.known_since.setdefault(key, now) >= self.decides_before

    def _remains(self, pod: Object) -> bool:
        return not is_terminating(pod) and pod["metadata"]["uid"] not in self.preempted

    def check_useful_preemptions(self, partial_since: float) -> Iterator[str]:
        """Preemptions after that time whose preemptor got no node.

        Unless a pod of a higher priority was bound in the meantime.
        """
        for preemption in self.preemptions:
            was_bound = any(self.bound.get(uid, -1.0) >= preemption.when for uid in preemption.waiting)
            overtaken = any(
                when >= preemption.when and priority > preemption.priority
                for when, priority in self.bound_priorities
            )
            if preemption.when > partial_since and not was_bound and not overtaken:
                yield f"pod {preemption.victim} was preempted for {preemption.by}, which got no node"


@once_per_listing
def _bound_ours(pods: Sequence[Object]) -> tuple[Object, ...]:
    """Pods of our scheduler that were bound."""
    return tuple([pod for pod in pods if is_ours(pod) and pod["spec"].get("nodeName")])


@once_per_listing
def _foreign_on_nodes(pods: Sequence[Object]) -> tuple[Object, ...]:
    """Pods of other schedulers that use a node."""
    return tuple([pod for pod in pods_on_nodes(pods) if not is_ours(pod)])


def check_ports_and_anti_affinity(pod: Object, others: Sequence[Object], labels: Labels) -> Iterator[str]:
    """Conflicts of host ports and of required pod anti-affinity."""
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    ports = set(_ports(pod))
    for other in others:
        if other is pod or other["metadata"]["uid"] == pod["metadata"]["uid"]:
            continue
        other_name, where = other["metadata"]["name"], other["spec"]["nodeName"]
        if where == node and ports & set(_ports(other)):
            yield f"pods {name} and {other_name} want the same port of {node}"
        for one, two in ((pod, other), (other, pod)):
            for term in _anti_affinity_terms(one):
                value = labels.get(node, {}).get(term["topologyKey"])
                if value is None or value != labels.get(where, {}).get(term["topologyKey"]):
                    continue
                if selector_matcher(term["labelSelector"])(two["metadata"].get("labels") or {}):
                    yield f"pods {name} and {other_name} must not be in one {term['topologyKey']}, {value}"


def check_spread(
    pod: Object,
    new_pods: Sequence[Object],
    others: Sequence[Object],
    labels: Labels,
    leaving: Collection[str],
) -> Iterator[str]:
    """A hard topology spread holds, if all pods bound in the same step have the same constraint.

    It may hold with pods that were preempted in that step, by uid: they were there when the pod was bound.
    """
    spec = pod["spec"]
    for spread in spec.get("topologySpreadConstraints") or ():
        key, matches = spread["topologyKey"], selector_matcher(spread["labelSelector"])
        matching = [one for one in new_pods if matches(one["metadata"].get("labels") or {})]
        if any(spread not in (one["spec"].get("topologySpreadConstraints") or ()) for one in matching):
            continue
        selector = (spec.get("nodeSelector") or {}).items()
        eligible = {
            name: of[key] for name, of in labels.items() if key in of and selector <= of.items()
        }  # fmt: skip
        counts = Counter(dict.fromkeys(eligible.values(), 0))
        before = counts.copy()  # the preempted pods of this step included
        for one in others:
            where = one["spec"]["nodeName"]
            if where not in eligible or not matches(one["metadata"].get("labels") or {}):
                continue
            counts[eligible[where]] += is_bound(one)
            before[eligible[where]] += is_bound(one) or one["metadata"]["uid"] in leaving
        here = eligible.get(spec["nodeName"])
        if here is None:
            if spec["nodeName"] in labels:
                yield f"pod {pod['metadata']['name']} has to be spread over {key}, which its node lacks"
        elif all(found[here] - min(found.values()) > spread["maxSkew"] for found in (counts, before)):
            yield f"pod {pod['metadata']['name']} is spread unevenly over {key}: {dict(counts)}"


def check_required_domain(view: GangView, labels: Labels) -> Iterator[str]:
    """All bound pods of a gang are in its required domain."""
    pods = [pod for pod in view.bound_pods() if is_ours(pod) and pod["spec"]["nodeName"] in labels]
    if view.level:
        values = {str(labels[pod["spec"]["nodeName"]].get(view.level)) for pod in pods}
        if len(values) > 1 or "None" in values:
            yield f"{view.name} must be in one {view.level} and is in {sorted(values)}"
    if view.job is not None:
        yield from check_localities(view.job, pods, labels)


def _ports(pod: Object) -> Iterator[int]:
    for container in pod["spec"]["containers"]:
        yield from (port["hostPort"] for port in container.get("ports") or () if "hostPort" in port)


def _anti_affinity_terms(pod: Object) -> Sequence[Object]:
    has_reason = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    terms: Sequence[Object] = has_reason.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return terms


# ── at the end ─────────────────────────────────────────────────────────────────────────────────────


def check_pending_reasons(objects: List) -> Iterator[str]:
    """Every pending, ungated pod has a condition or an event with the reason."""
    events = {
        (one.get("involvedObject") or {}).get("uid")
        for one in objects("events")
        if one.get("reason") == "FailedScheduling"
    }
    for pod in objects("pods"):
        if not is_pending(pod) or pod["spec"].get("schedulingGates"):
            continue
        has_reason = any(
            one["type"] == "PodScheduled" and one["status"] == "False" and one.get("message")
            for one in (pod.get("status") or {}).get("conditions") or ()
        )
        if not has_reason and pod["metadata"]["uid"] not in events:
            yield f"pod {pod['metadata']['name']} is pending without a reason"
