"""What runs of `bayplan defragment` that were killed have left behind, and how it is put right."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import click

from bayplan.cli.live.scheduled_state import Scheduled
from bayplan.cli.live.state import ClusterTarget, Live
from bayplan.cli.planning.gang_switch import GangSwitch, switch_of
from bayplan.cli.planning.movable_gangs import gang_name
from bayplan.cli.render.tables import moment
from bayplan.cli.running.defragment_writes import (
    StepStoppedError,
    deletions,
    require,
    take_down_fence,
    written,
)
from bayplan.dialects.api import Ended, WriteOutcome
from bayplan.dialects.kube.decode.wire import NODES
from bayplan.dialects.kube.encode.holders import HOLDER
from bayplan.dialects.kube.encode.move_marks import PLAN, PlanMark, fence_of, mark_in
from bayplan.explanation.text import counted

Say = Callable[[str], None]


@dataclass(slots=True)
class Leftovers:
    """Everything with the marks of one plan. The run of the plan may still be at work until the time."""

    plan: str
    until: float = 0.0
    nodes: list[str] = field(default_factory=list)  # that have its taint
    holders: list[tuple[str, str]] = field(default_factory=list)  # namespace and name of pods
    stopped: list[GangSwitch] = field(default_factory=list)  # gangs that were not started again

    def __str__(self) -> str:
        parts = [f"{one.ref.kind} {gang_name(one.ref)}, which is stopped" for one in self.stopped]
        parts += [counted(len(self.holders), "held place")] if self.holders else []
        parts += [f"the taints of {counted(len(self.nodes), 'node')}"] if self.nodes else []
        return ", ".join(parts)


def find_leftovers(live: Live, scheduled: Scheduled) -> list[Leftovers]:
    """Everything that has marks of plans, by plan."""
    found: dict[str, Leftovers] = {}

    def of(mark: PlanMark) -> Leftovers:
        one = found.setdefault(mark.plan, Leftovers(mark.plan))
        one.until = max(one.until, mark.until)
        return one

    for node in live.listed(NODES):
        fence = fence_of(node)
        if fence is not None:
            of(fence).nodes.append(node.metadata.name)
    for key, wire in scheduled.pods.items():
        plan = (wire.metadata.labels or {}).get(HOLDER)
        if plan is not None:
            of(mark_in(plan, wire.metadata.annotations)).holders.append((key.namespace, key.name))
    for ref, one in (*live.workloads.items(), *scheduled.jobs.items()):
        notes = one["metadata"].get("annotations") or {}
        switch = switch_of(ref) if PLAN in notes else None
        if switch is not None:
            of(mark_in(notes[PLAN], notes)).stopped.append(switch)
    return sorted(found.values(), key=lambda one: one.plan)


def put_right(target: ClusterTarget, leftovers: Iterable[Leftovers], say: Say) -> None:
    """Delete the pods that hold places, start stopped gangs again, and take taints away."""
    for one in leftovers:
        try:
            with target.connected() as backend:
                _made(written(backend, deletions(one.holders)), "delete pods that hold a place")
                _made(written(backend, [switch.start() for switch in one.stopped]), "start a gang again")
                take_down_fence(backend, one.nodes, one.plan)
        except StepStoppedError as stopped:
            raise click.ClickException(f"plan {one.plan} was left behind: {stopped}") from None
        say(f"plan {one.plan} was left behind; put right: {one}")


def at_work(one: Leftovers) -> str:
    """Why nothing is moved: another run may be at work."""
    return (
        f"plan {one.plan} may be carried out until {moment(one.until)}: {one}; wait until then, or if its run"
        " was killed, put it right with: bayplan defragment --undo"
    )


def _made(outcomes: list[WriteOutcome], what: str) -> None:
    require((one for one in outcomes if one.ended is not Ended.GONE), what)
