"""Why a gang waits, for people: one reason in a few words, or what was tried flavor by flavor."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bayplan.explanation.text import (
    amount_text,
    counted,
    importance,
    oversized_text,
    short_levels,
    short_resources,
)
from bayplan.model.admission_rejection import (
    AdmissionReason,
    AdmissionRejection,
    AdmissionRemark,
    FlavorAttempt,
    FlavorMode,
    Obstacle,
    ObstacleKind,
    PodSetAttempts,
    RejectionDetail,
)
from bayplan.model.assignment import Code, Misfit
from bayplan.model.plan import Admit, EvictGang, EvictionReason
from bayplan.model.queued_gang import CheckState, QueuedGang

TO_COME = "fits; its turn has come"
NOT_TRIED = "not looked at yet"

GROUNDS = {
    EvictionReason.PRIORITY: "it is less important, in the same queue",
    EvictionReason.RECLAIM: "its queue uses what belongs to this one",
    EvictionReason.RECLAIM_WHILE_BORROWING: "its queue uses what belongs to others",
    EvictionReason.FAIR_SHARE: "its queue is further above its fair share",
}
"""Why one gang has to leave for another."""

_REMARKS = {
    AdmissionRemark.LEAVING_FAILED: "others could not be told to leave; that is tried again",
    AdmissionRemark.OVERTAKEN: "others of the same round took the room",
    AdmissionRemark.SAME_VICTIMS: "another gang displaces the same gangs first",
    AdmissionRemark.SAME_VICTIMS_WILL_FIT: "fits once others have left",
    AdmissionRemark.CHECKS_FAILED: "a check said no",
    AdmissionRemark.QUEUE_CLOSED: "ClusterQueue {queue} is closed",
    AdmissionRemark.QUEUE_MISSING: "there is no ClusterQueue {queue}",
    AdmissionRemark.NAMESPACE: "ClusterQueue {queue} does not take this namespace",
    AdmissionRemark.ENTRANCE_MISSING: "there is no LocalQueue {queue}",
    AdmissionRemark.ENTRANCE_CLOSED: "LocalQueue {queue} is closed",
    AdmissionRemark.OTHERS_STARTING: "waits for admitted gangs to start",
    AdmissionRemark.RESERVED: "the room is kept for a gang that waits longer",
    AdmissionRemark.ALIKE: "a gang that asks for the same has just been refused",
    AdmissionRemark.INTERNAL: "deciding on it failed, a bug in Bayplan: look for {fault} in its log",
    AdmissionRemark.OUT_OF_TIME: "deciding on it took longer than {fault} seconds",
}


def few_words(refusal: AdmissionRejection) -> str:
    """The dominant reason."""
    if refusal.remark is AdmissionRemark.LEAVING or refusal.token is AdmissionReason.VICTIMS_LEAVING:
        leave = "has to leave first" if refusal.victims == 1 else "have to leave first"
        return f"{counted(refusal.victims, 'gang')} {leave}" if refusal.victims else f"others {leave}"
    if refusal.remark is not AdmissionRemark.TRIED:
        return _REMARKS[refusal.remark].format(queue=refusal.queue, fault=refusal.fault)
    fatal = next((part.fatal for part in refusal.tried if part.fatal is not None), None)
    if fatal is not None:
        return hindrance(fatal)
    if refusal.token is AdmissionReason.NO_PLACE and first_misfit(refusal) is None:
        return "no domain is large enough, not even without other gangs"
    obstacles = sorted((o for part in refusal.tried for o in part.obstacles), key=_gravity)
    return hindrance(obstacles[0]) if obstacles else NOT_TRIED


def first_misfit(refusal: AdmissionRejection) -> tuple[PodSetAttempts, Misfit] | None:
    """The pod set that found no place although there is quota for it."""
    for part in refusal.tried:
        for obstacle in part.obstacles:
            if isinstance(obstacle, Misfit):
                return part, obstacle
    return None


def lacks_quota(refusal: AdmissionRejection) -> list[Obstacle]:
    """Where quota runs short now, each flavor and resource once."""
    found = {}
    for part in refusal.tried:
        for obstacle in part.obstacles:
            if isinstance(obstacle, Obstacle) and obstacle.what is ObstacleKind.SHORT:
                found[obstacle.flavor, obstacle.resource] = obstacle
    return list(found.values())


def hindrance(found: RejectionDetail) -> str:
    """One thing in the way."""
    if isinstance(found, Misfit):
        return _misfit(found)
    return _OBSTACLES[found.what](found)


def attempts(part: PodSetAttempts) -> Iterator[str]:
    """What was tried for a pod set, one line for each flavor."""
    if part.fatal is not None:
        yield hindrance(part.fatal)
        return
    if not part.attempts:
        yield from sorted({hindrance(obstacle) for obstacle in part.obstacles})
    for attempt in part.attempts:
        reasons = sorted({hindrance(obstacle) for obstacle in attempt.obstacles})
        yield f"{attempt.flavor}: {'; '.join([_chance(attempt), *reasons])}"


def unready_checks(demand: QueuedGang) -> list[str]:
    """Checks that have not said yes."""
    return [verdict.check for verdict in demand.verdicts if verdict.state is not CheckState.READY]


def admitted_words(action: Admit) -> str:
    """What is to be said of a gang that could be admitted, and is not yet."""
    return f"{TO_COME}, then check {', '.join(action.checks)}" if action.checks else TO_COME


def victim_text(eviction: EvictGang) -> str:
    """Who has to leave, and on what grounds."""
    source, gang = eviction.gang, eviction.demand.gang
    grounds = GROUNDS.get(eviction.why, eviction.why.value.replace("_", " "))
    pods = sum(pod_set.count for pod_set in gang.root.pod_sets())
    known = f"{counted(pods, 'pod')}, priority {gang.priority}"
    return f"{source.namespace}/{source.name} ({known}): {grounds}"


def amount(resource: str, number: int) -> str:
    """`8 gpu`."""
    return f"{amount_text(resource, number)} {short_resources([resource])[resource]}"


def _gravity(found: RejectionDetail) -> tuple[int, tuple[int, str]]:
    """Quota that is short comes before a place that is missing, and devices before CPU."""
    if isinstance(found, Misfit):
        return 1, (0, "")
    first = found.what in (ObstacleKind.TOO_MUCH, ObstacleKind.SHORT)
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


def _chance(attempt: FlavorAttempt) -> str:
    match attempt.possible or attempt.chance:
        case FlavorMode.FIT:
            return f"quota is there{', partly borrowed' if attempt.borrow else ''}"
        case FlavorMode.NO_VICTIMS:
            return "nobody may be displaced for it"
        case FlavorMode.PREEMPT | FlavorMode.RECLAIM:
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


_OBSTACLES: dict[ObstacleKind, Callable[[Obstacle], str]] = {
    ObstacleKind.NOT_COVERED: lambda o: f"the queue has no quota for {o.resource}",
    ObstacleKind.FLAVOR_UNKNOWN: lambda o: f"there is no ResourceFlavor {o.flavor}",
    ObstacleKind.TAINT: lambda o: f"does not tolerate the taint {o.taint} of {o.flavor}",
    ObstacleKind.AFFINITY: lambda o: f"its node selector or affinity rules {o.flavor} out",
    ObstacleKind.WITHOUT_TOPOLOGY: lambda o: f"asks for a topology, {o.flavor} has none",
    ObstacleKind.ONLY_TOPOLOGY: lambda o: f"{o.flavor} is for gangs that ask for a topology",
    ObstacleKind.LEVEL_MISSING: lambda o: f"the topology of {o.flavor} lacks the level asked for",
    ObstacleKind.TOPOLOGY_UNKNOWN: lambda o: f"the Topology of {o.flavor} does not exist",
    ObstacleKind.SHORT: _short,
    ObstacleKind.TOO_MUCH: _too_much,
    ObstacleKind.NOT_NOMINATED: lambda o: f"{o.flavor} was not chosen for {o.resource} before",
    ObstacleKind.OTHER_FLAVOR_BEFORE: lambda o: f"its earlier version has {', '.join(o.flavors)}",
    ObstacleKind.NO_TOPOLOGY_FLAVOR: lambda o: "asks for a topology, and none of its flavors has one",
    ObstacleKind.SEVERAL_TOPOLOGY_FLAVORS: lambda o: (
        f"its resources come from several flavors with a topology: {', '.join(o.flavors)}"
    ),
    ObstacleKind.NO_TOPOLOGY_AT_ALL: lambda o: "asks for a topology, and no flavor of the queue has one",
    ObstacleKind.GROWS_AND_REQUIRES: lambda o: "an elastic gang cannot require a topology",
    ObstacleKind.GROWS_AND_PREFERS: lambda o: "an elastic gang cannot prefer a topology",
}
