"""What would become of a gang that the scheduler places: where its pods would start, or why not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.cli.live.gang_explanation import decided, nearest_lines, parts_text, too_large
from bayplan.cli.live.pending_explanation import Sections
from bayplan.cli.live.scheduled_state import Scheduled
from bayplan.cli.live.scheduled_submissions import ScheduledSubmission
from bayplan.cli.live.state import Live
from bayplan.explanation.reasons import NOT_TRIED
from bayplan.explanation.text import counted
from bayplan.model.change import PodSeen
from bayplan.model.gang import Ref
from bayplan.model.node import PODS
from bayplan.model.plan import Admit, Bind, PreemptPod, ReportUnschedulable
from bayplan.model.pod import Pod, PodKey
from bayplan.model.queued_gang import QueuedGang

HOSTS_MAX = 16


@dataclass(slots=True)
class ScheduledPlan:
    """What was decided about all gangs of one submission together."""

    pods: int = 0
    minimum: int = 0
    nodes: dict[str, int] = field(default_factory=dict)
    victims: list[Pod] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    nearest: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)  # pods that no node could ever take

    @property
    def starting(self) -> int:
        return sum(self.nodes.values())


def try_out(live: Live, scheduled: Scheduled, one: ScheduledSubmission) -> ScheduledPlan:
    """Decide on it, and believe what was decided: those that follow find the rest of the room."""
    found, role = ScheduledPlan(), scheduled.role
    for ref in one.refs:
        waiting, charter = role.state.waiting(ref), role.state.charter_of(ref)
        plan = decided(role, ref, live.now)
        role.assume(plan, live.now)
        found.pods += len(waiting)
        found.minimum += charter.minimum if charter is not None else 0
        for action in plan.actions:
            match action:
                case Bind(_, pod, node):
                    found.nodes[node] = found.nodes.get(node, 0) + 1
                    live.state.apply(PodSeen(replace(pod, node=node, gang=None, pod_set="", ours=False)))
                case PreemptPod(pod) if not action.undoes:
                    found.victims.append(pod)
                case ReportUnschedulable():
                    found.reasons.append(role.told(ref, action.why))
                    found.too_large += too_large(role, ref)
                    found.nearest += nearest_lines(action.why.misfit)
    return found


def answer_parts(
    live: Live, scheduled: Scheduled, one: ScheduledSubmission, *, full: bool
) -> tuple[bool, str, Sections, dict[str, Any]]:
    """Whether it would start now, that in a sentence, the details, and the same for machines."""
    role = scheduled.role
    pods = tuple(pod for ref in one.refs for pod in role.state.waiting(ref))
    found = try_out(live, scheduled, one)
    sections: Sections = {"asks for": [f"{count} x {shape}" for shape, count in parts_text(pods).items()]}
    if not pods:
        sections["asks for"] = ["no pods are in the files"]
    if len(one.refs) == 1 and found.minimum > 1:
        sections["needs"] = [f"{counted(found.minimum, 'pod')} at once"]
    elif len(one.refs) > 1:
        sections["needs"] = ["nothing in common: each pod stands for itself"]
    starts = bool(found.nodes) and (len(one.refs) == 1 or found.starting == found.pods)
    if found.nodes:
        sections["where"] = _where(scheduled, found, full=full)
    if found.victims:
        sections["has to go first"] = [
            f"{pod.key}, priority {pod.wants.priority}, on {pod.node}" for pod in found.victims
        ]
    if found.too_large:
        sections["too large"] = list(dict.fromkeys(found.too_large))
    if found.nearest:
        sections["closest"] = [found.nearest[0].removeprefix("closest: ")]
    if one.notes:
        sections["note"] = list(one.notes)
    some = "" if found.starting == found.pods else f": {found.starting} of {counted(found.pods, 'pod')}"
    why = next((" ".join(reason.split()) for reason in found.reasons), NOT_TRIED)
    told = f"would start now{some}" if starts else f"would wait: {why}"
    if found.nodes and not starts:
        told = f"would start in part{some}: {why}"
    return starts, f"{one.title}: {told}", sections, _record(one, found, starts, why)


def take_up(live: Live, scheduled: Scheduled, demand: QueuedGang, action: Admit) -> None:
    """A gang of a queue that would be admitted: its pods take room that the scheduler no longer has."""
    hosts = live.state.holdings.hosts
    requests = {pod_set.name: pod_set.requests for pod_set in demand.gang.root.pod_sets()}
    source, number = demand.gang.source, 0
    for given in action.admission.given:
        for share in given.place.shares if given.place is not None else ():
            node = hosts.get(share.values[-1], share.values[-1])
            if node not in scheduled.labels:
                continue
            for _ in range(share.count):
                number += 1
                key = PodKey(source.namespace, f"{source.name}/{number}")
                pod = Pod(key, f"{demand.gang.uid}-{number}", {PODS: 1, **requests[given.name]}, node=node)
                scheduled.role.fold([PodSeen(pod)])


def _where(scheduled: Scheduled, found: ScheduledPlan, *, full: bool) -> list[str]:
    nodes = sorted(found.nodes.items())
    lines = [scheduled.where(found.nodes)]
    lines += [f"{node}: {counted(count, 'pod')}" for node, count in nodes[: None if full else HOSTS_MAX]]
    left = len(nodes) - HOSTS_MAX
    return lines if full or left <= 0 else [*lines, f"and {counted(left, 'more host')}; --full names them"]


def _record(one: ScheduledSubmission, found: ScheduledPlan, starts: bool, why: str) -> dict[str, Any]:
    ref: Ref = one.refs[0]
    record: dict[str, Any] = {
        "gang": one.title,
        "namespace": ref.namespace,
        "name": one.title.partition("/")[2],
        "admitted": starts,
        "nodes": dict(sorted(found.nodes.items())),
        "preempts": [str(pod.key) for pod in found.victims],
        "notes": list(one.notes),
    }
    return record if starts else record | {"message": why}
