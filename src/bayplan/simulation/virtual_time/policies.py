"""Policies by name: configurations of ours, and baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bayplan.model.node import Node
from bayplan.model.profile import NodeChoice, Profile
from bayplan.simulation.traces.workload import TraceJob
from bayplan.simulation.virtual_time.baseline_queue import Backfill, BaselineQueue, NodeRule
from bayplan.simulation.virtual_time.our_engine import OurEngine
from bayplan.simulation.virtual_time.outcome import VirtualScheduler

DEFAULT_POLICIES = ("bayplan", "best-fit", "fifo")


@dataclass(frozen=True, slots=True)
class SimulatedPolicy:
    """How a policy is made: a profile of ours, or a rule and a queue."""

    about: str
    profile: Profile | None = None
    rule: NodeRule = NodeRule.FIRST_FIT
    backfill: Backfill = Backfill.ANY

    def scheduler(self, nodes: Sequence[Node], seed: int, jobs: Sequence[TraceJob] = ()) -> VirtualScheduler:
        """A scheduler with an empty cluster; `jobs` are the ones that will arrive, for their usual sizes."""
        if self.profile is not None:
            return OurEngine(nodes, self.profile)
        return BaselineQueue(nodes, self.rule, self.backfill, seed, jobs)


def known_policies(profile: Profile) -> dict[str, SimulatedPolicy]:
    """All policies; `profile` is the one of the configuration."""
    return {
        "bayplan": SimulatedPolicy("Bayplan as configured", profile),
        "bayplan-spread": SimulatedPolicy(
            "Bayplan, pods of gangs on the emptiest nodes", replace(profile, gang_nodes=NodeChoice.SPREAD)
        ),
        "bayplan-pack": SimulatedPolicy(
            "Bayplan, pods of gangs on the fullest nodes, whatever their rack",
            replace(profile, gang_nodes=NodeChoice.PACK),
        ),
        "bayplan-no-reservation": SimulatedPolicy(
            "Bayplan, without a reservation for the first gang", replace(profile, keep_after_seconds=0.0)
        ),
        "fifo": SimulatedPolicy("in order of arrival, first fit by name", backfill=Backfill.NONE),
        "fifo-backfill": SimulatedPolicy(
            "later jobs overtake where that does not delay the first, first fit by name",
            backfill=Backfill.EASY,
        ),
        "first-fit": SimulatedPolicy("later jobs may overtake, first fit by name"),
        "best-fit": SimulatedPolicy("later jobs may overtake, fullest host first", rule=NodeRule.BEST_FIT),
        "spread": SimulatedPolicy("later jobs may overtake, emptiest host first", rule=NodeRule.SPREAD),
        "fgd": SimulatedPolicy("later jobs may overtake, least fragmentation", rule=NodeRule.FGD),
        "random": SimulatedPolicy("later jobs may overtake, hosts at random", rule=NodeRule.RANDOM),
    }
