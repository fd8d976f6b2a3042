"""Invariants of groups with sub-groups and of their queues, checked against the objects in the API.

Plans are checked against the objects that the scheduler had received when it decided.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeGuard

from bayplan.backends.fake_controllers.objects import is_terminating, phase_of
from bayplan.dialects.kai.status.messages import CONDITION
from bayplan.model.plan import Bind, Nominate, Plan, PreemptPod
from bayplan.model.pod import Pod, PodKey
from bayplan.simulator.core.checkers import labels_by_node, over_committed, pod_requests, pods_on_nodes
from bayplan.simulator.core.documents import LastLook, once_per_listing
from bayplan.simulator.pods.gang_view import Object, is_ours, is_pending
from bayplan.simulator.subgroups.group_view import (
    GroupView,
    List,
    check_shared_domains,
    group_of,
    group_views,
    priority_in_group,
    queue_usage,
    uses_node,
)
from bayplan.simulator.subgroups.queue_view import CPU, QueueUsageView
from bayplan.state.scheduling.state import SchedulingState

GRACE_SECONDS = 60.0  # writes without an answer, backoff, pods that terminate slowly


@dataclass(frozen=True, slots=True)
class GroupPreemption:
    """A pod was preempted for a pending group."""

    when: float
    victim: str
    of: str  # its group
    by: str
    priority: int
    queue: str
    waiting: tuple[str, ...]  # uids


@dataclass(frozen=True, slots=True)
class Bound:
    """When a pod was bound, with its group, priority and queue."""

    when: float
    group: str
    priority: int
    queue: str


@dataclass(slots=True)
class SubgroupChecker:
    """Checks groups; remembers when pods were bound, which groups are partial, and preemptions."""

    heal_seconds: float
    bound: dict[str, Bound] = field(default_factory=dict)  # pods of ours, by uid
    partial_since: dict[str, float] = field(default_factory=dict)  # groups that stand in part
    preemptions: list[GroupPreemption] = field(default_factory=list)
    preempted: set[str] = field(default_factory=set)  # uids of those who were sent away
    last_look: LastLook = field(default_factory=LastLook)
    partial: set[str] = field(default_factory=set)  # groups that stood in part at the last look

    # ── what the API shows ──

    def check(
        self, objects: List, now: float, seen: Mapping[PodKey, Pod] | None, *, exact: bool
    ) -> Iterator[str]:
        """Yield a sentence for each violation in the current state.

        Pods of another scheduler count if ours has `seen` their node (None: all of them); `exact`: no recent
        write is uncertain.
        """
        new_pods = [pod for pod in _bound_ours(objects("pods")) if pod["metadata"]["uid"] not in self.bound]
        views = group_views(objects)
        if new_pods:
            nodes, labels = objects("nodes"), labels_by_node(objects("nodes"))
            placed = [pod for pod in pods_on_nodes(objects("pods")) if is_ours(pod) or _is_placed(pod, seen)]
            touched = {pod["spec"]["nodeName"] for pod in new_pods}
            yield from over_committed([n for n in nodes if n["metadata"]["name"] in touched], placed)
            names = [name for name in dict.fromkeys(map(group_of, new_pods)) if name in views]
            for name in names:
                yield from check_shared_domains(views[name], labels)
            if exact:
                usage = queue_usage(objects, views)
                for view in (views[name] for name in names if views[name].known):
                    yield from usage.over_limit(view.queue, non_preemptible=view.non_preemptible)
        for pod in new_pods:
            view = views.get(group_of(pod), GroupView(""))
            bound = Bound(now, view.name, priority_in_group(pod, view), view.queue)
            self.bound[pod["metadata"]["uid"]] = bound
        if not self.last_look.repeats(objects("groups"), objects("pods")):
            self.partial = {name for name, view in views.items() if is_partial(view)}
        for name in [name for name in self.partial_since if name in views and name not in self.partial]:
            del self.partial_since[name]
        for view in [view for name, view in views.items() if name in self.partial] if self.partial else ():
            yield from self._partial(view, now)

    def _partial(self, view: GroupView, now: float) -> Iterator[str]:
        """A partially bound group is completed or unbound after the grace period, unless it is finishing."""
        if now - self.partial_since.setdefault(view.name, now) > 2 * self.heal_seconds + GRACE_SECONDS:
            seconds = now - self.partial_since[view.name]
            yield f"{view.name} lacks {view.missing_pods(view.bound_pods())} for {seconds:.0f} s"

    def restarted(self) -> None:
        """Forget since when groups are partially bound, as the scheduler does when it restarts."""
        self.partial_since.clear()

    # ── what is decided ──

    def check_plan(self, plan: Plan, known: List, state: SchedulingState, now: float) -> Iterator[str]:
        """No group starts partially or above a limit; each victim may be preempted by its preemptor.

        Assumed pods count as bound, and preempted pods as terminating. The usage of a queue before a
        preemption includes nominated pods and the binds of this plan.
        """
        assumed = state.store.assumed
        binds = [one for one in plan.actions if isinstance(one, Bind)]
        preempt_actions = [one for one in plan.actions if isinstance(one, PreemptPod)]
        if not binds and not preempt_actions:
            return
        objects = {plural: known(plural) for plural in ("pods", "groups", "queues")}
        views = group_views(objects.__getitem__)
        pods = {_key(pod): pod for pod in objects["pods"]}
        for key in state.store.preempting:
            if key in pods:
                pods[key]["metadata"]["deletionTimestamp"] = "soon"
        preempted_keys = {preemption_action.pod.key for preemption_action in preempt_actions}
        usage = queue_usage(objects.__getitem__, views)
        bound_by_group = {
            name: [
                pod
                for pod in view.pods
                if _key(pod) not in preempted_keys and (is_bound_or_assumed(pod, assumed))
            ]
            for name, view in views.items()
        }
        for key in assumed:
            pod = pods.get(key)
            if pod is not None and not uses_node(pod) and not is_terminating(pod):  # those count for no queue
                _take(usage, views.get(group_of(pod)), pod)
        before = replace(usage, use=dict(usage.use), non_preemptible=dict(usage.non_preemptible))
        newly_assigned = [one.pod.key for one in plan.actions if isinstance(one, Bind) or _is_nomination(one)]
        for key in dict.fromkeys((*state.store.nominations, *newly_assigned)):
            if (pod := pods.get(key)) is not None:
                _take(before, views.get(group_of(pod)), pod)
        yield from self._check_preemptions(
            preempt_actions, views, pods, usage, bound_by_group, before.use, now
        )
        for bind in binds:
            view, pod = views.get(bind.gang.name), pods.get(bind.pod.key)
            if view is not None and pod is not None:
                bound_by_group[view.name].append(pod)
                _take(usage, view, pod)
        for name in dict.fromkeys(bind.gang.name for bind in binds):
            view = views.get(name)
            if view is None or not view.known:
                yield f"pods of {name} would start, but the group does not exist"
                continue
            if missing_pods := view.missing_pods(bound_by_group[name]):
                yield f"{name} would start while it lacks {missing_pods}"
            yield from usage.over_limit(view.queue, non_preemptible=view.non_preemptible)

    def _check_preemptions(
        self, preempt_actions: Sequence[PreemptPod], views: Mapping[str, GroupView],
        pods: dict[PodKey, Object], usage: QueueUsageView,
        bound_by_group: dict[str, list[Object]], before: dict[str, int], now: float,
    ) -> Iterator[str]:  # fmt: skip
        self.preempted |= {preemption_action.pod.uid for preemption_action in preempt_actions}
        for preemption_action in preempt_actions:
            victim, by = pods.get(preemption_action.pod.key), views.get(preemption_action.by.name)
            if victim is None or by is None or victim["metadata"]["uid"] != preemption_action.pod.uid:
                continue
            victim_group = views.get(group_of(victim))
            _take(usage, victim_group, victim, -1)
            if preemption_action.undoes:
                if victim_group is not None and not victim_group.missing_pods(victim_group.bound_pods()):
                    yield f"{victim_group.name} is unbound, though it has its minimums"
                continue
            if victim_group is not by:
                yield from _check_may_preempt(preemption_action, victim, victim_group, by, usage, before)
            waiting = tuple(pod["metadata"]["uid"] for pod in by.pending_pods())
            of = "" if victim_group is None else victim_group.name
            self.preemptions.append(
                GroupPreemption(
                    now, preemption_action.pod.key.name, of, by.name, by.priority, by.queue, waiting
                )
            )
        consolidated = {
            group_of(pods[preemption_action.pod.key])
            for preemption_action in preempt_actions
            if preemption_action.moves_to and preemption_action.pod.key in pods
        }
        preempted = [
            pods[preemption_action.pod.key]
            for preemption_action in preempt_actions
            if preemption_action.pod.key in pods and not preemption_action.undoes
        ]
        self_preempting = {
            preemption_action.by.name
            for preemption_action in preempt_actions
            if preemption_action.pod.gang == preemption_action.by and not preemption_action.undoes
        }
        for name in dict.fromkeys(map(group_of, preempted)):
            view, remaining = views.get(name), bound_by_group.get(name, [])
            if name in self_preempting and view is not None:
                yield from _check_self_preemption(
                    view, remaining, [pod for pod in preempted if group_of(pod) == name]
                )
                continue
            if view is None or not view.known or name in consolidated or not usage.is_leaf(view.queue):
                continue
            if (
                any(map(uses_node, remaining))
                and view.missing_pods(remaining)
                and not view.missing_pods(view.bound_pods())
            ):
                missing = view.missing_pods(remaining)
                yield f"{name} would lack {missing} without the preempted pods, and its other pods stay"

    # ── in the end ──

    def check_useful_preemptions(self, partial_since: float) -> Iterator[str]:
        """Preemptions after that time whose preemptor got no node.

        Unless a pod of a higher priority or of another queue was bound in the meantime.
        """
        for preemption in self.preemptions:
            was_bound = any(
                uid in self.bound and self.bound[uid].when >= preemption.when for uid in preemption.waiting
            )
            overtaken = any(
                one.when >= preemption.when
                and one.group not in (preemption.by, preemption.of)
                and (one.priority > preemption.priority or one.queue != preemption.queue)
                for one in self.bound.values()
            )
            if preemption.when > partial_since and not was_bound and not overtaken:
                yield f"pod {preemption.victim} was preempted for {preemption.by}, which got no node"


@once_per_listing
def _bound_ours(pods: Sequence[Object]) -> tuple[Object, ...]:
    """Pods of our scheduler that were bound."""
    return tuple([pod for pod in pods if is_ours(pod) and pod["spec"].get("nodeName")])


def _is_placed(pod: Object, seen: Mapping[PodKey, Pod] | None) -> bool:
    """Whether our scheduler has seen the node of a pod."""
    if seen is None:
        return True
    known = seen.get(_key(pod))
    return known is not None and bool(known.node)


def is_partial(view: GroupView) -> bool:
    """Whether a group is partially bound, and not because it is finishing."""
    bound_pods = view.bound_pods()
    ends = any(phase_of(pod) == "Succeeded" for pod in bound_pods)
    return (
        view.known
        and not view.invalid
        and bool(bound_pods)
        and not ends
        and bool(view.missing_pods(bound_pods))
    )


def is_bound_or_assumed(pod: Object, assumed: Collection[PodKey]) -> bool:
    """Whether a pod is bound, succeeded or assumed."""
    return uses_node(pod) or phase_of(pod) == "Succeeded" or (_key(pod) in assumed and is_pending(pod))


def _check_self_preemption(
    view: GroupView, remaining: Sequence[Object], preempted: Sequence[Object]
) -> Iterator[str]:
    """A group preempts its own surplus pods only if others are missing, and only surplus pods."""
    lacks = view.missing_pods([*remaining, *preempted])
    if not lacks:
        yield f"{view.name} preempts its own pods, though it has its minimums"
    if view.missing_pods(remaining) != lacks:
        missing = view.missing_pods(remaining)
        yield f"{view.name} would lack {missing} after preempting its own pods, not only {lacks}"


def _check_may_preempt(
    preemption_action: PreemptPod,
    victim: Object,
    victim_group: GroupView | None,
    by: GroupView,
    usage: QueueUsageView,
    before: dict[str, int],
) -> Iterator[str]:
    """A victim is preemptible, and of lower priority in the same queue, or of a queue above its quota."""
    name, priority = victim["metadata"]["name"], priority_in_group(victim, victim_group)
    if victim_group is not None and victim_group.non_preemptible:
        yield f"pod {name} would be preempted for {by.name}, but it is not preemptible"
    if preemption_action.moves_to:
        return
    if victim_group is None or not usage.is_leaf(by.queue) or by.queue == victim_group.queue:
        if priority >= by.priority:
            yield f"pod {name} of priority {priority} would be preempted for {by.name} ({by.priority})"
        return
    branch = usage.diverging_queues(by.queue, victim_group.queue)[1]
    quota = usage.quota(branch) if branch in usage.queues else 0
    if quota is None or before.get(branch, 0) <= quota:
        has = before.get(branch, 0)
        preemptor = f"{by.name} of {by.queue}"
        yield f"pod {name} would be preempted for {preemptor}, but {branch} has {has} cpu of its {quota}"


def _is_nomination(action: object) -> TypeGuard[Nominate]:
    return isinstance(action, Nominate) and bool(action.node)


def _take(usage: QueueUsageView, view: GroupView | None, pod: Object, sign: int = 1) -> None:
    if view is not None and view.known:
        usage.take(view.queue, sign * pod_requests(pod).get(CPU, 0), non_preemptible=view.non_preemptible)


def _key(pod: Object) -> PodKey:
    return PodKey(pod["metadata"]["namespace"], pod["metadata"]["name"])


# ── at the end ─────────────────────────────────────────────────────────────────────────────────────


def check_group_status(objects: List) -> Iterator[str]:
    """A pending group has a condition with the reason, other groups have none; pod counts are right."""
    views = group_views(objects)
    for group in objects("groups"):
        name, status = group["metadata"]["name"], group.get("status") or {}
        view = views.get(name)
        if view is None:
            continue
        pending = [pod for pod in view.pods if is_pending(pod)]
        conditions = [one for one in status.get("schedulingConditions") or () if one["type"] == CONDITION]
        if pending and not any(one.get("status") == "True" and one.get("message") for one in conditions):
            yield f"group {name} is pending without a reason"
        if view.pods and not pending and conditions:
            yield f"group {name} has a pending condition, but no pending pod: {conditions[0].get('message')}"
        counts = _counts(view.pods)
        if {key: status.get(key) or 0 for key in counts} != counts:
            yield f"group {name} has status {status}, but pods {counts}"


def check_queue_status(objects: List) -> Iterator[str]:
    """The status of a queue has the usage of its pods."""
    views = group_views(objects)
    usage = QueueUsageView.of(objects("queues"))
    for view in views.values():
        for pod in pods_on_nodes(view.pods):
            _take(usage, view, pod)
    for queue in objects("queues"):
        name = queue["metadata"]["name"]
        conditions = ((queue.get("status") or {}).get("allocated") or {}).get(CPU, "0")
        if _milli(conditions) != usage.use.get(name, 0):
            yield f"queue {name} reports {conditions} cpu, but uses {usage.use.get(name, 0)}m"


def check_no_partial_groups(objects: List) -> Iterator[str]:
    """No group stays partially bound."""
    for view in group_views(objects).values():
        if is_partial(view):
            yield f"{view.name} stays, though it lacks {view.missing_pods(view.bound_pods())}"


def _counts(pods: Iterable[Object]) -> dict[str, int]:
    counts = {"pending": 0, "running": 0, "succeeded": 0, "failed": 0}
    for pod in pods:
        phase = str(phase_of(pod) or "Pending").lower()
        counts[phase if phase in counts else "pending"] += 1
    return counts


def _milli(conditions: str | int | float) -> int:
    text = str(conditions)
    return int(text[:-1]) if text.endswith("m") else round(float(text) * 1000)
