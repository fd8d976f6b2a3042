"""`bayplan plan`: a dry run of gangs that are about to be submitted. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bayplan.cli.commands.explain import admitted_first, queue_text, section_lines
from bayplan.cli.config.output import echo
from bayplan.cli.config.read_files import InputDocument, InputProblem, read_files
from bayplan.cli.live.forecast import ForecastResult, forecast
from bayplan.cli.live.gangs import inactive_text, named
from bayplan.cli.live.pending_explanation import Sections, pending_sections, request_lines
from bayplan.cli.live.state import ClusterTarget, Live, cluster_options
from bayplan.cli.planning.scheduled_plan import answer_parts, assume_admitted
from bayplan.cli.planning.scheduled_submissions import ScheduledSubmission
from bayplan.cli.planning.submissions import Submission, Submitted, submissions
from bayplan.cli.planning.what_if import ADD, ChangedCluster, WhatIf, changed_cluster, newly_started
from bayplan.cli.render.expected_start import record as expected_record
from bayplan.cli.render.expected_start import sentence
from bayplan.cli.render.placements import drawn
from bayplan.cli.render.tables import say, say_json
from bayplan.cli.starts.past_runs import PastRun, journal_option, runs_of
from bayplan.cli.starts.queued_gangs import queued_starts, starts_now
from bayplan.dialects.kueue.status.decisions import encode_admission
from bayplan.dialects.kueue.status.rejection_messages import reason
from bayplan.explanation.reasons import NOT_TRIED, few_words
from bayplan.explanation.text import amount_text, counted, importance, short_resources
from bayplan.model.change import QueuedGangSeen
from bayplan.model.plan import Admit, ReportNotAdmitted
from bayplan.model.queued_gang import Admission
from bayplan.model.rejection import RejectionReason
from bayplan.state.reports.queries import QueuePosition, positions

ADMITTED, BAD_INPUT, PENDING = 0, 2, 3


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """The answer for one gang, as text and as a JSON record."""

    status: int
    head: str
    sections: Sections
    record: dict[str, Any]
    nodes: Mapping[str, int] = field(default_factory=dict)  # where it would start: pods by node


@dataclass(frozen=True, slots=True)
class PlannedSubmissions:
    """The answers for all gangs of the files in their order, or what is wrong with the files."""

    answers: tuple[PlanAnswer, ...]
    problems: tuple[InputProblem, ...]
    skipped: tuple[str, ...] = ()

    @property
    def status(self) -> int:
        return max((answer.status for answer in self.answers), default=ADMITTED)

    def record(self) -> dict[str, Any]:
        """The object that -o json prints."""
        return {"gangs": [answer.record for answer in self.answers], "exitStatus": self.status}


@click.command()
@click.option(
    "-f", "--file", "files", multiple=True, metavar="FILE",
    help="YAML or JSON with Workloads, jobs, pod groups or pods; - is standard input. May be repeated.",
)  # fmt: skip
@click.option(
    "--add", multiple=True, metavar="HOSTS",
    help=f"What if there were more hosts: {ADD}; other amounts as cpu=64, like=NODE. May be repeated.",
)  # fmt: skip
@click.option(
    "--drain", multiple=True, metavar="NODE", help="What if a node and its pods were gone. May be repeated."
)
@click.option(
    "--set-quota", multiple=True, metavar="QUEUE/FLAVOR/RESOURCE=AMOUNT",
    help="What if a ClusterQueue had another nominal quota. May be repeated.",
)  # fmt: skip
@click.option(
    "--without", multiple=True, metavar="GANG", help="What if a gang and its pods were gone. May be repeated."
)
@cluster_options
@journal_option
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")
@click.option("--full", is_flag=True, help="Draw every host that gets a pod, one by one.")
@click.pass_context
def plan(
    ctx: click.Context,
    target: ClusterTarget,
    files: tuple[str, ...],
    add: tuple[str, ...],
    drain: tuple[str, ...],
    set_quota: tuple[str, ...],
    without: tuple[str, ...],
    journal: Path | None,
    output: str | None,
    full: bool,
) -> None:
    """Simulate the submission of gangs to a cluster as it is now, in the order of the files.

    A gang is a Workload or job that names a queue; a pod group; or a job or pod that names no queue and that
    the scheduler places. Queues and priority classes in the files are treated as if they existed.

    Shows whether and where each gang would start now, which gangs or pods it would preempt, or why it would
    be pending and when it is expected to start. With --add, --drain, --set-quota or --without the cluster is
    assumed to be changed, and the pending gangs that would start because of that are named. Nothing is
    written.

    Exit status: 0 all would start now, 3 some gang would be pending, 2 bad input, 1 the cluster does not
    answer.
    """
    what = WhatIf(add, drain, set_quota, without)
    if not files and not what:
        raise click.UsageError(
            "give gangs with -f, or a change with --add, --drain, --set-quota or --without"
        )
    documents, problems = read_files(files)
    if problems:
        ctx.exit(_report_problems(problems))
    with target.live() as current:
        changed = changed_cluster(current, what) if what else ChangedCluster(current, ())
        planned = PlannedSubmissions((), ())
        if files:
            past = list(runs_of(journal).runs.values())
            planned = plan_documents(changed.live, documents, past, full=full)
        if planned.problems:
            ctx.exit(_report_problems(planned.problems))
        for text in planned.skipped:
            echo(f"skipped: {text}", err=True)
        started, waiting = newly_started(current, changed.live) if what else ([], 0)
        if output == "json":
            effect = {"changes": list(changed.changes), "startsOfPending": started, "stillPending": waiting}
            say_json(planned.record() | (effect if what else {}))
        else:
            say(_lines(planned.answers))
            say(_effect_lines(changed.changes, started, waiting, bool(planned.answers)) if what else ())
    ctx.exit(planned.status)


def _effect_lines(
    changes: Iterable[str], started: Sequence[str], waiting: int, follows: bool
) -> Iterator[str]:
    if follows:
        yield ""
    yield "Assumed:"
    yield from (f"  {line}" for line in changes)
    yield f"Pending gangs that would start because of that: {len(started) or 'none'}"
    yield from (f"  {name}" for name in started)
    yield f"Gangs that would still be pending: {waiting}"


def plan_documents(
    current: Live, documents: Iterable[InputDocument], past: Sequence[PastRun] = (), *, full: bool
) -> PlannedSubmissions:
    """Simulate the submission of documents on a copy of the cluster's state."""
    live = current.copy()
    submitted = submissions(live, documents)
    if submitted.problems:
        return PlannedSubmissions((), submitted.problems)
    answers = tuple(_planned(live, submitted, one, past, full=full) for one in submitted.gangs)
    return PlannedSubmissions(answers, (), submitted.skipped)


def _report_problems(problems: Iterable[InputProblem]) -> int:
    for problem in problems:
        echo(str(problem), err=True)
    return BAD_INPUT


def _lines(answers: Iterable[PlanAnswer]) -> Iterator[str]:
    for number, answer in enumerate(answers):
        if number:
            yield ""
        yield answer.head
        yield from (f"  {line}" for line in section_lines(answer.sections))


def _planned(
    live: Live,
    submitted: Submitted,
    one: Submission | ScheduledSubmission,
    past: Sequence[PastRun],
    *,
    full: bool,
) -> PlanAnswer:
    """Plan one gang; the capacity it gets is not available to the gangs after it."""
    scheduled = submitted.scheduled
    if isinstance(one, ScheduledSubmission):
        assert scheduled is not None
        starts, head, sections, record = answer_parts(live, scheduled, one, full=full)
        return PlanAnswer(ADMITTED if starts else PENDING, head, sections, record, record["nodes"])
    answer, action = _answer(live, one, past, full=full)
    if scheduled is not None and action is not None:
        assume_admitted(live, scheduled, one.queued_gang, action)
    return answer


def _answer(
    live: Live, one: Submission, past: Sequence[PastRun], *, full: bool
) -> tuple[PlanAnswer, Admit | None]:
    """Add the gang to its queue, and simulate admission cycles until it is decided."""
    state, ref = live.state, one.queued_gang.gang.source
    queue = state.config.queue_of(one.queued_gang)
    state.apply(QueuedGangSeen(one.queued_gang))
    state.pending.wake(queue)  # one with equal requests may have been rejected
    position = positions(state).get(ref)
    supplies = state.usage.supplies()
    with live.progress.stage(f"planning {one.title}"):
        results = forecast(state, live.settings.profile, live.now, until=ref)
    result = results.get(ref)
    sections: Sections = {"requests": request_lines(live, one.queued_gang)}
    sections["queue"] = [queue_text(live, *one.queued_gang.namespace_queue, queue)]
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
    if result is not None and isinstance(result.action, Admit):
        admission = result.action.admission
        sections["assigned"] = _assigned(admission)
        picture = drawn(one.queued_gang.gang, admission, state.config.flavors, supplies, full=full)
        if picture:
            sections["placement"] = picture
        checks = result.action.checks
        record |= {"admitted": True, "admission": encode_admission(admission), "checks": list(checks)}
        then = f", and start after check {', '.join(checks)}" if checks else ""
        return PlanAnswer(
            ADMITTED, f"{one.title}: would be admitted now{then}", sections, record, _nodes(live, admission)
        ), result.action
    others = [gang for gang, other in results.items() if isinstance(other.action, Admit)]
    if first := admitted_first(live, others, ref, queue):
        sections["assumed to be admitted before it"] = [first]
    token, why = _why(live, queue, position, result)
    sections |= pending_sections(live, one.queued_gang, queue, result)
    record |= {"reason": token, "message": why, "position": position.position if position else None}
    record |= {
        "preempts": [named(eviction.gang) for eviction in result.victims] if result is not None else []
    }
    victims = result.victims if result is not None else ()
    expected = starts_now(live.now, victims) if victims else queued_starts(live, state, past).get(ref)
    record["expectedStart"] = expected_record(expected, live.now)
    if expected is not None:
        sections["expected start"] = [sentence(expected, live.now)]
    return PlanAnswer(PENDING, f"{one.title}: would be pending: {why}", sections, record), None


def _why(
    live: Live, queue: str, position: QueuePosition | None, result: ForecastResult | None
) -> tuple[str, str]:
    if result is not None and isinstance(result.action, ReportNotAdmitted):
        rejection = result.action.rejection
        inactive = inactive_text(live, queue) if rejection.reason is RejectionReason.CLOSED else ""
        return reason(rejection.reason), inactive or few_words(rejection)
    if position is not None and position.position > 1:
        where = f"{position.position} of {position.of}"
        return reason(RejectionReason.TO_BE_EVALUATED), f"behind {named(position.first)}, at position {where}"
    return reason(RejectionReason.TO_BE_EVALUATED), inactive_text(live, queue) or NOT_TRIED


def _nodes(live: Live, admission: Admission) -> dict[str, int]:
    """The nodes of an admission's placement, as far as it goes down to hosts, and the pods on each."""
    hosts, found = live.state.usage.hosts, dict[str, int]()
    for pod_set in admission.pod_sets:
        for share in pod_set.assignment.shares if pod_set.assignment is not None else ():
            node = hosts.get(share.values[-1], share.values[-1])
            if node in live.state.usage.nodes:
                found[node] = found.get(node, 0) + share.count
    return found


def _assigned(admission: Admission) -> list[str]:
    """Pods and flavors of each pod set."""
    lines = []
    for pod_set in admission.pod_sets:
        short = short_resources(pod_set.usage)
        parts = [
            f"{amount_text(name, pod_set.usage[name])} {short[name]} of {pod_set.flavors[name]}"
            for name in sorted(pod_set.flavors, key=importance)
        ]
        lines.append(
            f"{pod_set.name}: {counted(pod_set.count, 'pod')}, {', '.join(parts) or 'no quota needed'}"
        )
    return lines
