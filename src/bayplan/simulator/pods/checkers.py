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
from bayplan.simulator.core.checkers import localities_hold, over_committed, pods_that_hold
from bayplan.simulator.pods.gang_view import (
    GangView,
    List,
    Object,
    bands,
    gang_of,
    is_ours,
    priority_of,
    stands,
    waits,
)

SLACK_SECONDS = 60.0  # writes that nobody answers, backoff, pods that take their time to go
Told = Callable[[Object], str]
"""The node of a pod as we were told last; empty: none, or nothing was said."""
Labels = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class GangPreemption:
    """Somebody was sent away for a gang that waits."""

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
    claims: list[GangPreemption] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)  # uids of those who were sent away
    broken_up: set[str] = field(default_factory=set)  # gangs of which some made room for others

    def check(
        self, objects: List, now: float, told: Told, disturbed: Iterable[str], *, exact: bool
    ) -> Iterator[str]:
        """Everything that is wrong right now. `exact`: every write of late did what we believe it did."""
        nodes = objects("nodes")
        labels = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}
        fresh = [pod for pod in objects("pods") if self._is_new(pod)]
        found = bands(objects)
        if fresh:
            there = [pod for pod in pods_that_hold(objects("pods")) if is_ours(pod) or told(pod)]
            touched = {pod["spec"]["nodeName"] for pod in fresh}
            yield from over_committed([n for n in nodes if n["metadata"]["name"] in touched], there)
            for pod in fresh:
                yield from bears_its_neighbours(pod, there, labels)
                if exact:
                    yield from is_spread(pod, fresh, there, labels)
            for name in dict.fromkeys(map(gang_of, fresh)):
                if name:
                    yield from in_one_domain(found[name], labels)
        for pod in fresh:
            self.bound[pod["metadata"]["uid"]] = now
            self.importance.append((now, priority_of(pod)))
        for band in found.values():
            yield from self._partial(band, now, disturbed)

    def _is_new(self, pod: Object) -> bool:
        bound = is_ours(pod) and bool(pod["spec"].get("nodeName"))
        return bound and pod["metadata"]["uid"] not in self.bound

    def _partial(self, band: GangView, now: float, disturbed: Iterable[str]) -> Iterator[str]:
        """A gang that never had its minimum must not hold a part of it for long, while others of it wait.

        Unless somebody else took pods of it away, or others were let have their room: then nobody can tell
        whether it ever was whole.
        """
        standing, key = len(band.standing()), (band.name, band.uid)
        if band.known and standing >= band.minimum:
            self.had[key] = None
        holds = bool(pods_that_hold(band.standing()))  # those that did their part are in nobody's way
        partial = holds and standing < band.minimum and band.waiting() and key not in self.had
        if not partial or not band.known or band.name in disturbed or band.name in self.broken_up:
            self.since.pop(band.name, None)
        elif now - self.since.setdefault(band.name, now) > self.heal_seconds + SLACK_SECONDS:
            seconds = now - self.since[band.name]
            yield f"{band.name} holds {standing} of {band.minimum} pods for {seconds:.0f} s"

    def restarted(self) -> None:
        """Whoever starts anew cannot know for how long a gang has stood in part."""
        self.since.clear()

    def planned(self, plan: Plan, objects: List, now: float) -> Iterator[str]:
        """Nobody yields to one that is not more important; who leaves whole, leaves whole."""
        moves = [one for one in plan.actions if isinstance(one, PreemptPod)]
        if not moves:
            return
        found = bands(objects)
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
                yield f"pod {name} of priority {rank} has to go for {by.name} of priority {by.priority}"
            self.broken_up.add(whose.name)
            waiting = tuple(pod["metadata"]["uid"] for pod in by.waiting())
            self.claims.append(GangPreemption(now, name, by.name, by.priority, waiting))
            left = [pod["metadata"]["name"] for pod in pods_that_hold(whose.pods) if self._stays(pod)]
            if whose.whole and left:
                yield f"{whose.name} leaves whole or not at all, and {left} may stay when {name} goes"

    def _stays(self, pod: Object) -> bool:
        return not is_leaving(pod) and pod["metadata"]["uid"] not in self.sent

    def in_vain(self, since: float) -> Iterator[str]:
        """Of those sent away after that moment: for whom, if not for one that then got its places?

        Or for one that had to give way to a more important one in the meantime.
        """
        for claim in self.claims:
            got = any(self.bound.get(uid, -1.0) >= claim.when for uid in claim.waiting)
            outdone = any(when >= claim.when and rank > claim.priority for when, rank in self.importance)
            if claim.when > since and not got and not outdone:
                yield f"pod {claim.victim} was sent away for {claim.by}, which has got no place"


def bears_its_neighbours(pod: Object, others: Sequence[Object], labels: Labels) -> Iterator[str]:
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


def is_spread(
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


def in_one_domain(band: GangView, labels: Labels) -> Iterator[str]:
    """All pods of a gang that we bound are where its rules want it."""
    pods = [pod for pod in band.standing() if is_ours(pod) and pod["spec"]["nodeName"] in labels]
    if band.level:
        values = {str(labels[pod["spec"]["nodeName"]].get(band.level)) for pod in pods}
        if len(values) > 1 or "None" in values:
            yield f"{band.name} must be in one {band.level} and is in {sorted(values)}"
    if band.job is not None:
        yield from localities_hold(band.job, pods, labels)


def _ports(pod: Object) -> Iterator[int]:
    for container in pod["spec"]["containers"]:
        yield from (port["hostPort"] for port in container.get("ports") or () if "hostPort" in port)


def _apart(pod: Object) -> Sequence[Object]:
    said = (pod["spec"].get("affinity") or {}).get("podAntiAffinity") or {}
    terms: Sequence[Object] = said.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
    return terms


# ── at the end ─────────────────────────────────────────────────────────────────────────────────────


def everybody_is_told(objects: List) -> Iterator[str]:
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
