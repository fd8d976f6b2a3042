"""The gangs that run, each with all its pods, and the disruption budgets that a move would touch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bayplan.model.gang import DisruptionBudget, Ref
from bayplan.model.pod import Pod
from bayplan.state.cluster.node_state import FLAT
from bayplan.state.scheduling.single_pod import single_pod_ref
from bayplan.state.scheduling.snapshot import SchedulingSnapshot
from bayplan.state.scheduling.state import SchedulingState


@dataclass(frozen=True, slots=True)
class TouchedBudget:
    """A disruption budget, how many pods of a gang it counts, and how many may be evicted now."""

    name: str  # namespace/name
    pods: int
    allowed: int

    @property
    def blocks(self) -> bool:
        """Whether it does not allow all these pods to be evicted at once."""
        return self.pods > self.allowed


def snapshot_for_moves(state: SchedulingState, now: float) -> SchedulingSnapshot:
    """A snapshot in which gangs of every topology can be placed again."""
    topologies = state.store.nodes.topologies.items()
    snapshot = state.snapshot([], now)
    # The flat topology has no levels: a gang that names no topology is placed in one that has its levels.
    return replace(snapshot, supplies={name: one.snapshot() for name, one in topologies if name != FLAT.name})


def running_gangs(snapshot: SchedulingSnapshot) -> dict[Ref, tuple[Pod, ...]]:
    """All pods that use capacity by the gang that they leave with: queued gang, gang, or the pod itself."""
    found: dict[Ref, list[Pod]] = {}
    for pod in snapshot.pods.values():
        if pod.uses_capacity:
            ref = pod.slot.gang if pod.slot is not None else pod.gang or single_pod_ref(pod.key)
            found.setdefault(ref, []).append(pod)
    return {
        ref: tuple(sorted(pods, key=lambda pod: (pod.pod_set, pod.rank, pod.key.namespace, pod.key.name)))
        for ref, pods in found.items()
    }


def touched_budgets(pods: Iterable[Pod], budgets: Sequence[DisruptionBudget]) -> tuple[TouchedBudget, ...]:
    """The disruption budgets that count any of these pods."""
    counts: dict[int, int] = {}
    for pod in pods:
        labels = dict(pod.spec.signature.labels)
        for at, budget in enumerate(budgets):
            if budget.namespace == pod.key.namespace and budget.selector.accepts(labels):
                counts[at] = counts.get(at, 0) + (pod.key.name not in budget.spent)
    return tuple(
        TouchedBudget(f"{budgets[at].namespace}/{budgets[at].name}", count, budgets[at].allowed)
        for at, count in sorted(counts.items())
    )
