"""The shared inputs of all preemption searches of one cycle, their results, and the victims chosen so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.model.rejection import PreemptionSearchOutcome
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.preemption.removals import LeavingPods
from bayplan.scheduling.preemption.victim_units import DisruptionBudgets, VictimUnit
from bayplan.state.scheduling.snapshot import SchedulingSnapshot


@dataclass(frozen=True, slots=True)
class PreemptionResult:
    """The outcome of a search, the rows of the gang's pods once the victims are gone, and the victims."""

    outcome: PreemptionSearchOutcome
    rows: Mapping[PodKey, int] = field(default_factory=dict)
    units: tuple[VictimUnit, ...] = ()
    # of the preempted pods, those that move: their new rows
    moves: Mapping[PodKey, int] = field(default_factory=dict)

    @property
    def pods(self) -> list[tuple[Pod, bool]]:
        """All pods to preempt, and whether each leaves with its whole gang."""
        return [(pod, unit.leaves_together) for unit in self.units for pod in unit.pods]


@dataclass(frozen=True, eq=False)
class PreemptionContext:
    """The snapshot, the profile and the overlay of one cycle.

    Terminating pods and disruption budgets are collected on first use: most cycles preempt no pod. Every
    search adds its victims to both, so that later searches see them.
    """

    snapshot: SchedulingSnapshot
    profile: Profile
    overlay: NodeOverlay

    @cached_property
    def terminating(self) -> LeavingPods:
        """All pods that terminate or are being preempted, for any gang."""
        terminating = [key for key, pod in self.snapshot.pods.items() if pod.terminating]
        victims = (key for candidate in self.snapshot.candidates for key in candidate.victims)
        return LeavingPods(self.overlay, (*terminating, *victims), self.snapshot.departed)

    @cached_property
    def budgets(self) -> DisruptionBudgets:
        """How many more pods each disruption budget allows to preempt."""
        return DisruptionBudgets(self.snapshot.budgets)

    def commit(self, result: PreemptionResult) -> None:
        """Count the victims as removed for all later searches of the cycle."""
        self.terminating.add(pod.key for pod, _ in result.pods)
        self.budgets.spend(pod for pod, _ in result.pods)
