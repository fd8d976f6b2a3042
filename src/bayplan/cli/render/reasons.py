"""Why a gang waits, for people: one reason in a few words, or what was tried flavor by flavor."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bayplan.cli.config.format import (
    amount_text,
    counted,
    importance,
    oversized_text,
    short_levels,
    short_resources,
)
from bayplan.model.admission_rejection import (
    Attempt,
    Chance,
    Hindrance,
    Obstacle,
    Obstruction,
    Refusal,
    Remark,
    Token,
    Tried,
)
from bayplan.model.assignment import Code, Misfit
from bayplan.model.plan import Admit, Evict, Why
from bayplan.model.queued_gang import CheckState, Demand

TO_COME = "fits; its turn has come"
NOT_TRIED = "not looked at yet"

GROUNDS = {
    Why.PRIORITY: "it is less important, in the same queue",
    Why.RECLAIM: "its queue uses what belongs to this one",
    Why.RECLAIM_WHILE_BORROWING: "its queue uses what belongs to others",
    Why.FAIR_SHARE: "its queue is further above its fair share",
}
"""Why one gang has to leave for another."""

_REMARKS = {
    Remark.LEAVING_FAILED: "others could not be told to leave; that is tried again",
    Remark.OVERTAKEN: "others of the same round took the room",
    Remark.SAME_VICTIMS: "another gang displaces the same gangs first",
    Remark.SAME_VICTIMS_WILL_FIT: "fits once others have left",
    Remark.CHECKS_FAILED: "a check said no",
    Remark.QUEUE_CLOSED: "ClusterQueue {queue} is closed",
    Remark.QUEUE_MISSING: "there is no ClusterQueue {queue}",
    Remark.NAMESPACE: "ClusterQueue {queue} does not take this namespace",
    Remark.ENTRANCE_MISSING: "there is no LocalQueue {queue}",
    Remark.ENTRANCE_CLOSED: "LocalQueue {queue} is closed",
    Remark.OTHERS_STARTING: "waits for admitted gangs to start",
    Remark.RESERVED: "the room is kept for a gang that waits longer",
    Remark.ALIKE: "a gang that asks for the same has just been refused",
    Remark.INTERNAL: "deciding on it failed, a bug in Bayplan: look for {fault} in its log",
    Remark.OUT_OF_TIME: "deciding on it took longer than {fault} seconds",
}


def few_words(refusal: Refusal) -> str:
    """The dominant reason."""
    if refusal.remark is Remark.LEAVING or refusal.token is Token.VICTIMS_LEAVING:
        leave = "has to leave first" if refusal.victims == 1 else "have to leave first"
        return f"{counted(refusal.victims, 'gang')} {leave}" if refusal.victims else f"others {leave}"
    if refusal.remark is not Remark.TRIED:
        return _REMARKS[refusal.remark].format(queue=refusal.queue, fault=refusal.fault)
    fatal = next((part.fatal for part in refusal.tried if part.fatal is not None), None)
    if fatal is not None:
        return hindrance(fatal)
    if refusal.token is Token.NO_PLACE and first_misfit(refusal) is None:
        return "no domain is large enough, not even without other gangs"
    obstacles = sorted((o for part in refusal.tried for o in part.obstacles), key=_gravity)
    return hindrance(obstacles[0]) if obstacles else NOT_TRIED


def first_misfit(refusal: Refusal) -> tuple[Tried, Misfit] | None:
    """The pod set that found no place although there is quota for it."""
    for part in refusal.tried:
        for obstacle in part.obstacles:
            if isinstance(obstacle, Misfit):
                return part, obstacle
    return None


def lacks_quota(refusal: Refusal) -> list[Obstacle]:
    """Where quota runs short now, each flavor and resource once."""
    found = {}
    for part in refusal.tried:
        for obstacle in part.obstacles:
            if isinstance(obstacle, Obstacle) and obstacle.what is Obstruction.SHORT:
                found[obstacle.flavor, obstacle.resource] = obstacle
    return list(found.values())


def hindrance(found: Hindrance) -> str:
    """One thing in the way."""
    if isinstance(found, Misfit):
        return _misfit(found)
    return _OBSTACLES[found.what](found)


def attempts(part: Tried) -> Iterator[str]:
    """What was tried for a pod set, one line for each flavor."""
    if part.fatal is not None:
        yield hindrance(part.fatal)
        return
    if not part.attempts:
        yield from sorted({hindrance(obstacle) for obstacle in part.obstacles})
    for attempt in part.attempts:
        reasons = sorted({hindrance(obstacle) for obstacle in attempt.obstacles})
        yield f"{attempt.flavor}: {'; '.join([_chance(attempt), *reasons])}"


def unready_checks(demand: Demand) -> list[str]:
    """Checks that have not said yes."""
    return [verdict.check for verdict in demand.verdicts if verdict.state is not CheckState.READY]


def admitted_words(action: Admit) -> str:
    """What is to be said of a gang that could be admitted, and is not yet."""
    return f"{TO_COME}, then check {', '.join(action.checks)}" if action.checks else TO_COME


def victim_text(eviction: Evict) -> str:
    """Who has to leave, and on what grounds."""
    source, gang = eviction.gang, eviction.demand.gang
    grounds = GROUNDS.get(eviction.why, eviction.why.value.replace("_", " "))
    pods = sum(pod_set.count for pod_set in gang.root.pod_sets())
    known = f"{counted(pods, 'pod')}, priority {gang.priority}"
    return f"{source.namespace}/{source.name} ({known}): {grounds}"


def amount(resource: str, number: int) -> str:
    """`8 gpu`."""
    return f"{amount_text(resource, number)} {short_resources([resource])[resource]}"


def _gravity(found: Hindrance) -> tuple[int, tuple[int, str]]:
    """Quota that is short comes before a place that is missing, and devices before CPU."""
    if isinstance(found, Misfit):
        return 1, (0, "")
    first = found.what in (Obstruction.TOO_MUCH, Obstruction.SHORT)
    return (0 if first else 2), importance(found.resource)


def _misfit(misfit: Misfit) -> str:
    near = misfit.nearest
    if misfit.code is Code.NO_DOMAINS:
        return f"no usable node is in topology {misfit.topology}: it needs the labels of all levels"
    if misfit.oversized is not None:
        return oversized_text(misfit.oversized)
    if near is None:
        return f"no place: {misfit.fit} of {misfit.asked} fit in topology {misfit.topology}"
    if not near.domain:
        return f"no room: {near.fit} of {counted(near.fit + near.short, 'pod')} fit in the whole topology"
    level = short_levels([near.level])[near.level]
    where = f"{level} {'/'.join(near.domain)}"
    return f"no room: {near.fit} of {counted(near.fit + near.short, 'pod')} fit in {where}, the closest"


def _chance(attempt: Attempt) -> str:
    match attempt.possible or attempt.chance:
        case Chance.FIT:
            return f"quota is there{', partly borrowed' if attempt.borrow else ''}"
        case Chance.NO_VICTIMS:
            return "nobody may be displaced for it"
        case Chance.PREEMPT | Chance.RECLAIM:
            return "others would have to leave"
        case _:
            return "no"


def _short(obstacle: Obstacle) -> str:
    return f"quota: {amount(obstacle.resource, obstacle.amounts[0])} more needed in {obstacle.flavor}"


def _too_much(obstacle: Obstacle) -> str:
    before, asked, most = obstacle.amounts
    return (
        f"never enough quota: asks for {amount(obstacle.resource, before + asked)}, "
        f"at most {amount_text(obstacle.resource, most)} in {obstacle.flavor}"
    )


_OBSTACLES: dict[Obstruction, Callable[[Obstacle], str]] = {
    Obstruction.NOT_COVERED: lambda o: f"the queue has no quota for {o.resource}",
    Obstruction.FLAVOR_UNKNOWN: lambda o: f"there is no ResourceFlavor {o.flavor}",
    Obstruction.TAINT: lambda o: f"does not tolerate the taint {o.taint} of {o.flavor}",
    Obstruction.AFFINITY: lambda o: f"its node selector or affinity rules {o.flavor} out",
    Obstruction.WITHOUT_TOPOLOGY: lambda o: f"asks for a topology, {o.flavor} has none",
    Obstruction.ONLY_TOPOLOGY: lambda o: f"{o.flavor} is for gangs that ask for a topology",
    Obstruction.LEVEL_MISSING: lambda o: f"the topology of {o.flavor} lacks the level asked for",
    Obstruction.TOPOLOGY_UNKNOWN: lambda o: f"the Topology of {o.flavor} does not exist",
    Obstruction.SHORT: _short,
    Obstruction.TOO_MUCH: _too_much,
    Obstruction.NOT_NOMINATED: lambda o: f"{o.flavor} was not chosen for {o.resource} before",
    Obstruction.OTHER_FLAVOR_BEFORE: lambda o: f"its earlier version has {', '.join(o.flavors)}",
    Obstruction.NO_TOPOLOGY_FLAVOR: lambda o: "asks for a topology, and none of its flavors has one",
    Obstruction.SEVERAL_TOPOLOGY_FLAVORS: lambda o: (
        f"its resources come from several flavors with a topology: {', '.join(o.flavors)}"
    ),
    Obstruction.NO_TOPOLOGY_AT_ALL: lambda o: "asks for a topology, and no flavor of the queue has one",
    Obstruction.GROWS_AND_REQUIRES: lambda o: "an elastic gang cannot require a topology",
    Obstruction.GROWS_AND_PREFERS: lambda o: "an elastic gang cannot prefer a topology",
}
