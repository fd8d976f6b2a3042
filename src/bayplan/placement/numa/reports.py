"""The scheduler's view of a node's zones between two of its reports, which always arrive late."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from bayplan.model.numa import NodeZones, NumaRequest, NumaStalenessPolicy, OverReserve, Whose, Zone
from bayplan.placement.numa.fingerprint import Name, pods_fingerprint, zones_of_containers
from bayplan.placement.numa.resources import pinned_containers, whole_pod

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NumaView:
    """One node: its last accepted report, and what has happened since."""

    report: NodeZones | None = None
    reserved: Mapping[Name, Amounts] = field(default_factory=dict)
    rejections: int = 0  # pods rejected, perhaps only because of over-reservation
    foreign_pods: int = 0  # pods bound by other schedulers
    settings_changed: bool = False  # the topology manager settings of the node changed
    binding: frozenset[str] = frozenset()  # uids of pods that are being bound


EMPTY_VIEW = NumaView()


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod that a node's report should count."""

    name: Name
    request: NumaRequest


def current_zones(view: NumaView, policy: NumaStalenessPolicy) -> tuple[NodeZones | None, bool]:
    """The zones to schedule on, less reservations, and whether they are reliable."""
    if policy.over_reserve is OverReserve.SKIP:
        return (None, False) if view.binding else (view.report, True)
    if policy.over_reserve is OverReserve.NONE or view.report is None:
        return view.report, policy.over_reserve is OverReserve.NONE or not view.foreign_pods
    if view.foreign_pods:
        return None, False
    if not view.reserved:
        return view.report, True
    zones = tuple(_less_reserved(zone, view.reserved.values()) for zone in view.report.zones)
    return replace(view.report, zones=zones), True


def with_reservation(
    view: NumaView, pod: Name, request: NumaRequest, policy: NumaStalenessPolicy, uid: str = ""
) -> NumaView:
    """The view after a pod was assigned to the node. Without zones there is nothing to reserve."""
    if policy.over_reserve is OverReserve.SKIP:
        return replace(view, binding=view.binding | {uid})
    if policy.over_reserve is OverReserve.NONE or view.report is None:
        return view
    amounts = dict(whole_pod(request, sidecars_stay=True))
    return replace(view, reserved={**view.reserved, pod: amounts})


def without_reservation(view: NumaView, pod: Name, uid: str = "") -> NumaView:
    """The view after a binding failed. For a pod that ran and ended the next report has the amounts."""
    reserved = {name: amounts for name, amounts in view.reserved.items() if name != pod}
    return replace(view, reserved=reserved, binding=view.binding - {uid})


def with_bound_pod(view: NumaView, uid: str) -> NumaView:
    """The view after a pod was bound."""
    return replace(view, binding=view.binding - {uid})


def with_rejection(view: NumaView) -> NumaView:
    """The view after the node was rejected for a pod."""
    return replace(view, rejections=view.rejections + 1)


def with_foreign_pod(view: NumaView) -> NumaView:
    """The view after another scheduler bound a pod there. Without zones it does not matter."""
    return view if view.report is None else replace(view, foreign_pods=view.foreign_pods + 1)


def report_received(view: NumaView, report: NodeZones, policy: NumaStalenessPolicy) -> NumaView:
    """The view after a new report arrived. It is accepted at once only if the policy does not reserve."""
    if policy.over_reserve is not OverReserve.RESERVE or view.report is None:
        return replace(view, report=report)
    if policy.follow_settings and report.alignment != view.report.alignment:
        return replace(view, settings_changed=True)
    return view


def in_doubt(view: NumaView, policy: NumaStalenessPolicy) -> bool:
    """Whether a newer report may help, once its fingerprint matches."""
    return bool(view.rejections or view.foreign_pods or (policy.accept_early and view.reserved))


def accept_report(
    view: NumaView,
    report: NodeZones,
    pods: Iterable[RunningPod],
    policy: NumaStalenessPolicy,
    coming: Collection[Name] = (),
) -> NumaView | None:
    """The view by a newer report, if the report counts exactly the pods on the node; None if it does not.

    A report with changed topology manager settings is accepted as it is. Pods that are still being bound,
    which no report can count, keep their reservations.
    """
    if view.settings_changed or (in_doubt(view, policy) and counts_exactly(report, pods, policy)):
        reserved = {name: amounts for name, amounts in view.reserved.items() if name in coming}
        return NumaView(report, reserved, binding=view.binding)
    return None


def counts_exactly(report: NodeZones, pods: Iterable[RunningPod], policy: NumaStalenessPolicy) -> bool:
    """Whether a report counts exactly these pods."""
    if report.fingerprint is None:
        return False
    only, listed = counts_exclusive_only(report, policy), report.resources
    return report.fingerprint == pods_fingerprint(
        pod.name for pod in pods if not only or pinned_containers(pod.request, listed)
    )


def counts_exclusive_only(report: NodeZones, policy: NumaStalenessPolicy) -> bool:
    """Whether a report's fingerprint leaves out pods without exclusive resources."""
    return policy.counted is Whose.EXCLUSIVE or (
        policy.counted is Whose.AS_REPORTED and report.exclusive_only
    )


def accept_reports(
    views: Mapping[str, NumaView],
    reports: Mapping[str, NodeZones],
    pods: Mapping[str, Collection[RunningPod]],
    policy: NumaStalenessPolicy,
    coming: Mapping[str, Collection[Name]] = MappingProxyType({}),
    limit: int | None = None,
) -> dict[str, NumaView]:
    """The new views of nodes in doubt whose report caught up; at most `limit` are checked, worst first."""
    in_doubt_names = [name for name, view in views.items() if in_doubt(view, policy) or view.settings_changed]
    in_doubt_names.sort(key=lambda name: (-views[name].foreign_pods, -views[name].rejections, name))
    updated = {}
    for name in in_doubt_names[:limit]:
        report = reports.get(name)
        if report is not None:
            view = accept_report(views[name], report, pods.get(name, ()), policy, coming.get(name, ()))
            if view is not None:
                updated[name] = view
    return updated


def is_foreign_pod(
    request: NumaRequest, listed: Collection[str], policy: NumaStalenessPolicy, *, ours: bool
) -> bool:
    """Whether a pod of another scheduler makes the view of its node unreliable."""
    if ours or policy.foreign_pods is Whose.NONE or policy.over_reserve is not OverReserve.RESERVE:
        return False
    return policy.foreign_pods is not Whose.EXCLUSIVE or bool(pinned_containers(request, listed))


def is_counted(policy: NumaStalenessPolicy, *, node: str, phase: str) -> bool:
    """Whether a report should count a pod."""
    return bool(node) and (phase != "Pending" if policy.count_starting else phase == "Running")


def container_zones_of(
    report: NodeZones, pods: Iterable[RunningPod]
) -> Mapping[tuple[str, str, str], int] | None:
    """The zone of every pinned container (namespace, pod, name); None if the report does not have it."""
    if report.assignment is None:
        return None
    listed = report.resources
    return zones_of_containers(
        report.assignment,
        ((*pod.name, container) for pod in pods for container in pinned_containers(pod.request, listed)),
    )


def _less_reserved(zone: Zone, reserved: Iterable[Amounts]) -> Zone:
    """A zone less everything reserved, since the zone of a reservation is not known."""
    available = dict(zone.available)
    for amounts in reserved:
        for resource, amount in amounts.items():
            if resource in available:
                available[resource] = max(available[resource] - amount, 0)
    return replace(zone, available=available)
