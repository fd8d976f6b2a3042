"""`bayplan replay`: folds a journal again and says whether every decision would be made the same way."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import click

from bayplan.cli.configured import takes_configuration
from bayplan.cli.output import echo
from bayplan.cli.settings import Settings
from bayplan.cli.words import counted
from bayplan.dialects.kube.closest import several_close
from bayplan.dialects.kueue.refusals import reason, sentence
from bayplan.model.change import Change, CharterSeen, DemandSeen, PodSeen
from bayplan.model.charter import Charter
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, Bind, Decline, Displace, Evict, Plan, Refuse
from bayplan.model.pod import Pod
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
    seen, different, gangs = Counter[str](), 0, set[str]()
    try:
        for entry in entries_of(journal):
            seen[entry.kind] += 1
            different += not _fold(_role(roles, entry), entry)
            gangs |= _gangs(entry) if gang is not None else set()
            if not quiet:
                _tell(entry, gang)
    except (Damaged, OSError) as trouble:
        raise click.ClickException(str(trouble)) from None
    if not seen:
        raise click.ClickException(f"{journal} was to be read as a journal; there is no entry in it")
    if gang is not None and gang not in gangs:
        raise click.ClickException(_unknown(gang, gangs))
    counts = ", ".join(f"{seen[kind]} {kind}s" for kind in Kind)
    echo(f"{counts}; {different} plans differ when decided again")
    sys.exit(1 if different else 0)


def _role(roles: Mapping[str, Role], entry: Entry) -> Role:
    name = entry.role or SchedulerRole.name
    if name not in roles:
        known = ", ".join(sorted(roles))
        raise Damaged(
            f"entry {entry.sequence} is of the role {name!r}, which is not known here; known are {known}"
        )
    return roles[name]


def _gangs(entry: Entry) -> set[str]:
    """The names of the gangs that an entry is about."""
    if entry.kind is Kind.PLAN:
        plan: Plan = entry.body_as(Plan)
        return {ref.name for action in plan.actions if (ref := getattr(action, "gang", None)) is not None}
    if entry.kind is not Kind.CHANGE:
        return set()
    match entry.body_as(Change):
        case PodSeen(Pod(gang=Ref(name=name))) | CharterSeen(Charter(source=Ref(name=name))):
            return {name}
        case DemandSeen(demand):
            return {demand.gang.source.name}
    return set()


def _unknown(gang: str, known: set[str]) -> str:
    near = several_close(gang, known)
    hint = (
        f"did you mean {' or '.join(near)}?" if near else f"it is about {counted(len(known), 'other gang')}"
    )
    return f"the journal has nothing about a gang {gang}; {hint}"


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
                echo(f"{entry.sequence} {ref.name}: {_refused(why)}")
            case Displace(pod, ref) if gang in (None, ref.name):
                echo(f"{entry.sequence} {ref.name}: pod {pod.key} has to go")
            case Admit() | Evict() | Decline() if gang in (None, action.gang.name):
                echo(f"{entry.sequence} {action.gang.name}: {_about(action)}")
    for name, nodes in bound.items():
        if gang in (None, name):
            echo(f"{entry.sequence} {name}: {len(nodes)} pods on {', '.join(sorted(set(nodes)))}")


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
