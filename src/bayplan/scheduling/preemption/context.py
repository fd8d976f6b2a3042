"""The shared inputs of all preemption searches of one cycle, and the victims chosen so far."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bayplan.model.profile import Profile
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.preemption.removals import LeavingPods
from bayplan.scheduling.preemption.victim_units import DisruptionBudgets
from bayplan.state.scheduling.snapshot import SchedulingSnapshot


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
        return LeavingPods(self.overlay, (*terminating, *victims))

    @cached_property
    def budgets(self) -> DisruptionBudgets:
        """How many more pods each disruption budget allows to preempt."""
        return DisruptionBudgets(self.snapshot.budgets)
