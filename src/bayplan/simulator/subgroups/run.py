"""The play of groups with sub-groups, queues and jobs under contention: faults, then the final checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from bayplan.backends.fake_controllers.manifests import NAMESPACE
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kai.api import names, wire
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.model.gang import Ref
from bayplan.model.plan import Bind, Plan
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.controller import Controller
from bayplan.simulator.core.checkers import check_consistency, pod_requests
from bayplan.simulator.core.faults import Chances
from bayplan.simulator.core.fixtures import PLAIN_NODES, PLAIN_PODS
from bayplan.simulator.core.scheduler_simulation import REST_SECONDS, RESTING_STATES, SchedulerSimulation
from bayplan.simulator.core.simulation import EPOCH, NEVER
from bayplan.simulator.pods.checkers import check_pending_reasons
from bayplan.simulator.pods.gang_view import is_pending
from bayplan.simulator.pods.run import (
    ARRIVAL_SECONDS,
    CHANCES_BY_SEED,
    EVENTS,
    UNCERTAIN_SECONDS,
    check_same_state,
)
from bayplan.simulator.subgroups.actors import SubgroupActors
from bayplan.simulator.subgroups.checkers import (
    SubgroupChecker,
    check_group_status,
    check_no_partial_groups,
    check_queue_status,
)
from bayplan.simulator.subgroups.group_view import GroupView, group_views, queue_usage
from bayplan.simulator.subgroups.placement_oracle import FreeHosts, fits_on_free_hosts
from bayplan.simulator.subgroups.queue_view import CPU, QueueUsageView
from bayplan.simulator.subgroups.world import trees_world
from bayplan.state.scheduling.state import SchedulingState

Object = dict[str, Any]
WATCHED = {"pods": PODS_KIND, "groups": wire.POD_GROUPS, "queues": wire.QUEUES}


class TreesSimulation(SchedulerSimulation):
    """Groups with sub-groups in fair-share queues, and jobs that the pod grouper puts into groups."""

    fault_seconds = 80.0
    quiet_seconds = 1200.0
    must_settle = False  # who waits is tried again now and then; but nothing may come of it

    def __init__(self, seed: int, chances: Chances | None = None) -> None:
        rng = Random(f"trees {seed}")
        fault_chances = rng.choice(CHANCES_BY_SEED) if chances is None else chances
        self.world = trees_world(rng, ARRIVAL_SECONDS)
        super().__init__(seed, rng, Random(f"ids {seed}"), fault_chances)
        self.create_initial(self.world.nodes, self.world.rules)
        rng_changes = Random(f"minds {seed}")
        self.actors = SubgroupActors(self.store, rng, self.world, EPOCH, self.fault_seconds, rng_changes)
        self.kinds = {"nodes": PLAIN_NODES, "pods": PLAIN_PODS, "events": EVENTS} | {
            "queues": names.QUEUE, "groups": names.POD_GROUP, "jobs": resource("Job"),
            "jobsets": resource("JobSet"),
        }  # fmt: skip
        self.compared = tuple(self.kinds)
        self.environment = (self.actors.step, self.fake_controllers().step)
        self.checker = SubgroupChecker(self.world.profile.heal_seconds)
        self.changed, self.seen = EPOCH, 0  # when any object did, and what that made of the store

    def controllers(self) -> Sequence[Controller]:
        self.scheduler = SchedulerController(self.world.profile, awaits_grouper=True)
        self.checker.restarted()
        return (self.scheduler, PodGrouperController())

    def recover_all(self) -> None:
        self.actors.recover_all()

    def act(self) -> None:
        super().act()
        if self.store.version != self.seen:
            self.changed, self.seen = self.now, self.store.version

    # ── what may never be seen ──

    def problems(self) -> Iterator[str]:
        yield from check_consistency(self.scheduler.state)
        certain = (
            self.now - max(self.outcome_lost_at, self.started_at, self.actors.changed_at) > UNCERTAIN_SECONDS
        )
        exact = certain and not self._groups_were_deleted()
        yield from self.checker.check(self.listed, self.now, self.scheduler.state.store.pods, exact=exact)

    def _groups_were_deleted(self) -> bool:
        """Whether a group was deleted: its pods count for no queue until it is created again."""
        return bool(self.actors.injected["group_deleted"] + self.actors.injected["gang_deleted"])

    def check_plan(self, plan: Plan) -> Iterator[str]:
        yield from self.checker.check_plan(plan, self.last_seen, self.scheduler.state, self.now)

    def last_seen(self, plural: str) -> list[Object]:
        """All objects of a kind as of the last events."""
        kind = WATCHED[plural]
        known = (event.object for (of, _, _), event in self.backend.known.items() if of == kind)
        return [msgspec.to_builtins(views) for views in known]

    # ── what must hold whenever nothing is under way ──

    def check_idle(self) -> Iterator[str]:
        """A fresh scheduler has the same state and would bind no pod; no group that fits is pending."""
        state = self.scheduler.state
        if not self.is_checkable():
            return
        fresh = SchedulerController(self.world.profile, awaits_grouper=True)
        view = self.load_fresh(fresh)
        yield from check_same_state(state, fresh.state, with_nominations=self.outcome_lost_at == -NEVER)
        yield from check_same_queue_usage(state, fresh.state)
        yield from self._check_startable(state)
        for action in self.would_do(fresh, view):
            if isinstance(action, Bind):
                yield f"pod {action.pod.key.name} would fit on {action.node} but is pending"
            else:
                yield f"{action.by.name} could have {action.pod.key.name} preempted but is pending"

    def _check_startable(self, state: SchedulingState) -> Iterator[str]:
        """Pending groups whose minimums fit on free nodes and within the limits of their queues."""
        views = group_views(self.listed)
        usage = queue_usage(self.listed, views)
        reserved = state.gangs.reserved
        reserved_for, reserved_nodes = (
            ("", frozenset[str]()) if reserved is None else (reserved[0].name, reserved[1])
        )
        for view in views.values():
            rejection = state.reported(Ref(names.DIALECT, names.POD_GROUP.kind, NAMESPACE, view.name))
            if (rejection is not None and rejection.incomplete) or not is_startable(view, usage):
                continue
            if takes_reserved(view, views.get(reserved_for), usage):
                continue
            nodes: Sequence[Object] = self.listed("nodes")
            if reserved_for and view.name != reserved_for:
                nodes = [node for node in nodes if node["metadata"]["name"] not in reserved_nodes]
            if fits_on_free_hosts(view, FreeHosts.of(nodes, self.listed("pods"))):
                yield f"{view.name} is pending, though it fits on free nodes"

    def final_violations(self) -> Iterator[str]:
        if not self.is_quiet() and self.now - self.changed < REST_SECONDS:
            yield f"work continues after {self.now - EPOCH:.0f} s"
        for entry in self.scheduler.state.entries():
            if entry.state not in RESTING_STATES:
                yield f"{entry.ref.name} stays {entry.state} forever"
        yield from self.checker.check(self.listed, self.end, None, exact=False)
        yield from self.checker.check_useful_preemptions(
            max(self.actors.disturbed_at, self.started_at, self.outcome_lost_at) + UNCERTAIN_SECONDS
        )
        yield from check_no_partial_groups(self.listed)
        yield from check_pending_reasons(self.listed)
        yield from check_group_status(self.listed)
        yield from check_queue_status(self.listed)

    def summarize(self) -> None:
        pods = self.listed("pods")
        self.report.jobs = len(self.checker.bound) + sum(map(is_pending, pods))
        self.report.finished = len(self.checker.bound)
        self.report.faults.update(self.actors.injected)
        self.report.faults["displaced"] += len(self.checker.preempted)


def is_startable(view: GroupView, usage: QueueUsageView) -> bool:
    """Whether a group lacks pods, and its queue would allow them."""
    missing = view.missing_pods(view.bound_pods())
    if not view.known or view.invalid or not missing:
        return False
    if not usage.queues:
        return True
    if not usage.is_leaf(view.queue):
        return False
    with_group = _with_missing(view, usage)
    return not any(with_group.over_limit(view.queue, non_preemptible=view.non_preemptible))


def takes_reserved(view: GroupView, owner: GroupView | None, usage: QueueUsageView) -> bool:
    """Whether quota and limits would not suffice any more for the group that has the reservation."""
    if owner is None or owner.name == view.name or view.priority > owner.priority or not usage.queues:
        return False
    with_both = _with_missing(owner, _with_missing(view, usage))
    lasting = owner.non_preemptible and view.non_preemptible
    return any(with_both.over_limit(owner.queue, non_preemptible=lasting))


def _with_missing(view: GroupView, usage: QueueUsageView) -> QueueUsageView:
    """The usage of queues with the pods that a group lacks."""
    found = replace(usage, use=dict(usage.use), non_preemptible=dict(usage.non_preemptible))
    for leaf, count in view.missing_pods(view.bound_pods()).items():
        own_pods = [pod for pod in view.pending_pods() if view.leaf_of(pod) == leaf]
        for pod in own_pods[:count]:
            found.take(view.queue, pod_requests(pod).get(CPU, 0), non_preemptible=view.non_preemptible)
    return found


def check_same_queue_usage(own_state: SchedulingState, fresh_state: SchedulingState) -> Iterator[str]:
    """Two idle schedulers have the same usage and demand of queues."""
    own_pods, fresh = own_state.store.fair.view(), fresh_state.store.fair.view()
    if (own_pods is None) != (fresh is None):
        yield f"queues are known to one scheduler only: {own_pods} and {fresh}"
    if own_pods is None or fresh is None:
        return
    for field in ("usage", "non_preemptible", "requested"):
        one, other = _amounts(getattr(own_pods, field)), _amounts(getattr(fresh, field))
        if one != other:
            yield f"{field} of the queues is not what a fresh list gives: {one}, not {other}"
    if _some(own_pods.capacity) != _some(fresh.capacity) or own_pods.queues != fresh.queues:
        yield f"capacity or queues are not what a fresh list gives: {own_pods}, not {fresh}"


def _amounts(by_queue: Any) -> dict[str, Any]:
    return {queue: some for queue, amounts in by_queue.items() if (some := _some(amounts))}


def _some(amounts: Any) -> dict[str, int]:
    return {resource: amount for resource, amount in amounts.items() if amount}
