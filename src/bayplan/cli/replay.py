"""`bayplan replay`: folds a journal again and says whether every decision would be made the same way."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from bayplan.cli.configured import takes_configuration
from bayplan.cli.settings import Settings
from bayplan.dialects.kueue.refusals import reason, sentence
from bayplan.model.change import Change
from bayplan.model.plan import Admit, Bind, Decline, Displace, Evict, Plan, Refuse
from bayplan.model.standstill import Standstill
from bayplan.runtime.admission_role import AdmissionRole
from bayplan.runtime.grouper_role import GrouperRole
from bayplan.runtime.jobs_role import JobsRole
from bayplan.runtime.journal import Damaged, Entry, Kind
from bayplan.runtime.journal import replay as entries_of
from bayplan.runtime.node_health_role import NodeHealthRole
from bayplan.runtime.provisioning_role import ProvisioningRole
from bayplan.runtime.roles import Role, Settled
from bayplan.runtime.scheduler_role import SchedulerRole
from bayplan.runtime.ungating_role import UngatingRole


@click.command()
@click.argument("journal", type=click.Path(exists=True, path_type=Path))
@click.option("--gang", help="Show only what concerns this gang (its name).")
@click.option("--quiet", is_flag=True, help="Only the verdict.")
@takes_configuration
def replay(journal: Path, gang: str | None, quiet: bool, settings: Settings) -> None:
    """Fold the journal in a folder (or one file of it) again, and decide again at every plan.

    Exit status 1 if a decision comes out differently: then the journal is of another version or
    configuration, is cut at its start, or there is a bug.
    """
    played: tuple[Role, ...] = (
        SchedulerRole(profiles=settings.profiles, zone_care=settings.zone_care),
        AdmissionRole(settings.profile, zone_care=settings.zone_care),
        ProvisioningRole(),
        UngatingRole(),
        JobsRole(),
        NodeHealthRole(),
        GrouperRole(settings.profiles, settings.grouper),
    )
    roles = {role.name: role for role in played}
    seen, different = Counter[str](), 0
    try:
        for entry in entries_of(journal):
            seen[entry.kind] += 1
            different += not _fold(roles[entry.role or SchedulerRole.name], entry)
            if not quiet:
                _tell(entry, gang)
    except Damaged as trouble:
        raise click.ClickException(str(trouble)) from None
    counts = ", ".join(f"{seen[kind]} {kind}s" for kind in Kind)
    click.echo(f"{counts}; {different} plans differ when decided again")
    sys.exit(1 if different else 0)


def _fold(role: Role, entry: Entry) -> bool:
    """Whether the entry is what we would have written."""
    match entry.kind:
        case Kind.CHANGE:
            role.fold([entry.body_as(Change)])
        case Kind.OUTCOME:
            role.settle(entry.body_as(Settled), entry.now)
        case Kind.PLAN:
            recorded: Plan = entry.body_as(Plan)
            view = role.look(entry.now)
            again = Plan() if view is None else role.decide(view, entry.now)
            role.assume(recorded, entry.now)
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
            case Refuse(ref, why, news=True) if gang in (None, ref.name):
                click.echo(f"{entry.sequence} {ref.name}: {_refused(why)}")
            case Displace(pod, ref) if gang in (None, ref.name):
                click.echo(f"{entry.sequence} {ref.name}: pod {pod.key} has to go")
            case Admit() | Evict() | Decline() if gang in (None, action.gang.name):
                click.echo(f"{entry.sequence} {action.gang.name}: {_about(action)}")
    for name, nodes in bound.items():
        if gang in (None, name):
            click.echo(f"{entry.sequence} {name}: {len(nodes)} pods on {', '.join(sorted(set(nodes)))}")


def _refused(why: Standstill) -> str:
    if why.misfit is not None:
        return f"refused, {why.misfit.code}, {why.misfit.fit} of {why.misfit.asked} fit"
    return f"refused, {why.hindrance}, {why.fit} of {why.minimum} fit"


def _about(action: Admit | Evict | Decline) -> str:
    match action:
        case Admit(_, admission):
            pods = sum(given.count for given in admission.given)
            return f"{pods} pods admitted by {admission.queue}"
        case Evict(_, why, by):
            return f"has to leave ({why})" + (f" for {by.gang.source.name}" if by is not None else "")
        case Decline(_, refusal):
            return f"waits: {reason(refusal.token)}: {sentence(refusal)}"
