"""`bayplan replay`: folds a journal again and says whether every decision would be made the same way."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from bayplan.cli.config.options import takes_configuration
from bayplan.cli.config.output import echo
from bayplan.cli.live.replay import Replaying, ReplayResult, body_of
from bayplan.configuration.settings import Settings
from bayplan.dialects.kube.fields.closest_name import several_close
from bayplan.dialects.kueue.status.rejection_messages import reason, sentence
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
from bayplan.model.scheduling_rejection import SchedulingRejection
from bayplan.runtime.core.deciding import Failure
from bayplan.runtime.core.journal import Damaged, EntryKind, JournalEntry
from bayplan.runtime.core.journal import replay as entries_of


@click.command()
@click.argument("journal", type=click.Path(exists=True, path_type=Path))
@click.option("--gang", help="Show only what concerns this gang (its name).")
@click.option(
    "--only",
    "identity",
    metavar="ID",
    help="Fold up to the error with this id, and decide on its gang again.",
)
@click.option("--quiet", is_flag=True, help="Only the verdict.")
@takes_configuration
def replay(journal: Path, gang: str | None, identity: str | None, quiet: bool, settings: Settings) -> None:
    """Fold the journal in a folder (or one file of it) again, and decide again at every plan.

    Exit status 1 if a decision comes out differently: then the journal is of another version or
    configuration, is cut at its start, or there is a bug. With --only, exit status 1 if the error
    does not come out again.
    """
    replaying = Replaying(settings)
    try:
        if identity is not None:
            sys.exit(0 if _only(replaying, journal, identity) else 1)
        seen, gangs = Counter[str](), set[str]()
        for entry in entries_of(journal):
            seen[entry.kind] += 1
            replaying.fold(entry)
            gangs |= _gangs(entry) if gang is not None else set()
            if not quiet and entry.kind is EntryKind.PLAN:
                _tell_plan(body_of(entry, Plan), entry.sequence, gang)
    except (Damaged, OSError) as trouble:
        raise click.ClickException(str(trouble)) from None
    if not seen:
        raise click.ClickException(f"{journal} was to be read as a journal; there is no entry in it")
    if gang is not None and gang not in gangs:
        raise click.ClickException(_unknown(gang, gangs))
    _sum_up(seen, replaying.verdict)
    sys.exit(1 if replaying.verdict.different else 0)


def _sum_up(seen: Counter[str], verdict: ReplayResult) -> None:
    always = (EntryKind.CHANGE, EntryKind.PLAN, EntryKind.OUTCOME)
    counts = [f"{seen[kind]} {kind}s" for kind in always]
    counts += [f"{seen[EntryKind.FAILURE]} failures"] if seen[EntryKind.FAILURE] else []
    echo(f"{', '.join(counts)}; {verdict.different} plans differ when decided again")
    if verdict.cut_short:
        echo(f"{verdict.cut_short} plans were cut short by decisionSeconds and are not compared")
    if verdict.not_again:
        echo(f"{verdict.not_again} errors do not come out again; all other gangs are decided the same")
    if verdict.unfolded:
        echo(f"{verdict.unfolded} changes cannot be folded in; the state was built anew without them")


def _only(replaying: Replaying, journal: Path, identity: str) -> bool:
    """Whether the first error with this id comes out again."""
    known: list[str] = []
    for entry in entries_of(journal):
        if entry.kind is EntryKind.FAILURE:
            failure: Failure = body_of(entry, Failure)
            if failure.id == identity:
                return _again(replaying, entry, failure)
            known.append(failure.id)
        replaying.fold(entry)
    there = f"it has {', '.join(dict.fromkeys(known))}" if known else "it has none"
    raise click.ClickException(f"the journal has no error with the id {identity}; {there}")


def _again(replaying: Replaying, entry: JournalEntry, failure: Failure) -> bool:
    gang = failure.gang
    about = f"{gang.kind} {gang.namespace}/{gang.name}"
    echo(f"entry {entry.sequence}: deciding on {about} failed: {failure.error}")
    plan, failures = replaying.decide(entry)
    found = next((one for one in failures if one.gang == gang), None)
    if found is None:
        echo(f"decided again, {about} does not fail; the traceback recorded then was:")
        echo(failure.traceback.rstrip())
        _tell_plan(plan, entry.sequence, gang.name)
        return False
    same = found.id == failure.id
    echo("decided again, the same error comes out:" if same else "decided again, another error comes out:")
    echo(found.traceback.rstrip())
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
        case QueuedGangSeen(demand):
            return {demand.gang.source.name}
    return set()


def _unknown(gang: str, known: set[str]) -> str:
    near = several_close(gang, known)
    hint = (
        f"did you mean {' or '.join(near)}?" if near else f"it is about {counted(len(known), 'other gang')}"
    )
    return f"the journal has nothing about a gang {gang}; {hint}"


def _tell_plan(plan: Plan, sequence: int, gang: str | None) -> None:
    bound: dict[str, list[str]] = {}
    for action in plan.actions:
        match action:
            case Bind(ref, _, node):
                bound.setdefault(ref.name, []).append(node)
            case ReportUnschedulable(ref, why, news=True) if gang in (None, ref.name):
                echo(f"{sequence} {ref.name}: {_refused(why)}")
            case PreemptPod(pod, ref) if gang in (None, ref.name):
                echo(f"{sequence} {ref.name}: pod {pod.key} has to go")
            case Admit() | EvictGang() | ReportNotAdmitted() if gang in (None, action.gang.name):
                echo(f"{sequence} {action.gang.name}: {_about(action)}")
    for name, nodes in bound.items():
        if gang in (None, name):
            echo(f"{sequence} {name}: {len(nodes)} pods on {', '.join(sorted(set(nodes)))}")


def _refused(why: SchedulingRejection) -> str:
    if why.misfit is not None:
        return f"refused, {why.misfit.code}, {why.misfit.fit} of {why.misfit.asked} fit"
    return f"refused, {why.hindrance}, {why.fit} of {why.minimum} fit"


def _about(action: Admit | EvictGang | ReportNotAdmitted) -> str:
    match action:
        case Admit(_, admission):
            pods = sum(given.count for given in admission.given)
            return f"{pods} pods admitted by {admission.queue}"
        case EvictGang(_, why, by):
            return f"has to leave ({why})" + (f" for {by.gang.source.name}" if by is not None else "")
        case ReportNotAdmitted(_, refusal):
            return f"waits: {reason(refusal.token)}: {sentence(refusal)}"
