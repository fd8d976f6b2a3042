"""What is believed of a node's zones between two of its reports, which are late by nature."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from bayplan.model.numa import NodeZones, NumaRequest, NumaStalenessPolicy, OverReserve, Whose, Zone
from bayplan.placement.numa.fingerprint import Name, seated, sign_of_pods
from bayplan.placement.numa.resources import pinned_containers, whole_pod

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NumaView:
    """One node: its last report that was trusted, and what has happened since."""

    report: NodeZones | None = None
    reserved: Mapping[Name, Amounts] = field(default_factory=dict)
    refusals: int = 0  # pods turned away, perhaps for no other reason than reservations
    strangers: int = 0  # pods that others put there
    resettled: bool = False  # the node aligns in another way now
    binding: frozenset[str] = frozenset()  # uids of pods on their way


NOTHING_KNOWN = NumaView()


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that a node's report should know of."""

    name: Name
    wants: NumaRequest


def believed(belief: NumaView, care: NumaStalenessPolicy) -> tuple[NodeZones | None, bool]:
    """The zones to work with, and whether they can be worked with at all."""
    if care.caution is OverReserve.SKIP:
        return (None, False) if belief.binding else (belief.report, True)
    if care.caution is OverReserve.NONE or belief.report is None:
        return belief.report, care.caution is OverReserve.NONE or not belief.strangers
    if belief.strangers:
        return None, False
    if not belief.reserved:
        return belief.report, True
    zones = tuple(_less(zone, belief.reserved.values()) for zone in belief.report.zones)
    return replace(belief.report, zones=zones), True


def reserving(
    belief: NumaView, pod: Name, wants: NumaRequest, care: NumaStalenessPolicy, uid: str = ""
) -> NumaView:
    """A pod was put there. Of a node without zones nothing need be remembered."""
    if care.caution is OverReserve.SKIP:
        return replace(belief, binding=belief.binding | {uid})
    if care.caution is OverReserve.NONE or belief.report is None:
        return belief
    amounts = dict(whole_pod(wants, sidecars_stay=True))
    return replace(belief, reserved={**belief.reserved, pod: amounts})


def releasing(belief: NumaView, pod: Name, uid: str = "") -> NumaView:
    """It did not come to be. A pod that ran and ended is another matter: the next report tells."""
    left = {name: amounts for name, amounts in belief.reserved.items() if name != pod}
    return replace(belief, reserved=left, binding=belief.binding - {uid})


def bound(belief: NumaView, uid: str) -> NumaView:
    """The pod is on its node."""
    return replace(belief, binding=belief.binding - {uid})


def refused(belief: NumaView) -> NumaView:
    """The node turned a pod away."""
    return replace(belief, refusals=belief.refusals + 1)


def visited(belief: NumaView) -> NumaView:
    """Somebody else put a pod there. Without zones it does not matter."""
    return belief if belief.report is None else replace(belief, strangers=belief.strangers + 1)


def heard(belief: NumaView, report: NodeZones, care: NumaStalenessPolicy) -> NumaView:
    """A new report came by. It is not trusted yet, unless nothing is done about late ones."""
    if care.caution is not OverReserve.RESERVE or belief.report is None:
        return replace(belief, report=report)
    if care.heed_settings and report.alignment != belief.report.alignment:
        return replace(belief, resettled=True)
    return belief


def in_doubt(belief: NumaView, care: NumaStalenessPolicy) -> bool:
    """Whether a newer report may help, once its sign is right."""
    return bool(belief.refusals or belief.strangers or (care.eager and belief.reserved))


def caught_up(
    belief: NumaView,
    report: NodeZones,
    pods: Iterable[RunningPod],
    care: NumaStalenessPolicy,
    coming: Collection[Name] = (),
) -> NumaView | None:
    """The node in a new light, if the report knows of the very pods that are there; None if it does not.

    A node that aligns in another way now is taken over as it is. Pods that are still coming, and which
    no report can know, keep what was reserved for them.
    """
    if belief.resettled or (in_doubt(belief, care) and knows(report, pods, care)):
        kept = {name: amounts for name, amounts in belief.reserved.items() if name in coming}
        return NumaView(report, kept, binding=belief.binding)
    return None


def knows(report: NodeZones, pods: Iterable[RunningPod], care: NumaStalenessPolicy) -> bool:
    """Whether a report counts exactly these pods."""
    if report.sign is None:
        return False
    only, listed = counts_exclusive_only(report, care), report.resources
    return report.sign == sign_of_pods(
        pod.name for pod in pods if not only or pinned_containers(pod.wants, listed)
    )


def counts_exclusive_only(report: NodeZones, care: NumaStalenessPolicy) -> bool:
    """Whether a report's sign leaves out pods that have nothing to themselves."""
    return care.counted is Whose.EXCLUSIVE or (care.counted is Whose.AS_REPORTED and report.exclusive_only)


def resynced(
    beliefs: Mapping[str, NumaView],
    reports: Mapping[str, NodeZones],
    pods: Mapping[str, Collection[RunningPod]],
    care: NumaStalenessPolicy,
    coming: Mapping[str, Collection[Name]] = MappingProxyType({}),
    most: int | None = None,
) -> dict[str, NumaView]:
    """Every node in doubt whose report has caught up. No more than `most` are looked at, the worst first."""
    doubted = [name for name, belief in beliefs.items() if in_doubt(belief, care) or belief.resettled]
    doubted.sort(key=lambda name: (-beliefs[name].strangers, -beliefs[name].refusals, name))
    found = {}
    for name in doubted[:most]:
        report = reports.get(name)
        if report is not None:
            belief = caught_up(beliefs[name], report, pods.get(name, ()), care, coming.get(name, ()))
            if belief is not None:
                found[name] = belief
    return found


def is_stranger(
    wants: NumaRequest, listed: Collection[str], care: NumaStalenessPolicy, *, ours: bool
) -> bool:
    """Whether a pod on a node casts doubt on what is believed of it."""
    if ours or care.strangers is Whose.NONE or care.caution is not OverReserve.RESERVE:
        return False
    return care.strangers is not Whose.EXCLUSIVE or bool(pinned_containers(wants, listed))


def counts(care: NumaStalenessPolicy, *, node: str, phase: str) -> bool:
    """Whether a pod is one that a report should know of."""
    return bool(node) and (phase != "Pending" if care.starting else phase == "Running")


def seats(report: NodeZones, pods: Iterable[RunningPod]) -> Mapping[tuple[str, str, str], int] | None:
    """The zone of every pinned container (namespace, pod, name); None if the report does not say."""
    if report.seating is None:
        return None
    listed = report.resources
    return seated(
        report.seating,
        ((*pod.name, container) for pod in pods for container in pinned_containers(pod.wants, listed)),
    )


def _less(zone: Zone, reserved: Iterable[Amounts]) -> Zone:
    """A zone if everything reserved lay in it: nobody knows which zone it will be."""
    left = dict(zone.available)
    for amounts in reserved:
        for resource, amount in amounts.items():
            if resource in left:
                left[resource] = max(left[resource] - amount, 0)
    return replace(zone, available=left)
