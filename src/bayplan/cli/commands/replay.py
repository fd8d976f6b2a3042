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
from bayplan.explanation.plan_lines import plan_lines
from bayplan.explanation.text import counted
from bayplan.model.change import Change, GangSpecSeen, PodSeen, QueuedGangSeen
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.plan import Plan
from bayplan.model.pod import Pod
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
    for line in plan_lines(plan):
        if gang in (None, line.gang.name):
            echo(f"{sequence} {line.gang.name}: {line.sentence}")
