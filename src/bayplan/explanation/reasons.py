"""Why a gang is pending, as text: the dominant reason in a few words, or the attempts flavor by flavor."""

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
from bayplan.model.assignment import Code, Misfit
from bayplan.model.plan import Admit, EvictGang, EvictionReason
from bayplan.model.queued_gang import CheckState, QueuedGang
from bayplan.model.rejection import (
    AdmissionRemark,
    FlavorAttempt,
    FlavorMode,
    Obstacle,
    ObstacleKind,
    PodSetAttempts,
    Rejection,
    RejectionDetail,
    RejectionReason,
)

FITS_NEXT = "fits; expected in the next scheduling cycle"
NOT_TRIED = "not evaluated yet"

PREEMPTION_GROUNDS = {
    EvictionReason.PRIORITY: "it has lower priority, in the same queue",
    EvictionReason.RECLAIM: "its queue borrows quota that belongs to this queue",
    EvictionReason.RECLAIM_WHILE_BORROWING: "its queue borrows quota of other queues",
    EvictionReason.FAIR_SHARE: "its queue is further above its fair share",
}
"""Why one gang is preempted for another."""

_REMARKS = {
    AdmissionRemark.PREEMPTION_FAILED: "evicting the victims failed; it is retried",
    AdmissionRemark.OTHERS_ENDING: "other gangs end at the moment; it preempts if they do not make room soon",
    AdmissionRemark.OVERTAKEN: "gangs admitted earlier in the same cycle took the capacity",
    AdmissionRemark.SAME_VICTIMS: "another gang preempts the same gangs first",
    AdmissionRemark.SAME_VICTIMS_WILL_FIT: "fits once the preempted gangs have terminated",
    AdmissionRemark.CHECKS_FAILED: "an admission check rejected it",
    AdmissionRemark.QUEUE_INACTIVE: "ClusterQueue {queue} is not active",
    AdmissionRemark.QUEUE_MISSING: "there is no ClusterQueue {queue}",
    AdmissionRemark.NAMESPACE: "ClusterQueue {queue} does not accept this namespace",
    AdmissionRemark.NAMESPACE_QUEUE_MISSING: "there is no LocalQueue {queue}",
    AdmissionRemark.NAMESPACE_QUEUE_STOPPED: "LocalQueue {queue} is not active",
    AdmissionRemark.OTHERS_STARTING: "waiting for admitted gangs to become ready",
    AdmissionRemark.RESERVED: "the capacity is reserved for a gang that has been pending longer",
    AdmissionRemark.EQUIVALENT: "a gang with the same requests was rejected in this cycle",
}
_FAULTS = {
    RejectionReason.INTERNAL: "the decision failed, which is a bug in Bayplan: search its log for {fault}",
    RejectionReason.OUT_OF_TIME: "the decision took longer than {fault} seconds",
}


def few_words(rejection: Rejection) -> str:
    """The dominant reason."""
    if rejection.remark is AdmissionRemark.PREEMPTING or rejection.reason is RejectionReason.VICTIMS_LEAVING:
        victims = counted(rejection.victims, "preempted gang") if rejection.victims else "preempted gangs"
        return f"waiting for {victims} to terminate"
    if rejection.reason in _FAULTS:
        return _FAULTS[rejection.reason].format(fault=rejection.about)
    if rejection.remark is AdmissionRemark.REFUSED:
        return rejection.about or "it cannot be admitted as it is"
    if rejection.remark is not AdmissionRemark.TRIED:
        return _REMARKS[rejection.remark].format(queue=rejection.queue)
    fatal = next((part.fatal for part in rejection.tried if part.fatal is not None), None)
    if fatal is not None:
        return detail_text(fatal)
    if rejection.reason is RejectionReason.NO_PLACE and first_misfit(rejection) is None:
        return "no domain is large enough, even in an empty cluster"
    obstacles = sorted((o for part in rejection.tried for o in part.obstacles), key=_severity)
    return detail_text(obstacles[0]) if obstacles else NOT_TRIED


def first_misfit(rejection: Rejection) -> tuple[PodSetAttempts, Misfit] | None:
    """The first pod set that has quota but does not fit in the topology."""
    for part in rejection.tried:
        for obstacle in part.obstacles:
            if isinstance(obstacle, Misfit):
                return part, obstacle
    return None


def lacks_quota(rejection: Rejection) -> list[Obstacle]:
    """Flavors and resources whose quota is insufficient now, each once."""
    by_cell = {}
    for part in rejection.tried:
        for obstacle in part.obstacles:
            if isinstance(obstacle, Obstacle) and obstacle.kind is ObstacleKind.SHORT:
                by_cell[obstacle.flavor, obstacle.resource] = obstacle
    return list(by_cell.values())


def detail_text(detail: RejectionDetail) -> str:
    """One reason of a rejection."""
    if isinstance(detail, Misfit):
        return _misfit(detail)
    return _OBSTACLES[detail.kind](detail)


def attempts(part: PodSetAttempts) -> Iterator[str]:
    """What was tried for a pod set, one line for each flavor."""
    if part.fatal is not None:
        yield detail_text(part.fatal)
        return
    if not part.attempts:
        yield from sorted({detail_text(obstacle) for obstacle in part.obstacles})
    for attempt in part.attempts:
        reasons = sorted({detail_text(obstacle) for obstacle in attempt.obstacles})
        yield f"{attempt.flavor}: {'; '.join([_chance(attempt), *reasons])}"


def unready_checks(queued_gang: QueuedGang) -> list[str]:
    """The admission checks that are not ready."""
    return [check.check for check in queued_gang.check_statuses if check.state is not CheckState.READY]


def admitted_words(action: Admit) -> str:
    """The reason of a gang that would be admitted in the next cycle."""
    return f"{FITS_NEXT}, then check {', '.join(action.checks)}" if action.checks else FITS_NEXT


def victim_text(eviction: EvictGang) -> str:
    """The gang that is preempted, and why."""
    source, gang = eviction.gang, eviction.queued_gang.gang
    why = PREEMPTION_GROUNDS.get(eviction.reason, eviction.reason.value.replace("_", " "))
    pods = sum(pod_set.count for pod_set in gang.root.pod_sets())
    size = f"{counted(pods, 'pod')}, priority {gang.priority}"
    return f"{source.namespace}/{source.name} ({size}): {why}"


def amount(resource: str, number: int) -> str:
    """`8 gpu`."""
    return f"{amount_text(resource, number)} {short_resources([resource])[resource]}"


def _severity(detail: RejectionDetail) -> tuple[int, tuple[int, str]]:
    """Sort key: insufficient quota before a topology misfit, and devices before CPU."""
    if isinstance(detail, Misfit):
        return 1, (0, "")
    is_quota = detail.kind in (ObstacleKind.TOO_MUCH, ObstacleKind.SHORT)
    return (0 if is_quota else 2), importance(detail.resource)


def _misfit(misfit: Misfit) -> str:
    near = misfit.nearest
    if misfit.code is Code.NO_DOMAINS:
        return f"no usable node is in topology {misfit.topology}: it needs the labels of all levels"
    if misfit.oversized is not None:
        return oversized_text(misfit.oversized)
    if near is None:
        return f"no room: {misfit.fit} of {misfit.asked} fit in topology {misfit.topology}"
    if not near.domain:
        return f"no room: {near.fit} of {counted(near.fit + near.short, 'pod')} fit in the whole topology"
    level = short_levels([near.level])[near.level]
    where = f"{level} {'/'.join(near.domain)}"
    return f"no room: {near.fit} of {counted(near.fit + near.short, 'pod')} fit in {where}, the closest"


def _chance(attempt: FlavorAttempt) -> str:
    match attempt.preemption_mode or attempt.mode:
        case FlavorMode.FIT:
            return f"quota is available{', partly borrowed' if attempt.borrow else ''}"
        case FlavorMode.NO_VICTIMS:
            return "no gang may be preempted for it"
        case FlavorMode.PREEMPT | FlavorMode.RECLAIM:
            return "needs preemption"
        case _:
            return "does not fit"


def _short(obstacle: Obstacle) -> str:
    lacking = amount(obstacle.resource, obstacle.amounts[0])
    return f"insufficient quota: {lacking} more needed in {obstacle.flavor}"


def _too_much(obstacle: Obstacle) -> str:
    before, requested, limit = obstacle.amounts
    return (
        f"exceeds the maximum quota: requests {amount(obstacle.resource, before + requested)}, "
        f"at most {amount_text(obstacle.resource, limit)} in {obstacle.flavor}"
    )


_OBSTACLES: dict[ObstacleKind, Callable[[Obstacle], str]] = {
    ObstacleKind.NOT_COVERED: lambda o: f"the queue has no quota for {o.resource}",
    ObstacleKind.FLAVOR_UNKNOWN: lambda o: f"there is no ResourceFlavor {o.flavor}",
    ObstacleKind.TAINT: lambda o: f"does not tolerate the taint {o.taint} of {o.flavor}",
    ObstacleKind.AFFINITY: lambda o: f"its node selector or affinity excludes {o.flavor}",
    ObstacleKind.WITHOUT_TOPOLOGY: lambda o: f"requests a topology, {o.flavor} has none",
    ObstacleKind.ONLY_TOPOLOGY: lambda o: f"{o.flavor} accepts only gangs that request a topology",
    ObstacleKind.LEVEL_MISSING: lambda o: f"the topology of {o.flavor} lacks the requested level",
    ObstacleKind.TOPOLOGY_UNKNOWN: lambda o: f"the Topology of {o.flavor} does not exist",
    ObstacleKind.SHORT: _short,
    ObstacleKind.TOO_MUCH: _too_much,
    ObstacleKind.NOT_NOMINATED: lambda o: f"{o.flavor} was not assigned to {o.resource} before",
    ObstacleKind.OTHER_FLAVOR_BEFORE: lambda o: f"its earlier Workload slice has {', '.join(o.flavors)}",
    ObstacleKind.NO_TOPOLOGY_FLAVOR: lambda o: "requests a topology, and none of its flavors has one",
    ObstacleKind.SEVERAL_TOPOLOGY_FLAVORS: lambda o: (
        f"its resources come from several flavors with a topology: {', '.join(o.flavors)}"
    ),
    ObstacleKind.NO_TOPOLOGY_AT_ALL: lambda o: "requests a topology, and no flavor of the queue has one",
    ObstacleKind.GROWS_AND_REQUIRES: lambda o: "an elastic gang cannot require a topology",
    ObstacleKind.GROWS_AND_PREFERS: lambda o: "an elastic gang cannot prefer a topology",
}
