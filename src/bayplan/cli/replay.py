"""`bayplan replay`: folds a journal again and says whether every decision would be made the same way."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from bayplan.model.change import Change
from bayplan.model.plan import Bind, Plan, Refuse
from bayplan.model.profile import Profile
from bayplan.runtime.journal import Damaged, Entry, Kind
from bayplan.runtime.journal import replay as entries_of
from bayplan.runtime.loop import Settled, settle
from bayplan.scheduling.decide import decide
from bayplan.state.state import State


@click.command()
@click.argument("journal", type=click.Path(exists=True, path_type=Path))
@click.option("--gang", help="Show only what concerns this gang (its name).")
@click.option("--quiet", is_flag=True, help="Only the verdict.")
def replay(journal: Path, gang: str | None, quiet: bool) -> None:
    """Fold the journal in a folder (or one file of it) again, and decide again at every plan.

    Exit status 1 if a decision comes out differently: then the journal is of another version, is
    cut at its start, or there is a bug.
    """
    state, seen, different = State(), Counter[str](), 0
    try:
        for entry in entries_of(journal):
            seen[entry.kind] += 1
            different += not _fold(state, entry)
            if not quiet:
                _tell(entry, gang)
    except Damaged as trouble:
        raise click.ClickException(str(trouble)) from None
    counts = ", ".join(f"{seen[kind]} {kind}s" for kind in Kind)
    click.echo(f"{counts}; {different} plans differ when decided again")
    sys.exit(1 if different else 0)


def _fold(state: State, entry: Entry) -> bool:
    """Whether the entry is what we would have written."""
    match entry.kind:
        case Kind.CHANGE:
            state.apply(entry.body_as(Change))
        case Kind.OUTCOME:
            settle(state, entry.body_as(Settled), entry.now)
        case Kind.PLAN:
            recorded: Plan = entry.body_as(Plan)
            again = decide(state.snapshot(state.heads(entry.now)), Profile())
            state.assume(recorded, entry.now)
            return again == recorded
    return True


def _tell(entry: Entry, gang: str | None) -> None:
    if entry.kind is not Kind.PLAN:
        return
    plan: Plan = entry.body_as(Plan)
    bound: dict[str, list[str]] = {}
    for action in plan.actions:
        match action:
            case Bind(ref, _, node):
                bound.setdefault(ref.name, []).append(node)
            case Refuse(ref, misfit, news) if news and gang in (None, ref.name):
                click.echo(
                    f"{entry.sequence} {ref.name}: refused, {misfit.code}, {misfit.fit} of {misfit.asked} fit"
                )
    for name, nodes in bound.items():
        if gang in (None, name):
            click.echo(f"{entry.sequence} {name}: {len(nodes)} pods on {', '.join(sorted(set(nodes)))}")
