"""What must always hold of groups with sub-groups and of their queues, by the API's own objects.

Plans are held against what we were told when we decided: nobody can respect what he cannot know.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from bayplan.backends.fake_controllers.objects import phase_of
from bayplan.dialects.kai.status.messages import CONDITION
from bayplan.model.plan import Bind, Nominate, Plan, PreemptPod
from bayplan.model.pod import PodKey
from bayplan.simulator.core.checkers import over_committed, pods_on_nodes
from bayplan.simulator.pods.gang_view import Object, is_ours, waits
from bayplan.simulator.subgroups.group_view import (
    GroupView,
    List,
    books,
    check_shared_domains,
    group_of,
    group_views,
    holds,
    priority_in_group,
)
from bayplan.simulator.subgroups.queue_view import CPU, QueueUsageView, amounts_of_pod
from bayplan.state.scheduling.state import SchedulingState

GRACE_SECONDS = 60.0  # writes that nobody answers, backoff, pods that take their time to go


@dataclass(frozen=True, slots=True)
class GroupPreemption:
    """Somebody was preempted for a group that waits."""

    when: float
    victim: str
    of: str  # its group
    by: str
    priority: int
    queue: str
    waiting: tuple[str, ...]  # uids


@dataclass(frozen=True, slots=True)
class Bound:
    """When a pod got its node, and on whose account."""

    when: float
    group: str
    priority: int
    queue: str


@dataclass(slots=True)
class SubgroupChecker:
    """Remembers what a single look cannot see: who was bound when, who stands in part, who went for whom."""

    heal_seconds: float
    bound: dict[str, Bound] = field(default_factory=dict)  # pods of ours, by uid
    since: dict[str, float] = field(default_factory=dict)  # groups that stand in part
    preemptions: list[GroupPreemption] = field(default_factory=list)
    sent: set[str] = field(default_factory=set)  # uids of those who were sent away

    # ── what the API shows ──

    def check(self, objects: List, now: float, told: Collection[PodKey], *, exact: bool) -> Iterator[str]:
        """Everything that is wrong right now.

        Pods of others count as far as we were told of them; `exact`: every write of late did what we believe.
        """
        fresh = [pod for pod in objects("pods") if self._is_new(pod)]
        found = group_views(objects)
        if fresh:
            nodes = objects("nodes")
            labels = {node["metadata"]["name"]: node["metadata"].get("labels") or {} for node in nodes}
            there = [pod for pod in pods_on_nodes(objects("pods")) if is_ours(pod) or _key(pod) in told]
            touched = {pod["spec"]["nodeName"] for pod in fresh}
            yield from over_committed([n for n in nodes if n["metadata"]["name"] in touched], there)
            names = [name for name in dict.fromkeys(map(group_of, fresh)) if name in found]
            for name in names:
                yield from check_shared_domains(found[name], labels)
            if exact:
                kept = books(objects, found)
                for view in (found[name] for name in names if found[name].known):
                    yield from kept.over_limit(view.queue, lasting=view.lasting)
        for pod in fresh:
            view = found.get(group_of(pod), GroupView(""))
            bound = Bound(now, view.name, priority_in_group(pod, view), view.queue)
            self.bound[pod["metadata"]["uid"]] = bound
        for view in found.values():
            yield from self._partial(view, now)

    def _is_new(self, pod: Object) -> bool:
        bound = is_ours(pod) and bool(pod["spec"].get("nodeName"))
        return bound and pod["metadata"]["uid"] not in self.bound

    def _partial(self, view: GroupView, now: float) -> Iterator[str]:
        """A group that stands in part is made whole or goes, after the grace; unless it is about to end."""
        if not stale(view):
            self.since.pop(view.name, None)
        elif now - self.since.setdefault(view.name, now) > 2 * self.heal_seconds + GRACE_SECONDS:
            seconds = now - self.since[view.name]
            yield f"{view.name} lacks {view.short(view.standing())} for {seconds:.0f} s"

    def restarted(self) -> None:
        """Whoever starts anew cannot know for how long a group has stood in part."""
        self.since.clear()

    # ── what is decided ──

    def check_plan(self, plan: Plan, told: List, belief: SchedulingState, now: float) -> Iterator[str]:
        """Nobody starts in part or beyond a limit; nobody yields to a lower claim.

        Pods whose binding is under way count as bound, and those who were sent away as leaving; before
        anything is taken from a queue it also has what is promised to it, or given to it now.
        """
        assumed = belief.store.assumed
        binds = [one for one in plan.actions if isinstance(one, Bind)]
        moves = [one for one in plan.actions if isinstance(one, PreemptPod)]
        if not binds and not moves:
            return
        objects = {plural: told(plural) for plural in ("pods", "groups", "queues")}
        found = group_views(objects.__getitem__)
        pods = {_key(pod): pod for pod in objects["pods"]}
        for key in belief.store.displaced:
            if key in pods:
                pods[key]["metadata"]["deletionTimestamp"] = "soon"
        going = {move.pod.key for move in moves}
        kept = books(objects.__getitem__, found)
        standing = {
            name: [pod for pod in view.pods if _key(pod) not in going and (is_bound_or_assumed(pod, assumed))]
            for name, view in found.items()
        }
        for key in assumed:
            if (pod := pods.get(key)) is not None and not holds(pod):
                _take(kept, found.get(group_of(pod)), pod)
        before = replace(kept, use=dict(kept.use), lasting=dict(kept.lasting))
        given = [one.pod.key for one in plan.actions if isinstance(one, Bind) or _promises(one)]
        for key in dict.fromkeys((*belief.store.nominations, *given)):
            if (pod := pods.get(key)) is not None:
                _take(before, found.get(group_of(pod)), pod)
        yield from self._moved(moves, found, pods, kept, standing, before.use, now)
        for bind in binds:
            view, pod = found.get(bind.gang.name), pods.get(bind.pod.key)
            if view is not None and pod is not None:
                standing[view.name].append(pod)
                _take(kept, view, pod)
        for name in dict.fromkeys(bind.gang.name for bind in binds):
            view = found.get(name)
            if view is None or not view.known:
                yield f"pods of {name} would start, and nobody knows such a group"
                continue
            if short := view.short(standing[name]):
                yield f"{name} would start while it lacks {short}"
            yield from kept.over_limit(view.queue, lasting=view.lasting)

    def _moved(
        self, moves: Sequence[PreemptPod], found: dict[str, GroupView], pods: dict[PodKey, Object], kept: QueueUsageView,
        standing: dict[str, list[Object]], before: dict[str, int], now: float,
    ) -> Iterator[str]:  # fmt: skip
        self.sent |= {move.pod.uid for move in moves}
        for move in moves:
            victim, by = pods.get(move.pod.key), found.get(move.by.name)
            if victim is None or by is None or victim["metadata"]["uid"] != move.pod.uid:
                continue
            whose = found.get(group_of(victim))
            _take(kept, whose, victim, -1)
            if move.undoes:
                if whose is not None and not whose.short(whose.standing()):
                    yield f"{whose.name} is unbound, though it has all that it needs"
                continue
            if whose is not by:
                yield from _has_the_claim(move, victim, whose, by, kept, before)
            waiting = tuple(pod["metadata"]["uid"] for pod in by.waiting())
            of = "" if whose is None else whose.name
            self.preemptions.append(
                GroupPreemption(now, move.pod.key.name, of, by.name, by.priority, by.queue, waiting)
            )
        moving = {group_of(pods[move.pod.key]) for move in moves if move.to and move.pod.key in pods}
        sent = [pods[move.pod.key] for move in moves if move.pod.key in pods and not move.undoes]
        helped = {move.by.name for move in moves if move.pod.gang == move.by and not move.undoes}
        for name in dict.fromkeys(map(group_of, sent)):
            view, left = found.get(name), standing.get(name, [])
            if name in helped and view is not None:
                yield from _can_do_without(view, left, [pod for pod in sent if group_of(pod) == name])
                continue
            if view is None or not view.known or name in moving or not kept.is_leaf(view.queue):
                continue
            if any(map(holds, left)) and view.short(left) and not view.short(view.standing()):
                yield f"{name} would lack {view.short(left)} without those sent away, and its other pods stay"

    # ── in the end ──

    def check_useful_preemptions(self, since: float) -> Iterator[str]:
        """Of those sent away after that moment: for whom, if not for one that then got its places?

        Or for one that another got ahead of in the meantime.
        """
        for preemption in self.preemptions:
            got = any(
                uid in self.bound and self.bound[uid].when >= preemption.when for uid in preemption.waiting
            )
            overtaken = any(
                one.when >= preemption.when
                and one.group not in (preemption.by, preemption.of)
                and (one.priority > preemption.priority or one.queue != preemption.queue)
                for one in self.bound.values()
            )
            if preemption.when > since and not got and not overtaken:
                yield f"pod {preemption.victim} was preempted for {preemption.by}, which got no node"


def stale(view: GroupView) -> bool:
    """Whether a group stands in part, and not because it is about to end."""
    standing = view.standing()
    ends = any(phase_of(pod) == "Succeeded" for pod in standing)
    return view.known and not view.flawed and bool(standing) and not ends and bool(view.short(standing))


def is_bound_or_assumed(pod: Object, assumed: Collection[PodKey]) -> bool:
    """Whether a pod stands, as far as we know or believe."""
    return holds(pod) or phase_of(pod) == "Succeeded" or (_key(pod) in assumed and waits(pod))


def _can_do_without(view: GroupView, left: Sequence[Object], sent: Sequence[Object]) -> Iterator[str]:
    """A group sends pods of its own away only if it lacks others, and never lacks more for it."""
    lacks = view.short([*left, *sent])
    if not lacks:
        yield f"{view.name} sends pods of its own away, though it has all that it needs"
    if view.short(left) != lacks:
        yield f"{view.name} would lack {view.short(left)} without pods of its own, not only {lacks}"


def _has_the_claim(
    move: PreemptPod,
    victim: Object,
    whose: GroupView | None,
    by: GroupView,
    kept: QueueUsageView,
    before: dict[str, int],
) -> Iterator[str]:
    """Nobody who lasts goes; others go for a more important one of their queue, or if theirs has too much."""
    name, rank = victim["metadata"]["name"], priority_in_group(victim, whose)
    if whose is not None and whose.lasting:
        yield f"pod {name} would be preempted for {by.name}, but it is not preemptible"
    if move.to:
        return
    if whose is None or not kept.is_leaf(by.queue) or by.queue == whose.queue:
        if rank >= by.priority:
            yield f"pod {name} of priority {rank} would be preempted for {by.name} of priority {by.priority}"
        return
    branch = kept.diverging_queues(by.queue, whose.queue)[1]
    quota = kept.quota(branch) if branch in kept.queues else 0
    if quota is None or before.get(branch, 0) <= quota:
        has = before.get(branch, 0)
        yield f"pod {name} would be preempted for {by.name} of {by.queue}, but {branch} has {has} cpu of its {quota}"


def _promises(action: object) -> TypeGuard[Nominate]:
    return isinstance(action, Nominate) and bool(action.node)


def _take(kept: QueueUsageView, view: GroupView | None, pod: Object, sign: int = 1) -> None:
    if view is not None and view.known:
        kept.take(view.queue, sign * amounts_of_pod(pod).get(CPU, 0), lasting=view.lasting)


def _key(pod: Object) -> PodKey:
    return PodKey(pod["metadata"]["namespace"], pod["metadata"]["name"])


# ── at the end ─────────────────────────────────────────────────────────────────────────────────────


def check_group_status(objects: List) -> Iterator[str]:
    """A group that waits says why; one that does not says nothing; all say truly how many of them run."""
    found = group_views(objects)
    for group in objects("groups"):
        name, status = group["metadata"]["name"], group.get("status") or {}
        view = found.get(name)
        if view is None:
            continue
        wanting = [pod for pod in view.pods if waits(pod)]
        said = [one for one in status.get("schedulingConditions") or () if one["type"] == CONDITION]
        if wanting and not any(one.get("status") == "True" and one.get("message") for one in said):
            yield f"group {name} is pending without a reason"
        if view.pods and not wanting and said:
            yield f"group {name} says that it waits, but nobody does: {said[0].get('message')}"
        counts = _counts(view.pods)
        if {key: status.get(key) or 0 for key in counts} != counts:
            yield f"group {name} says {status}, but has {counts}"


def check_queue_status(objects: List) -> Iterator[str]:
    """What queues say of what they have is what their pods have."""
    found = group_views(objects)
    held = QueueUsageView.of(objects("queues"))
    for view in found.values():
        for pod in pods_on_nodes(view.pods):
            _take(held, view, pod)
    for queue in objects("queues"):
        name = queue["metadata"]["name"]
        said = ((queue.get("status") or {}).get("allocated") or {}).get(CPU, "0")
        if _milli(said) != held.use.get(name, 0):
            yield f"queue {name} reports {said} cpu, but has {held.use.get(name, 0)}m"


def check_no_partial_groups(objects: List) -> Iterator[str]:
    """Groups that lost what they cannot do without are gone or whole."""
    for view in group_views(objects).values():
        if stale(view):
            yield f"{view.name} stays, though it lacks {view.short(view.standing())}"


def _counts(pods: Iterable[Object]) -> dict[str, int]:
    counts = {"pending": 0, "running": 0, "succeeded": 0, "failed": 0}
    for pod in pods:
        phase = str(phase_of(pod) or "Pending").lower()
        counts[phase if phase in counts else "pending"] += 1
    return counts


def _milli(said: str | int | float) -> int:
    text = str(said)
    return int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)
