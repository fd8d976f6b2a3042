"""`bayplan explain`: the queue, state and placement of one gang, or the reason why it is pending."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from bayplan.cli.live.find_gang import GangQuery, find_workload, parse_query, workload_of
from bayplan.cli.live.gangs import INACTIVE, PENDING, ClusterOutlook, GangFacts, named, outlook, owner_of
from bayplan.cli.live.list_gangs import Starts, flavors, gang_records
from bayplan.cli.live.list_queues import cohort_path
from bayplan.cli.live.pending_explanation import Sections, pending_sections, request_lines
from bayplan.cli.live.state import ClusterTarget, Live, Object, cluster_options, event_time, events_about
from bayplan.cli.render.expected_start import sentence
from bayplan.cli.render.numa import drawn as drawn_zones
from bayplan.cli.render.placements import drawn
from bayplan.cli.render.tables import age, moment, say, say_json, table
from bayplan.cli.starts.past_runs import journal_option, runs_of
from bayplan.cli.starts.queued_gangs import outlook_starts
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.decode.events import OVER
from bayplan.dialects.kueue.decode.workloads import decode_workload as read_queued_gang
from bayplan.dialects.kueue.fields.hints import workload_hints
from bayplan.dialects.kueue.status.conditions import ADMITTED, FINISHED, condition_of, is_true
from bayplan.explanation.text import counted
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, ReportNotAdmitted

EVENTS_MAX = 10
NO_ZONES = "no node reports NUMA zones"
NAMES_MAX = 8


@click.command("explain")
@click.argument("gang", metavar="[NAMESPACE/]NAME")
@cluster_options
@journal_option
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")
@click.option("--full", is_flag=True, help="Draw every host that has a pod of the gang, one by one.")
@click.option(
    "--zones", is_flag=True, help="Draw the NUMA zones of the nodes that it runs on or would start on."
)
def explain_gang(
    target: ClusterTarget, gang: str, journal: Path | None, output: str | None, full: bool, zones: bool
) -> None:
    """Explain why a gang is pending, or where it runs.

    NAME is that of a Workload, a pod group or a job, or of a pod of the gang. If objects of several kinds
    have that name, put the kind before it: ml/job/train.

    For a queued gang it shows what was tried flavor by flavor, the domain that came closest, the gangs that
    use it, the smallest change that would get the gang admitted, and when it is expected to start. Nothing
    is changed.
    """
    with target.live() as live:
        query = parse_query(live, gang)
        workload = find_workload(live, query)
        if workload is not None:
            runs = runs_of(journal).runs.values()
            lines, record = explain_queued(
                live, workload, lambda cluster: outlook_starts(live, cluster, runs), full=full, zones=zones
            )
        else:
            lines, record = _explain_scheduled(live, query, journal, full=full, zones=zones)
        if output == "json":
            say_json(record)
        else:
            say(lines)


Explained = tuple[list[str], dict[str, Any]]
"""An explanation as lines, and as the object that -o json prints."""


def _explain_scheduled(
    live: Live, query: GangQuery, journal: Path | None, *, full: bool, zones: bool
) -> Explained:
    """A gang without a Workload. Imported here: a queued gang is explained without the scheduler."""
    from bayplan.cli.live.scheduled_explanation import explain_scheduled, find_scheduled  # noqa: PLC0415
    from bayplan.cli.live.scheduled_state import read_scheduled  # noqa: PLC0415
    from bayplan.cli.starts.scheduled_gangs import scheduled_forecast  # noqa: PLC0415

    scheduled = read_scheduled(live)
    found = find_scheduled(live, scheduled, query)
    lines, record = explain_scheduled(
        live,
        scheduled,
        found,
        lambda: scheduled_forecast(live, scheduled, runs_of(journal).pod_runs).starts(),
        full=full,
        zones=zones,
    )
    return lines, {**record, "explanation": [{"title": "gang", "lines": lines}]}


def explain_queued(
    live: Live, ref: Ref, forecast: Callable[[ClusterOutlook], Starts], *, full: bool, zones: bool
) -> Explained:
    """A gang that has a Workload; `forecast` is asked for its expected start if it waits."""
    workload = live.workloads[ref]
    cluster = outlook(live)
    facts = cluster.find(ref)
    starts = forecast(cluster) if facts is not None and facts.state == PENDING else {}
    head = _finished(ref, workload, live) if facts is None else _head(live, facts)
    if ref in starts:
        head.append(f"expected start: {sentence(starts[ref], live.now)}")
    sections = {} if facts is None else _sections(live, facts, cluster, full=full)
    if zones and facts is not None:
        sections["zones"] = _zones(live, facts)
    if hints := workload_hints(workload, live.levels()):
        sections["note"] = hints
    sections |= _history(live, ref, workload)
    return [*head, *section_lines(sections)], _record(live, ref, facts, starts, head, sections)


def _zones(live: Live, facts: GangFacts) -> list[str]:
    """The NUMA zones of the hosts that the gang has or would get; of all hosts if there are none."""
    admission = facts.queued_gang.admission
    if admission is None and facts.forecast is not None and isinstance(facts.forecast.action, Admit):
        admission = facts.forecast.action.admission
    places = (
        [pod_set.assignment for pod_set in admission.pod_sets if pod_set.assignment is not None]
        if admission
        else []
    )
    hosts = {share.values[-1] for place in places for share in place.shares}
    nodes = {live.state.usage.hosts.get(host, host) for host in hosts}
    known = live.state.numa.cache.reports
    chosen = sorted(nodes & live.state.usage.nodes.keys()) or sorted(known)
    return drawn_zones(chosen, known, {}) if known else [NO_ZONES]


def section_lines(sections: Sections) -> Iterator[str]:
    """The sections as lines: each title, and its lines below it, indented."""
    for title, lines in sections.items():
        if len(lines) == 1:
            yield f"{title}: {lines[0]}"
        else:
            yield f"{title}:"
            yield from (f"  {line}" for line in lines)


def queue_text(live: Live, namespace: str, local_queue: str, queue: str) -> str:
    """The path from the LocalQueue to the root cohort."""
    cohort = cohort_path(live, queue)
    parents = f", cohort {cohort}" if cohort else ""
    path = f"LocalQueue {namespace}/{local_queue}" if local_queue else "none"
    return f"{path} → ClusterQueue {queue}{parents}" if queue else path


def _head(live: Live, facts: GangFacts) -> list[str]:
    queued_gang, source = facts.queued_gang, facts.queued_gang.gang.source
    owner = f", for {facts.owner.replace('/', ' ', 1)}" if facts.owner else ""
    queue = queued_gang.admission.queue if queued_gang.admission is not None else facts.entry.queue
    lines = [f"Workload {named(source)}{owner}: {facts.state}"]
    lines += [f"  {line}" for line in request_lines(live, queued_gang)]
    lines.append(f"queue: {queue_text(live, *queued_gang.namespace_queue, queue)}")
    if facts.position is not None:
        strict = facts.entry.queue in live.state.config.queues and (
            live.state.config.queues[facts.entry.queue].strict
        )
        rule = " (StrictFIFO)" if strict else ""
        pending = age(live.now - queued_gang.queued)
        place = f"{facts.position.position} of {facts.position.of}{rule}"
        lines.append(f"position: {place}; priority {queued_gang.gang.priority}, pending for {pending}")
    if facts.why:
        lines.append(f"reason: {facts.why} ({facts.token})" if facts.token else f"reason: {facts.why}")
    return lines


def _sections(live: Live, facts: GangFacts, cluster: ClusterOutlook, *, full: bool) -> Sections:
    queued_gang, queue = facts.queued_gang, facts.entry.queue
    if queued_gang.admission is not None:
        return _placement(live, facts, cluster, full=full)
    sections: Sections = {}
    if facts.state == INACTIVE:
        return sections
    if facts.forecast is not None and isinstance(facts.forecast.action, Admit):
        return _next_admission(live, facts, facts.forecast.action, full=full)
    if first := admitted_first(cluster.then, cluster.next, queued_gang.gang.source, queue):
        sections["assumed to be admitted before it"] = [first]
    if facts.forecast is None and facts.position is not None and facts.position.position > 1:
        sections["head of the queue"] = [_first(live, facts.position.first)]
    return sections | pending_sections(cluster.then, queued_gang, queue, facts.forecast)


def _next_admission(live: Live, facts: GangFacts, action: Admit, *, full: bool) -> Sections:
    """A gang that would be admitted in the next cycle."""
    rules, supplies = live.state.config.flavors, live.state.usage.supplies()
    sections = pending_sections(live, facts.queued_gang, facts.entry.queue, facts.forecast)
    if picture := drawn(facts.queued_gang.gang, action.admission, rules, supplies, full=full):
        sections["where it would be placed"] = picture
    return sections


def admitted_first(then: Live, refs: Iterable[Ref], other_than: Ref, queue: str) -> str:
    """The gangs that would be admitted first and use quota of the same cohort, or capacity of nodes."""
    accounts, holdings = then.state.usage.quota_tree().queues, then.state.usage.by_gang
    root = accounts[queue].root() if queue in accounts else None
    names = [
        named(ref)
        for ref in refs
        if ref != other_than
        and ref in holdings
        and (
            holdings[ref].placements
            or (holdings[ref].queue in accounts and accounts[holdings[ref].queue].root() is root)
        )
    ]
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def _first(live: Live, ref: Ref) -> str:
    gang = live.state.pending.entries[ref].queued_gang.gang
    pods = counted(sum(pod_set.count for pod_set in gang.root.pod_sets()), "pod")
    return f"{named(ref)}, {pods}, priority {gang.priority}; see: bayplan explain {named(ref)}"


def _placement(live: Live, facts: GangFacts, cluster: ClusterOutlook, *, full: bool) -> Sections:
    queued_gang, admission = facts.queued_gang, facts.queued_gang.admission
    assert admission is not None
    workload = live.workloads.get(queued_gang.gang.source, {})
    since = (condition_of(workload, ADMITTED) or {}).get("lastTransitionTime", "")
    sections: Sections = {"quota reserved since": [_since(live, queued_gang.reserved)]}
    if queued_gang.admitted and since:
        sections["admitted since"] = [_since(live, seconds(since))]
    sections["flavors"] = [", ".join(flavors(queued_gang)) or "none"]
    if facts.where:
        sections["where"] = [facts.where]
    if running := _running(live, queued_gang.gang.source, full=full):
        sections["pods run on"] = running
    picture = drawn(
        queued_gang.gang, admission, live.state.config.flavors, live.state.usage.supplies(), full=full
    )
    if picture:
        sections["placement"] = picture
    if facts.forecast is not None and isinstance(facts.forecast.action, ReportNotAdmitted):
        sections |= pending_sections(cluster.then, queued_gang, admission.queue, facts.forecast)
    return sections


def _running(live: Live, ref: Ref, *, full: bool) -> list[str]:
    """The nodes of its bound pods, and since when the first has been running."""
    pods = [
        wire
        for wire in live.listed(PODS_KIND)
        if wire.spec.node_name and wire.status.phase not in OVER and workload_of(live, wire) == ref
    ]
    nodes = Counter(wire.spec.node_name or "" for wire in pods)
    shown = sorted(nodes)[: None if full else NAMES_MAX]
    more = [f"and {len(nodes) - len(shown)} more; --full names all"] if len(shown) < len(nodes) else []
    lines = [", ".join([*(f"{node} ({counted(nodes[node], 'pod')})" for node in shown), *more])]
    started = [seconds(wire.status.start_time) for wire in pods if wire.status.start_time]
    if started:
        lines.append(f"since {_since(live, min(started))}")
    return lines if pods else []


def _since(live: Live, at: float) -> str:
    return f"{moment(at)}, {age(live.now - at)} ago" if at else "unknown"


def _finished(ref: Ref, workload: Object, live: Live) -> list[str]:
    """A Workload that is finished, or that cannot be decoded."""
    finished = condition_of(workload, FINISHED)
    if finished is not None and is_true(workload, FINISHED):
        at = seconds(str(finished.get("lastTransitionTime", "")))
        why = f"reason: {finished.get('message') or finished.get('reason', '')}"
        return [f"Workload {named(ref)}: finished", why, f"since: {_since(live, at)}"]
    field = Field(workload)
    read_queued_gang(field)
    problems = [f"  {error}" for error in field.errors]
    return [f"Workload {named(ref)}: invalid", *problems]


def _history(live: Live, ref: Ref, workload: Object) -> Sections:
    """The conditions of the Workload, and the latest events of the Workload and its job."""
    sections: Sections = {}
    conditions = (workload.get("status") or {}).get("conditions") or []
    if conditions:
        rows = [
            (
                one.get("type"),
                one.get("status"),
                one.get("reason", ""),
                _ago(live, one),
                one.get("message", ""),
            )
            for one in conditions
        ]
        sections["conditions"] = table(("TYPE", "STATUS", "REASON", "AGO", "MESSAGE"), rows)
    kind, _, job = owner_of(workload).partition("/")
    about = {("Workload", ref.name)} | ({(kind, job)} if job else set())
    events = events_about(live, ref.namespace, about)[-EVENTS_MAX:]
    if events:
        sections["events"] = table(("AGO", "REASON", "MESSAGE"), [_event(live, one) for one in events])
    return sections


def _event(live: Live, event: Object) -> tuple[str, str, str]:
    at, message = event_time(event), event.get("message") or event.get("note")
    return age(live.now - seconds(at)) if at else "", str(event.get("reason", "")), str(message or "")


def _ago(live: Live, condition: Object) -> str:
    at = condition.get("lastTransitionTime")
    return age(live.now - seconds(at)) if at else ""


def _record(
    live: Live, ref: Ref, facts: GangFacts | None, starts: Starts, head: list[str], sections: Sections
) -> dict[str, Any]:
    record: dict[str, Any] = {"namespace": ref.namespace, "name": ref.name, "state": "finished"}
    if facts is not None:
        record = gang_records(live, [facts], starts)[0]
    titled = {"gang": head} | sections
    explanation = [{"title": title, "lines": lines} for title, lines in titled.items()]
    return record | {"explanation": explanation}
