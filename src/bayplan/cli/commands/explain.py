"""`bayplan explain`: one gang's story, from its queue to its place or to the reason why it has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import click

from bayplan.cli.live.find_gang import find, workload_of
from bayplan.cli.live.gangs import INACTIVE, ClusterOutlook, GangFacts, named, outlook, owner_of
from bayplan.cli.live.list_gangs import flavors, gang_records
from bayplan.cli.live.list_queues import cohort_path
from bayplan.cli.live.pending_explanation import Sections, waiting_sections, wishes
from bayplan.cli.live.state import ClusterTarget, Live, Object, event_time, events_about, reaches_a_cluster
from bayplan.cli.render.numa import drawn as drawn_zones
from bayplan.cli.render.placements import drawn
from bayplan.cli.render.tables import age, moment, say, say_json, table
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.decode.events import OVER
from bayplan.dialects.kueue.decode.workloads import demand as read_demand
from bayplan.dialects.kueue.fields.hints import workload_hints
from bayplan.dialects.kueue.status.conditions import ADMITTED, FINISHED, condition_of, is_true
from bayplan.explanation.text import counted
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, ReportNotAdmitted

EVENTS_MAX = 10
NO_ZONES = "no node reports any"
NAMES_MAX = 8


@click.command("explain")
@click.argument("gang", metavar="[NAMESPACE/]NAME")
@reaches_a_cluster
@click.option("-o", "--output", type=click.Choice(["json"]), help="Everything for machines.")
@click.option("--full", is_flag=True, help="Draw every host that has a pod of the gang, one by one.")
@click.option("--zones", is_flag=True, help="Draw the zones of the nodes that it runs on or would start on.")
def explain_gang(target: ClusterTarget, gang: str, output: str | None, full: bool, zones: bool) -> None:
    """Tell why a gang waits, or where it runs.

    NAME is that of a Workload, a pod group, a job, or a pod, which stands for its gang. If objects of
    several kinds have it, put the kind before it: ml/job/train.

    Of a gang in a queue it is told what was tried flavor by flavor, where the gang nearly fits, which gangs
    hold that place, and the least that would get it admitted. Nothing is changed.
    """
    with target.live() as live:
        search = find(live, gang)
        if search.found.workload is not None:
            _explain_queued(live, search.found.workload, output, full=full, zones=zones)
            return
        assert search.scheduled is not None
        from bayplan.cli.live.scheduled_explanation import scheduled_story  # noqa: PLC0415 — gangs of queues do without

        story, record = scheduled_story(live, search.scheduled, search.found, full=full, zones=zones)
        if output == "json":
            say_json({"gang": gang, **record, "story": story})
        else:
            say(story)


def _explain_queued(live: Live, ref: Ref, output: str | None, *, full: bool, zones: bool) -> None:
    """A gang that asks for quota."""
    workload = live.workloads[ref]
    seen = outlook(live)
    facts = seen.find(ref)
    head = _over(ref, workload, live) if facts is None else _head(live, facts)
    sections = {} if facts is None else _sections(live, facts, seen, full=full)
    if zones and facts is not None:
        sections["zones"] = _zones(live, facts)
    if hints := workload_hints(workload, live.levels()):
        sections["note"] = hints
    sections |= _past(live, ref, workload)
    if output == "json":
        _say_json(live, ref, facts, head, sections)
    else:
        say([*head, *told(sections)])


def _zones(live: Live, facts: GangFacts) -> list[str]:
    """The zones of the hosts that the gang has, or would be given; of all hosts if there are none."""
    admission = facts.demand.admission
    if admission is None and facts.fate is not None and isinstance(facts.fate.action, Admit):
        admission = facts.fate.action.admission
    places = [given.place for given in admission.given if given.place is not None] if admission else []
    hosts = {share.values[-1] for place in places for share in place.shares}
    nodes = {live.state.holdings.hosts.get(host, host) for host in hosts}
    known = live.state.zones.book.heard
    chosen = sorted(nodes & live.state.holdings.nodes.keys()) or sorted(known)
    return drawn_zones(chosen, known, {}) if known else [NO_ZONES]


def told(sections: Sections) -> Iterator[str]:
    """Sections under their titles, indented."""
    for title, lines in sections.items():
        if len(lines) == 1:
            yield f"{title}: {lines[0]}"
        else:
            yield f"{title}:"
            yield from (f"  {line}" for line in lines)


def queue_text(live: Live, namespace: str, entrance: str, queue: str) -> str:
    """The way from the LocalQueue to the root of the cohorts."""
    cohort = cohort_path(live, queue)
    above = f", cohort {cohort}" if cohort else ""
    way = f"LocalQueue {namespace}/{entrance}" if entrance else "none"
    return f"{way} → ClusterQueue {queue}{above}" if queue else way


def _head(live: Live, facts: GangFacts) -> list[str]:
    demand, source = facts.demand, facts.demand.gang.source
    owner = f", for {facts.owner.replace('/', ' ', 1)}" if facts.owner else ""
    queue = demand.admission.queue if demand.admission is not None else facts.standing.queue
    lines = [f"Workload {named(source)}{owner}: {facts.state}"]
    lines += [f"  {line}" for line in wishes(live, demand)]
    lines.append(f"queue: {queue_text(live, *demand.entrance, queue)}")
    if facts.turn is not None:
        strict = facts.standing.queue in live.state.rules.queues and (
            live.state.rules.queues[facts.standing.queue].strict
        )
        rule = ", and nobody may overtake" if strict else ""
        waited = age(live.now - demand.queued)
        place = f"{facts.turn.position} of {facts.turn.of}{rule}"
        lines.append(f"position: {place}; priority {demand.gang.priority}, waiting for {waited}")
    if facts.why:
        lines.append(f"reason: {facts.why} ({facts.token})" if facts.token else f"reason: {facts.why}")
    return lines


def _sections(live: Live, facts: GangFacts, seen: ClusterOutlook, *, full: bool) -> Sections:
    demand, queue = facts.demand, facts.standing.queue
    if demand.admission is not None:
        return _place(live, facts, seen, full=full)
    found: Sections = {}
    if facts.state == INACTIVE:
        return found
    if facts.fate is not None and isinstance(facts.fate.action, Admit):
        return _to_come(live, facts, facts.fate.action, full=full)
    if first := first_served(seen.then, seen.next, demand.gang.source, queue):
        found["counted as admitted before it"] = [first]
    if facts.fate is None and facts.turn is not None and facts.turn.position > 1:
        found["the first in line"] = [_first(live, facts.turn.first)]
    return found | waiting_sections(seen.then, demand, queue, facts.fate)


def _to_come(live: Live, facts: GangFacts, action: Admit, *, full: bool) -> Sections:
    """A gang that nothing stands in the way of, except that nobody has decided yet."""
    rules, supplies = live.state.rules.flavors, live.state.holdings.supplies()
    found = waiting_sections(live, facts.demand, facts.standing.queue, facts.fate)
    if picture := drawn(facts.demand.gang, action.admission, rules, supplies, full=full):
        found["where it would go"] = picture
    return found


def first_served(then: Live, refs: Iterable[Ref], but: Ref, queue: str) -> str:
    """Gangs whose turn comes at once and that take quota or room before others are looked at."""
    books, holdings = then.state.holdings.books().queues, then.state.holdings.by_gang
    mine = books[queue].root() if queue in books else None
    names = [
        named(ref)
        for ref in refs
        if ref != but
        and ref in holdings
        and (
            holdings[ref].spots
            or (holdings[ref].queue in books and books[holdings[ref].queue].root() is mine)
        )
    ]
    more = f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
    return ", ".join(names[:NAMES_MAX]) + more


def _first(live: Live, ref: Ref) -> str:
    standing = live.state.lines.standings[ref]
    gang = standing.demand.gang
    pods = counted(sum(pod_set.count for pod_set in gang.root.pod_sets()), "pod")
    return f"{named(ref)}, {pods}, priority {gang.priority}; see: bayplan explain {named(ref)}"


def _place(live: Live, facts: GangFacts, seen: ClusterOutlook, *, full: bool) -> Sections:
    demand, admission = facts.demand, facts.demand.admission
    assert admission is not None
    workload = live.workloads.get(demand.gang.source, {})
    since = (condition_of(workload, ADMITTED) or {}).get("lastTransitionTime", "")
    found: Sections = {"has quota since": [_since(live, demand.reserved)]}
    if demand.admitted and since:
        found["admitted since"] = [_since(live, seconds(since))]
    found["flavors"] = [", ".join(flavors(demand)) or "none"]
    if facts.where:
        found["where"] = [facts.where]
    if running := _running(live, demand.gang.source, full=full):
        found["its pods run on"] = running
    picture = drawn(
        demand.gang, admission, live.state.rules.flavors, live.state.holdings.supplies(), full=full
    )
    if picture:
        found["its pods, and what is free beside them"] = picture
    if facts.fate is not None and isinstance(facts.fate.action, ReportNotAdmitted):
        found |= waiting_sections(seen.then, demand, admission.queue, facts.fate)
    return found


def _running(live: Live, ref: Ref, *, full: bool) -> list[str]:
    """The hosts that its pods have, whoever bound them, and since when the first has been running."""
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


def _over(ref: Ref, workload: Object, live: Live) -> list[str]:
    """A Workload that asks for nothing any more, or that cannot be read."""
    finished = condition_of(workload, FINISHED)
    if finished is not None and is_true(workload, FINISHED):
        at = seconds(str(finished.get("lastTransitionTime", "")))
        why = f"reason: {finished.get('message') or finished.get('reason', '')}"
        return [f"Workload {named(ref)}: over", why, f"since: {_since(live, at)}"]
    field = Field(workload)
    read_demand(field)
    problems = [f"  {error}" for error in field.errors]
    return [f"Workload {named(ref)}: cannot be understood", *problems]


def _past(live: Live, ref: Ref, workload: Object) -> Sections:
    """What the API says about it: conditions, and the latest events of the Workload and its job."""
    found: Sections = {}
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
        found["conditions"] = table(("TYPE", "STATUS", "REASON", "AGO", "MESSAGE"), rows)
    kind, _, job = owner_of(workload).partition("/")
    about = {("Workload", ref.name)} | ({(kind, job)} if job else set())
    events = events_about(live, ref.namespace, about)[-EVENTS_MAX:]
    if events:
        found["events"] = table(("AGO", "REASON", "MESSAGE"), [_event(live, one) for one in events])
    return found


def _event(live: Live, event: Object) -> tuple[str, str, str]:
    at, message = event_time(event), event.get("message") or event.get("note")
    return age(live.now - seconds(at)) if at else "", str(event.get("reason", "")), str(message or "")


def _ago(live: Live, condition: Object) -> str:
    at = condition.get("lastTransitionTime")
    return age(live.now - seconds(at)) if at else ""


def _say_json(live: Live, ref: Ref, facts: GangFacts | None, head: list[str], sections: Sections) -> None:
    record: dict[str, Any] = {"namespace": ref.namespace, "name": ref.name, "state": "over"}
    if facts is not None:
        record = gang_records(live, [facts])[0]
    say_json(record | {"story": {"gang": head} | sections})
