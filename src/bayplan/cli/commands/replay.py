"""`bayplan replay`: replays a journal and checks that every decision is reproduced."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from bayplan.cli.config.options import takes_configuration
from bayplan.cli.config.output import echo
from bayplan.cli.live.replay import Replaying, ReplayResult, body_of
from bayplan.configuration.settings import Settings
from bayplan.dialects.kube.fields.closest_name import closest_names
from bayplan.dialects.kueue.status.rejection_messages import reason, rejection_message
from bayplan.explanation.text import counted
from bayplan.model.change import Change, GangSpecSeen, PodSeen, QueuedGangSeen
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.plan import (
    Admit,
    Bind,
    EvictGang,
    Plan,
    PreemptPod,
    ReportNotAdmitted,
    ReportUnschedulable,
)
from bayplan.model.pod import Pod
from bayplan.model.rejection import Rejection
from bayplan.runtime.core.deciding import Failure
from bayplan.runtime.core.journal import Damaged, EntryKind, JournalEntry
from bayplan.runtime.core.journal import replay as entries_of


@click.command()
@click.argument("journal", type=click.Path(exists=True, path_type=Path))
@click.option("--gang", help="Show only the decisions about the gang of this name.")
@click.option(
    "--only",
    "identity",
    metavar="ID",
    help="Replay up to the error with this id, and decide on its gang again.",
)
@click.option("--quiet", is_flag=True, help="Print only the result.")
@takes_configuration
def replay(journal: Path, gang: str | None, identity: str | None, quiet: bool, settings: Settings) -> None:
    """Replay the journal in a folder (or one file of it), and compare every decision.

    Exit status 1 if a decision differs: then the journal was written by another version or with another
    configuration, its start is missing, or there is a bug. With --only, exit status 1 if the error
    is not reproduced.
    """
    replaying = Replaying(settings)
    try:
        if identity is not None:
            sys.exit(0 if _only(replaying, journal, identity) else 1)
        seen, gangs = Counter[str](), set[str]()
        for entry in entries_of(journal):
            seen[entry.kind] += 1
            replaying.apply(entry)
            gangs |= _gangs(entry) if gang is not None else set()
            if not quiet and entry.kind is EntryKind.PLAN:
                _print_plan(body_of(entry, Plan), entry.sequence, gang)
    except (Damaged, OSError) as error:
        raise click.ClickException(str(error)) from None
    if not seen:
        raise click.ClickException(f"{journal} contains no journal entries")
    if gang is not None and gang not in gangs:
        raise click.ClickException(_unknown(gang, gangs))
    _sum_up(seen, replaying.result)
    sys.exit(1 if replaying.result.different else 0)


def _sum_up(seen: Counter[str], result: ReplayResult) -> None:
    always = (EntryKind.CHANGE, EntryKind.PLAN, EntryKind.OUTCOME)
    counts = [f"{seen[kind]} {kind}s" for kind in always]
    counts += [f"{seen[EntryKind.FAILURE]} failures"] if seen[EntryKind.FAILURE] else []
    echo(f"{', '.join(counts)}; {result.different} plans differ when decided again")
    if result.cut_short:
        echo(f"{result.cut_short} plans were cut short by decisionSeconds and are not compared")
    if result.not_reproduced:
        echo(f"{result.not_reproduced} errors are not reproduced; the decisions about all other gangs are")
    if result.not_applied:
        echo(f"{result.not_applied} changes cannot be applied; the state was rebuilt without them")


def _only(replaying: Replaying, journal: Path, identity: str) -> bool:
    """Whether the first error with this id is reproduced."""
    known: list[str] = []
    for entry in entries_of(journal):
        if entry.kind is EntryKind.FAILURE:
            failure: Failure = body_of(entry, Failure)
            if failure.id == identity:
                return _again(replaying, entry, failure)
            known.append(failure.id)
        replaying.apply(entry)
    ids = f"it has {', '.join(dict.fromkeys(known))}" if known else "it has none"
    raise click.ClickException(f"the journal has no error with the id {identity}; {ids}")


def _again(replaying: Replaying, entry: JournalEntry, failure: Failure) -> bool:
    gang = failure.gang
    about = f"{gang.kind} {gang.namespace}/{gang.name}"
    echo(f"entry {entry.sequence}: deciding on {about} failed: {failure.error}")
    plan, failures = replaying.decide(entry)
    repeated = next((one for one in failures if one.gang == gang), None)
    if repeated is None:
        echo(f"decided again, {about} does not fail; the recorded traceback is:")
        echo(failure.traceback.rstrip())
        _print_plan(plan, entry.sequence, gang.name)
        return False
    same = repeated.id == failure.id
    echo("decided again, the same error occurs:" if same else "decided again, another error occurs:")
    echo(repeated.traceback.rstrip())
    return same


def _gangs(entry: JournalEntry) -> set[str]:
    """The names of the gangs that an entry is about."""
    if entry.kind is EntryKind.PLAN:
        plan: Plan = body_of(entry, Plan)
        return {ref.name for action in plan.actions if (ref := getattr(action, "gang", None)) is not None}
    if entry.kind is not EntryKind.CHANGE:
        return set()
    match body_of(entry, Change):
        case PodSeen(Pod(gang=Ref(name=name))) | GangSpecSeen(GangSpec(source=Ref(name=name))):
            return {name}
        case QueuedGangSeen(queued_gang):
            return {queued_gang.gang.source.name}
    return set()


def _unknown(gang: str, known: set[str]) -> str:
    near = closest_names(gang, known)
    hint = (
        f"did you mean {' or '.join(near)}?" if near else f"it is about {counted(len(known), 'other gang')}"
    )
    return f"the journal has no entry about a gang {gang}; {hint}"


def _print_plan(plan: Plan, sequence: int, gang: str | None) -> None:
    bound: dict[str, list[str]] = {}
    for action in plan.actions:
        match action:
            case Bind(ref, _, node):
                bound.setdefault(ref.name, []).append(node)
            case ReportUnschedulable(ref, why, changed=True) if gang in (None, ref.name):
                echo(f"{sequence} {ref.name}: {_unschedulable(why)}")
            case PreemptPod(pod, ref) if gang in (None, ref.name):
                echo(f"{sequence} {ref.name}: preempts pod {pod.key}")
            case Admit() | EvictGang() | ReportNotAdmitted() if gang in (None, action.gang.name):
                echo(f"{sequence} {action.gang.name}: {_about(action)}")
    for name, nodes in bound.items():
        if gang in (None, name):
            echo(f"{sequence} {name}: {len(nodes)} pods on {', '.join(sorted(set(nodes)))}")


def _unschedulable(why: Rejection) -> str:
    if why.misfit is not None:
        return f"unschedulable, {why.misfit.code}, {why.misfit.fit} of {why.misfit.asked} fit"
    return f"unschedulable, {why.reason}, {why.fit} of {why.minimum} fit"


def _about(action: Admit | EvictGang | ReportNotAdmitted) -> str:
    match action:
        case Admit(_, admission):
            pods = sum(pod_set.count for pod_set in admission.pod_sets)
            return f"{pods} pods admitted by {admission.queue}"
        case EvictGang(_, why, by):
            return f"evicted ({why})" + (f" for {by.gang.source.name}" if by is not None else "")
        case ReportNotAdmitted(_, rejection):
            return f"not admitted: {reason(rejection.reason)}: {rejection_message(rejection)}"
