"""Which running gangs of a live cluster may be moved, at what cost, and why the others stay."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bayplan.cli.live.scheduled_state import Scheduled, is_queued
from bayplan.cli.live.state import Live
from bayplan.cli.render.tables import moment
from bayplan.dialects.jobs.serving_jobs import DAEMON_SET
from bayplan.dialects.kube.decode.wire import NODES, PodWire
from bayplan.dialects.kube.fields.move_rules import MoveRules, move_rules
from bayplan.explanation.text import shown_name
from bayplan.model.gang import GangSpec, PodSet, Ref
from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Flavor
from bayplan.scheduling.defragment.cost import DEFAULT_COSTS, CostRules, move_cost, priority_ranks
from bayplan.scheduling.defragment.problem import MovableGang, fresh_pods, required_level
from bayplan.scheduling.defragment.running import running_gangs, touched_budgets
from bayplan.state.scheduling.snapshot import SchedulingSnapshot

FIXED_OWNERS = (DAEMON_SET.kind, NODES.kind)
"""Owners whose pods belong to their node."""


@dataclass(frozen=True, slots=True)
class StayingGang:
    """A running gang that is not moved, and why."""

    ref: Ref
    pods: int
    why: str


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Which gangs may move, and what that costs."""

    below: int | None = None  # the highest priority that may move, unless a gang is labelled so
    costs: CostRules = DEFAULT_COSTS
    least_run: float = 0.0  # seconds that a gang runs before it moves


@dataclass(frozen=True, slots=True)
class RunningGangs:
    """All gangs that run: those that may move, and those that stay."""

    movable: tuple[MovableGang, ...]
    staying: tuple[StayingGang, ...]
    priorities: Mapping[Ref, int]


@dataclass(frozen=True, slots=True)
class _Draft:
    spec: GangSpec
    pods: tuple[Pod, ...]
    fresh: tuple[Pod, ...]
    rules: MoveRules
    priority: int


def gangs_that_run(
    live: Live, scheduled: Scheduled, snapshot: SchedulingSnapshot, limits: MoveLimits
) -> RunningGangs:
    """Every running gang: those that may move within the limits, and the others."""
    drafts: list[_Draft] = []
    staying: list[StayingGang] = []
    for ref, pods in sorted(running_gangs(snapshot).items(), key=lambda pair: str(pair[0])):
        draft = _draft(live, scheduled, snapshot, ref, pods)
        why = draft if isinstance(draft, str) else _why_not(live, scheduled, snapshot, draft, limits)
        if isinstance(draft, str) or why:
            staying.append(StayingGang(ref, len(pods), str(why)))
        else:
            drafts.append(draft)
    ranks = priority_ranks(one.priority for one in drafts)
    movable = []
    for one in drafts:
        cost = move_cost(
            one.pods,
            live.now,
            checkpoint=one.rules.checkpoint,
            lower_priorities=ranks[one.priority],
            rules=limits.costs,
        )
        budgets = tuple(budget.name for budget in touched_budgets(one.pods, snapshot.budgets))
        levels = _levels(scheduled, one.spec)
        movable.append(MovableGang(one.spec, one.pods, one.fresh, cost.weighted, cost.lost, levels, budgets))
    return RunningGangs(tuple(movable), tuple(staying), {one.spec.source: one.priority for one in drafts})


def _draft(
    live: Live, scheduled: Scheduled, snapshot: SchedulingSnapshot, ref: Ref, pods: tuple[Pod, ...]
) -> _Draft | str:
    """The gang with the pods that would replace its own; or why it cannot be created again elsewhere."""
    rules = _rules(live, scheduled, ref, pods)
    queued = None if live.no_queues else live.state.pending.entries.get(ref)
    if queued is not None:
        return _queued_draft(live, queued.queued_gang, pods, rules)
    if any((wire := scheduled.pods.get(pod.key)) is not None and _is_queued(live, wire) for pod in pods):
        return "admitted by a queue without a topology: its nodes are not planned"
    if not all(pod.ours for pod in pods):
        return "placed by another scheduler"
    spec = snapshot.specs.get(ref)
    if spec is None:
        spec = GangSpec(ref, priority=max(pod.spec.priority for pod in pods))
    if len(pods) < spec.minimum or any(not pod.node for pod in pods):
        return "does not run with all its pods"
    priority = spec.priority if spec.priority is not None else max(pod.spec.priority for pod in pods)
    return _Draft(replace(spec, started=False), pods, fresh_pods(pods), rules, priority)


def _queued_draft(live: Live, queued: QueuedGang, pods: tuple[Pod, ...], rules: MoveRules) -> _Draft | str:
    """An admitted gang: its pods come back with the node selectors of their new place."""
    admission = queued.admission
    if admission is None or queued.evicted or not queued.admitted:
        return "is not admitted, or is being evicted"
    if sum(given.count for given in admission.pod_sets) != len(pods):
        return "does not run with all its pods"
    pod_sets = {one.name: one for one in queued.gang.root.pod_sets()}
    flavors = live.state.config.flavors
    topologies = set()
    fresh = []
    for old, pod in zip(pods, fresh_pods(pods), strict=True):
        name = old.slot.pod_set if old.slot is not None else old.pod_set
        given = admission.pod_set(name)
        if name not in pod_sets or given is None:
            return "has pods that are not in its admission"
        used = [flavors[one] for one in dict.fromkeys(given.flavors.values()) if one in flavors]
        topologies |= {one.topology for one in used if one.topology}
        shape = queued_signature(pod_sets[name], pod, used)
        fresh.append(
            replace(pod, pod_set=name, gang=queued.gang.source, spec=replace(pod.spec, signature=shape))
        )
    spec = GangSpec(
        queued.gang.source,
        len(pods),
        priority=queued.gang.priority,
        tree=queued.gang.root,
        topology=min(topologies, default=""),
        created=queued.created,
    )
    return _Draft(spec, pods, tuple(fresh), rules, queued.gang.priority)


def queued_signature(pod_set: PodSet, pod: Pod, flavors: Iterable[Flavor]) -> PodSignature:
    """A pod of a queued gang without the node selector of its present place."""
    labels = {key: value for flavor in flavors for key, value in flavor.labels.items()}
    tolerations = tuple(one for flavor in flavors for one in flavor.tolerations)
    rules = replace(
        pod_set.rules,
        selector=tuple(sorted({**labels, **dict(pod_set.rules.selector)}.items())),
        tolerations=pod_set.rules.tolerations + tolerations,
    )
    shape = (pod_set.template or PodSignature()).in_namespace(pod.key.namespace)
    present = pod.spec.signature
    return replace(
        shape, amounts=tuple(sorted(pod.amounts.items())), score_requests=present.score_requests, rules=rules,
        zones=pod_set.zones,
    )  # fmt: skip


def _why_not(
    live: Live, scheduled: Scheduled, snapshot: SchedulingSnapshot, draft: _Draft, limits: MoveLimits
) -> str:
    """Why a gang stays; empty if it may move."""
    rules, spec = draft.rules, draft.spec
    if rules.problem:
        return rules.problem
    if rules.movable is False:
        return "labelled as not movable"
    if rules.movable is None and spec.non_preemptible:
        return "not preemptible"
    if rules.movable is None and limits.below is not None and draft.priority > limits.below:
        return f"its priority {draft.priority} is higher than that of the gang that needs room"
    if rules.not_before > live.now:
        return f"not to be moved before {moment(rules.not_before)}"
    if live.now - min(pod.started or live.now for pod in draft.pods) < limits.least_run:
        return f"has run for less than {limits.least_run / 60:g} minutes"
    if any(pod.terminating for pod in draft.pods):
        return "is terminating"
    owners = [scheduled.owner(pod.key) for pod in draft.pods]
    if any(owner is None for owner in owners):
        return "has pods without a controller that would create them again"
    if any(owner is not None and owner.kind in FIXED_OWNERS for owner in owners):
        return "belongs to its nodes"
    for budget in touched_budgets(draft.pods, snapshot.budgets):
        if budget.blocks:
            return (
                f"PodDisruptionBudget {budget.name} allows {budget.allowed} of its {budget.pods} pods"
                " to be evicted at once"
            )
    return ""


def _rules(live: Live, scheduled: Scheduled, ref: Ref, pods: tuple[Pod, ...]) -> MoveRules:
    """What the objects of a gang say: the Workload or job first, then its first pod."""
    found: list[Mapping[str, str] | None] = []
    for one in (live.workloads.get(ref), scheduled.jobs.get(ref)):
        meta = (one or {}).get("metadata") or {}
        found += [meta.get("labels"), meta.get("annotations")]
    wire = scheduled.pods.get(pods[0].key)
    if wire is not None:
        found += [wire.metadata.labels, wire.metadata.annotations]
    return move_rules(*found)


def _is_queued(live: Live, wire: PodWire) -> bool:
    return not live.no_queues and is_queued(wire)


def _levels(scheduled: Scheduled, spec: GangSpec) -> tuple[str, ...]:
    """The labels that tell apart the domains of the level that a gang needs."""
    level = required_level(spec)
    if not level or spec.tree is None:
        return (level,) if level else ()
    return level_path(scheduled.levels(), level, spec.topology)


def level_path(topologies: Mapping[str, tuple[str, ...]], level: str, topology: str = "") -> tuple[str, ...]:
    """A level with all levels above it in its topology; the level alone if no topology has it."""
    named = [topologies[topology]] if topology in topologies else list(topologies.values())
    for levels in named:
        if level in levels:
            return levels[: levels.index(level) + 1]
    return (level,)


def gang_name(ref: Ref) -> str:
    """`namespace/name` as people know it."""
    return f"{ref.namespace}/{shown_name(ref)}"
