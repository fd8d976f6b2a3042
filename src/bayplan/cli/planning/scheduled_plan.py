"""Plans a gang that the scheduler places: where its pods would start, or why not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.cli.live.gang_explanation import (
    decide_now,
    lacking_devices,
    nearest_lines,
    parts_text,
    too_large,
)
from bayplan.cli.live.pending_explanation import Sections
from bayplan.cli.live.scheduled_state import Scheduled
from bayplan.cli.live.state import Live
from bayplan.cli.planning.scheduled_submissions import ScheduledSubmission
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
    """The decisions about all gangs of one submission together."""

    pods: int = 0
    minimum: int = 0
    nodes: dict[str, int] = field(default_factory=dict)
    victims: list[Pod] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    nearest: list[str] = field(default_factory=list)
    too_large: list[str] = field(default_factory=list)  # pods that fit no node, even an empty one
    devices: list[str] = field(default_factory=list)  # what nodes lack for their claims

    @property
    def starting(self) -> int:
        return sum(self.nodes.values())


def plan_scheduled(live: Live, scheduled: Scheduled, one: ScheduledSubmission) -> ScheduledPlan:
    """Decide on a submission and assume the decision: later submissions get the remaining capacity."""
    result, controller = ScheduledPlan(), scheduled.controller
    for ref in one.refs:
        pending, spec = controller.state.pending(ref), controller.state.spec_of(ref)
        plan = decide_now(controller, ref, live.now)
        controller.assume(plan, live.now)
        result.pods += len(pending)
        result.minimum += spec.minimum if spec is not None else 0
        for action in plan.actions:
            match action:
                case Bind(_, pod, node):
                    result.nodes[node] = result.nodes.get(node, 0) + 1
                    live.state.apply(PodSeen(replace(pod, node=node, gang=None, pod_set="", ours=False)))
                case PreemptPod(pod) if not action.undoes:
                    result.victims.append(pod)
                case ReportUnschedulable():
                    result.reasons.append(controller.message_for(ref, action.rejection))
                    result.too_large += too_large(controller, ref)
                    result.devices += lacking_devices(controller, ref)
                    result.nearest += nearest_lines(action.rejection.misfit)
    return result


def answer_parts(
    live: Live, scheduled: Scheduled, one: ScheduledSubmission, *, full: bool
) -> tuple[bool, str, Sections, dict[str, Any]]:
    """Whether it would start now, a sentence, sections, and the JSON record."""
    controller = scheduled.controller
    pods = tuple(pod for ref in one.refs for pod in controller.state.pending(ref))
    result = plan_scheduled(live, scheduled, one)
    sections: Sections = {"requests": [f"{count} x {shape}" for shape, count in parts_text(pods).items()]}
    if not pods:
        sections["requests"] = ["the files contain no pods"]
    if len(one.refs) == 1 and result.minimum > 1:
        sections["needs"] = [f"{counted(result.minimum, 'pod')} at once"]
    elif len(one.refs) > 1:
        sections["needs"] = ["no minimum: each pod is scheduled on its own"]
    starts = bool(result.nodes) and (len(one.refs) == 1 or result.starting == result.pods)
    if result.nodes:
        sections["where"] = _where(scheduled, result, full=full)
    if result.victims:
        sections["preempts"] = [
            f"{pod.key}, priority {pod.spec.priority}, on {pod.node}" for pod in result.victims
        ]
    if result.too_large:
        sections["too large"] = list(dict.fromkeys(result.too_large))
    if result.devices:
        sections["devices"] = [
            line.removeprefix("devices: ").strip() for line in dict.fromkeys(result.devices)
        ]
    if result.nearest:
        sections["closest"] = [result.nearest[0].removeprefix("closest: ")]
    if one.notes:
        sections["note"] = list(one.notes)
    some = "" if result.starting == result.pods else f": {result.starting} of {counted(result.pods, 'pod')}"
    why = next((" ".join(reason.split()) for reason in result.reasons), NOT_TRIED)
    text = f"would start now{some}" if starts else f"would be pending: {why}"
    if result.nodes and not starts:
        text = f"would start partly{some}: {why}"
    return starts, f"{one.title}: {text}", sections, _record(one, result, starts, why)


def assume_admitted(live: Live, scheduled: Scheduled, queued_gang: QueuedGang, action: Admit) -> None:
    """Count the pods of a queued gang that would be admitted as bound, so that their capacity is used."""
    hosts = live.state.usage.hosts
    requests = {pod_set.name: pod_set.requests for pod_set in queued_gang.gang.root.pod_sets()}
    source, number = queued_gang.gang.source, 0
    for pod_set in action.admission.pod_sets:
        for share in pod_set.assignment.shares if pod_set.assignment is not None else ():
            node = hosts.get(share.values[-1], share.values[-1])
            if node not in scheduled.labels:
                continue
            for _ in range(share.count):
                number += 1
                key = PodKey(source.namespace, f"{source.name}/{number}")
                pod = Pod(
                    key, f"{queued_gang.gang.uid}-{number}", {PODS: 1, **requests[pod_set.name]}, node=node
                )
                scheduled.controller.apply([PodSeen(pod)])


def _where(scheduled: Scheduled, result: ScheduledPlan, *, full: bool) -> list[str]:
    nodes = sorted(result.nodes.items())
    lines = [scheduled.where(result.nodes)]
    lines += [f"{node}: {counted(count, 'pod')}" for node, count in nodes[: None if full else HOSTS_MAX]]
    left = len(nodes) - HOSTS_MAX
    return lines if full or left <= 0 else [*lines, f"and {counted(left, 'more host')}; --full names them"]


def _record(one: ScheduledSubmission, result: ScheduledPlan, starts: bool, why: str) -> dict[str, Any]:
    ref: Ref = one.refs[0]
    record: dict[str, Any] = {
        "gang": one.title,
        "namespace": ref.namespace,
        "name": one.title.partition("/")[2],
        "admitted": starts,
        "nodes": dict(sorted(result.nodes.items())),
        "preempts": [str(pod.key) for pod in result.victims],
        "notes": list(one.notes),
    }
    return record if starts else record | {"message": why}
