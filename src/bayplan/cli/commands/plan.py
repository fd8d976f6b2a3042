"""`bayplan plan`: what would happen to gangs if they were submitted now. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from bayplan.cli.commands.explain import first_served, queue_text, told
from bayplan.cli.config.output import echo
from bayplan.cli.config.read_files import InputProblem, read_files
from bayplan.cli.live.forecast import ForecastResult, forecast
from bayplan.cli.live.gangs import closed_words, named
from bayplan.cli.live.pending_explanation import Sections, waiting_sections, wishes
from bayplan.cli.live.scheduled_plan import answer_parts, take_up
from bayplan.cli.live.scheduled_submissions import ScheduledSubmission
from bayplan.cli.live.state import ClusterTarget, Live, reaches_a_cluster
from bayplan.cli.live.submissions import Submission, Submitted, submissions
from bayplan.cli.render.placements import drawn
from bayplan.cli.render.tables import say, say_json
from bayplan.dialects.kueue.status.decisions import encode_admission
from bayplan.dialects.kueue.status.rejection_messages import reason
from bayplan.explanation.reasons import few_words
from bayplan.explanation.text import amount_text, counted, importance, short_resources
from bayplan.model.admission_rejection import AdmissionReason
from bayplan.model.change import QueuedGangSeen
from bayplan.model.plan import Admit, ReportNotAdmitted
from bayplan.model.queued_gang import Admission
from bayplan.state.reports.queries import QueuePosition, turns

ADMITTED, BAD_INPUT, WAITS = 0, 2, 3


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """What would become of one gang, told and for machines."""

    status: int
    head: str
    sections: Sections
    record: dict[str, Any]


@click.command()
@click.option(
    "-f", "--file", "files", multiple=True, required=True, metavar="FILE",
    help="YAML or JSON with Workloads, jobs, pod groups or pods; - is standard input. May be repeated.",
)  # fmt: skip
@reaches_a_cluster
@click.option("-o", "--output", type=click.Choice(["json"]), help="Everything for machines.")
@click.option("--full", is_flag=True, help="Draw every host that gets a pod, one by one.")
@click.pass_context
def plan(
    ctx: click.Context, target: ClusterTarget, files: tuple[str, ...], output: str | None, full: bool
) -> None:
    """Try out gangs on a cluster as it is now, each after the other, as if submitted in that order.

    A gang is a Workload or job that names a queue; a pod group; or a job or pod that names no queue and that
    the scheduler places. Queues and priority classes in the files count as if they were there.

    Says whether each gang would start at once and where, which gangs or pods would have to go for it, or why
    it would wait. Nothing is written.

    Exit status: 0 all would start now, 3 some gang would wait, 2 bad input, 1 the cluster does not answer.
    """
    documents, problems = read_files(files)
    if problems:
        ctx.exit(_refused(problems))
    with target.live() as found_live:
        live = found_live.imagined()
        submitted = submissions(live, documents)
        if submitted.problems:
            ctx.exit(_refused(submitted.problems))
        for words in submitted.skipped:
            echo(f"skipped: {words}", err=True)
        answers = [_tried(live, submitted, one, full=full) for one in submitted.gangs]
        status = max((answer.status for answer in answers), default=ADMITTED)
        if output == "json":
            say_json({"gangs": [answer.record for answer in answers], "exitStatus": status})
        else:
            say(_lines(answers))
    ctx.exit(status)


def _refused(problems: Iterable[InputProblem]) -> int:
    for problem in problems:
        echo(str(problem), err=True)
    return BAD_INPUT


def _lines(answers: list[PlanAnswer]) -> Iterator[str]:
    for number, answer in enumerate(answers):
        if number:
            yield ""
        yield answer.head
        yield from (f"  {line}" for line in told(answer.sections))


def _tried(
    live: Live, submitted: Submitted, one: Submission | ScheduledSubmission, *, full: bool
) -> PlanAnswer:
    """What would become of one gang; what it is given, those after it no longer find."""
    scheduled = submitted.scheduled
    if isinstance(one, ScheduledSubmission):
        assert scheduled is not None
        starts, head, sections, record = answer_parts(live, scheduled, one, full=full)
        return PlanAnswer(ADMITTED if starts else WAITS, head, sections, record)
    answer, action = _answer(live, one, full=full)
    if scheduled is not None and action is not None:
        take_up(live, scheduled, one.demand, action)
    return answer


def _answer(live: Live, one: Submission, *, full: bool) -> tuple[PlanAnswer, Admit | None]:
    """Put the gang in line and let rounds pass until it is decided upon."""
    state, ref = live.state, one.demand.gang.source
    queue = state.rules.queue_of(one.demand)
    state.apply(QueuedGangSeen(one.demand))
    state.lines.wake(queue)  # an earlier one of the same shape may have been refused: ask again
    turn = turns(state).get(ref)
    supplies = state.holdings.supplies()
    with live.progress.stage(f"trying out {one.title}"):
        fates = forecast(state, live.settings.profile, live.now, until=ref)
    fate = fates.get(ref)
    sections: Sections = {"asks for": wishes(live, one.demand)}
    sections["queue"] = [queue_text(live, *one.demand.entrance, queue)]
    if one.notes:
        sections["note"] = list(one.notes)
    record: dict[str, Any] = {
        "gang": one.title,
        "namespace": ref.namespace,
        "name": ref.name,
        "clusterQueue": queue,
        "admitted": False,
        "notes": list(one.notes),
    }
    if fate is not None and isinstance(fate.action, Admit):
        admission = fate.action.admission
        sections["is given"] = _given(admission)
        picture = drawn(one.demand.gang, admission, state.rules.flavors, supplies, full=full)
        if picture:
            sections["placed"] = picture
        checks = fate.action.checks
        record |= {"admitted": True, "admission": encode_admission(admission), "checks": list(checks)}
        then = f", and start after check {', '.join(checks)}" if checks else ""
        return PlanAnswer(
            ADMITTED, f"{one.title}: would be admitted now{then}", sections, record
        ), fate.action
    others = [gang for gang, other in fates.items() if isinstance(other.action, Admit)]
    if first := first_served(live, others, ref, queue):
        sections["counted as admitted before it"] = [first]
    token, why = _why(live, queue, turn, fate)
    sections |= waiting_sections(live, one.demand, queue, fate)
    record |= {"reason": token, "message": why, "position": turn.position if turn else None}
    record |= {"preempts": [named(eviction.gang) for eviction in fate.victims] if fate is not None else []}
    return PlanAnswer(WAITS, f"{one.title}: would wait: {why}", sections, record), None


def _why(live: Live, queue: str, turn: QueuePosition | None, fate: ForecastResult | None) -> tuple[str, str]:
    if fate is not None and isinstance(fate.action, ReportNotAdmitted):
        refusal = fate.action.refusal
        closed = closed_words(live, queue) if refusal.token is AdmissionReason.CLOSED else ""
        return reason(refusal.token), closed or few_words(refusal)
    if turn is not None and turn.position > 1:
        where = f"{turn.position} of {turn.of}"
        return reason(AdmissionReason.TO_BE_EVALUATED), f"behind {named(turn.first)}, at position {where}"
    return reason(AdmissionReason.TO_BE_EVALUATED), closed_words(live, queue) or "its turn does not come now"


def _given(admission: Admission) -> list[str]:
    """Pods and flavors, pod set by pod set."""
    lines = []
    for given in admission.given:
        short = short_resources(given.usage)
        parts = [
            f"{amount_text(name, given.usage[name])} {short[name]} of {given.flavors[name]}"
            for name in sorted(given.flavors, key=importance)
        ]
        lines.append(f"{given.name}: {counted(given.count, 'pod')}, {', '.join(parts) or 'no quota needed'}")
    return lines
