"""Late NUMA reports: reservations until a report catches up, and the resources that evictions release."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayplan.model.numa import (
    ContainerRequest,
    ContainerType,
    EvictionUnknown,
    NodeZones,
    NumaStalenessPolicy,
    OverReserve,
    QosClass,
    TopologyManagerScope,
    Whose,
    ZoneAssignment,
)
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.placement.numa import reports
from bayplan.placement.numa.columns import subtracted_everywhere
from bayplan.placement.numa.evictions import zones_after_eviction, zones_without
from bayplan.placement.numa.fingerprint import container_fingerprint, pods_fingerprint, xxh64
from bayplan.placement.numa.reports import EMPTY_VIEW, NumaView, RunningPod
from bayplan.placement.numa.resources import pinned_containers
from bayplan.state.cluster.numa_state import NumaCache
from tests.support.numa_nodes import amounts, columns, container, report, request_of

POLICY = NumaStalenessPolicy(OverReserve.RESERVE)
EIGHT = amounts(cpu=8, memory=8)
REQUEST = request_of(container(cpu=3, memory=1))
A, B = ("space", "a"), ("space", "b")


def free_cpus(view: NumaView, policy: NumaStalenessPolicy = POLICY) -> list[int]:
    zones, fresh = reports.current_zones(view, policy)
    assert zones is not None and fresh
    return [zone.available["cpu"] // 1000 for zone in zones.zones]


def with_fingerprint(*pods: tuple[str, str], zones: NodeZones | None = None) -> NodeZones:
    return replace(zones or report(EIGHT, EIGHT), fingerprint=pods_fingerprint(pods))


def test_a_pod_being_bound_is_reserved_in_every_zone_until_the_report_counts_it() -> None:
    view = reports.with_reservation(NumaView(report(EIGHT, EIGHT)), A, REQUEST, POLICY)
    assert free_cpus(view) == [5, 5]
    running = [RunningPod(A, REQUEST)]
    assert reports.accept_report(view, with_fingerprint(), running, POLICY) is None
    newer = with_fingerprint(A, zones=report(amounts(cpu=5, memory=7), EIGHT))
    found = reports.accept_report(view, newer, running, POLICY)
    assert found is not None and free_cpus(found) == [5, 8]


def test_reservations_leave_no_negative_amount_and_add_no_resource_to_a_zone() -> None:
    view = NumaView(report(amounts(cpu=4)))
    for name in (A, B):
        view = reports.with_reservation(view, name, request_of(container(cpu=3, memory=2, gpu=1)), POLICY)
    zones, _ = reports.current_zones(view, POLICY)
    assert zones is not None and zones.zones[0].available == {"cpu": 0}


def test_reservations_of_a_gang_equal_one_subtraction_from_the_columns() -> None:
    nodes = [report(EIGHT, amounts(cpu=4), name=name) for name in "ab"]
    views = [NumaView(one) for one in nodes]
    for pod_name in (A, B):
        views[1] = reports.with_reservation(views[1], pod_name, REQUEST, POLICY)
    views[0] = reports.with_reservation(views[0], A, REQUEST, POLICY)
    one_by_one = [zones for view in views if (zones := reports.current_zones(view, POLICY)[0]) is not None]
    requests = dict(REQUEST.containers[0].requests)
    at_once = subtracted_everywhere(columns(*nodes), np.asarray([0, 1]), requests, np.asarray([1, 2]))
    assert (at_once.available == columns(*one_by_one).available).all()


def test_the_same_pod_is_reserved_once_and_released_once() -> None:
    view = NumaView(report(EIGHT))
    view = reports.with_reservation(reports.with_reservation(view, A, REQUEST, POLICY), A, REQUEST, POLICY)
    assert free_cpus(view) == [5]
    assert free_cpus(reports.without_reservation(view, A)) == [8]
    assert free_cpus(reports.without_reservation(view, B)) == [5]


def test_a_report_older_than_a_pod_keeps_its_reservation() -> None:
    view = reports.with_reservation(NumaView(report(EIGHT, EIGHT)), A, REQUEST, POLICY)
    older = with_fingerprint()  # right about the pods that run: none
    found = reports.accept_report(view, older, [], POLICY, coming={A})
    assert found is not None and free_cpus(found) == [5, 5]
    gone = reports.accept_report(view, older, [], POLICY)  # the pod ended before it ran
    assert gone is not None and free_cpus(gone) == [8, 8]


def test_a_report_without_a_fingerprint_is_not_accepted() -> None:
    view = reports.with_rejection(NumaView(report(EIGHT)))
    assert reports.accept_report(view, report(EIGHT), [], POLICY) is None


def test_a_fingerprint_may_leave_out_pods_without_exclusive_resources() -> None:
    pinned, shared = RunningPod(A, REQUEST), RunningPod(B, request_of(container()))
    latest = replace(with_fingerprint(A), exclusive_only=True)
    assert reports.counts_exactly(latest, [pinned, shared], POLICY)
    assert not reports.counts_exactly(with_fingerprint(A), [pinned, shared], POLICY)
    assert reports.counts_exactly(
        with_fingerprint(A), [pinned, shared], replace(POLICY, counted=Whose.EXCLUSIVE)
    )
    assert not reports.counts_exactly(latest, [pinned, shared], replace(POLICY, counted=Whose.ALL))


def test_a_foreign_pod_makes_a_node_unusable_until_its_report_counts_the_pod() -> None:
    view = reports.with_foreign_pod(NumaView(report(EIGHT)))
    assert reports.current_zones(view, POLICY) == (None, False)
    running = [RunningPod(B, REQUEST)]
    found = reports.accept_report(view, with_fingerprint(B), running, POLICY)
    assert found is not None and reports.current_zones(found, POLICY)[1]
    assert reports.with_foreign_pod(EMPTY_VIEW) == EMPTY_VIEW


def test_the_policy_says_which_foreign_pods_count() -> None:
    shared = request_of(container())
    assert reports.is_foreign_pod(shared, (), POLICY, ours=False)
    assert not reports.is_foreign_pod(shared, (), POLICY, ours=True)
    assert not reports.is_foreign_pod(shared, (), replace(POLICY, foreign_pods=Whose.EXCLUSIVE), ours=False)
    assert reports.is_foreign_pod(REQUEST, (), replace(POLICY, foreign_pods=Whose.EXCLUSIVE), ours=False)
    assert not reports.is_foreign_pod(REQUEST, (), replace(POLICY, foreign_pods=Whose.NONE), ours=False)


def test_a_node_is_skipped_while_a_pod_is_being_bound_to_it() -> None:
    policy = NumaStalenessPolicy(OverReserve.SKIP)
    view = reports.with_reservation(NumaView(report(EIGHT)), A, REQUEST, policy, uid="1")
    assert reports.current_zones(view, policy) == (None, False)
    assert free_cpus(reports.with_bound_pod(view, "1"), policy) == [8]
    assert free_cpus(reports.without_reservation(view, A, "1"), policy) == [8]


def test_changed_topology_manager_settings_are_accepted_with_the_next_check() -> None:
    view = NumaView(report(EIGHT))
    latest = report(EIGHT, scope=TopologyManagerScope.POD)
    heard = reports.report_received(view, latest, POLICY)
    assert heard.settings_changed and heard.report == view.report
    found = reports.accept_report(heard, latest, [], POLICY)
    assert found is not None and found.report == latest
    assert not reports.report_received(view, latest, replace(POLICY, follow_settings=False)).settings_changed


def test_the_first_report_of_a_node_is_accepted_and_without_reservation_every_one() -> None:
    assert reports.report_received(EMPTY_VIEW, report(EIGHT), POLICY).report == report(EIGHT)
    no_reserve = NumaStalenessPolicy()
    view = reports.report_received(NumaView(report(EIGHT)), report(amounts(cpu=1, memory=1)), no_reserve)
    assert free_cpus(view, no_reserve) == [1]
    assert free_cpus(reports.with_reservation(view, A, REQUEST, no_reserve), no_reserve) == [1]


def test_the_check_of_nodes_in_doubt_is_bounded_and_starts_with_the_worst() -> None:
    views = {name: reports.with_rejection(NumaView(report(EIGHT, name=name))) for name in "abc"}
    views["c"] = reports.with_foreign_pod(views["c"])
    latest = {name: replace(with_fingerprint(), node=name) for name in "abc"}
    found = reports.accept_reports(views, latest, {}, POLICY, limit=2)
    assert sorted(found) == ["a", "c"]
    assert sorted(reports.accept_reports(views, latest, {}, POLICY)) == ["a", "b", "c"]


def test_only_nodes_that_rejected_a_pod_are_in_doubt_if_not_eager() -> None:
    view = reports.with_reservation(NumaView(report(EIGHT)), A, REQUEST, POLICY)
    assert reports.in_doubt(view, POLICY)
    assert not reports.in_doubt(view, replace(POLICY, accept_early=False))


def test_parts_of_a_cpu_are_shared_and_whole_ones_are_not() -> None:
    def pinned(milli: int, service: QosClass = QosClass.GUARANTEED) -> tuple[str, ...]:
        return pinned_containers(request_of(ContainerRequest("main", (("cpu", milli),)), service=service), ())

    assert (pinned(1500), pinned(2000), pinned(0)) == ((), ("main",), ())
    assert pinned(2000, QosClass.BURSTABLE) == ()


# ── fingerprints ───────────────────────────────────────────────────────────────────────────────────


def test_the_hash_is_the_published_one() -> None:
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert xxh64(b"xxhash") == 0x32DD38952C4BC720
    assert xxh64(b"xxhash", 20141025) == 0xB559B98D844E0635
    assert xxh64(b"Call me Ishmael. Some years ago--never mind how long precisely-") == 0x02A2E85470D6FD96


# ── evictions ──────────────────────────────────────────────────────────────────────────────────────


def report_with_zones(*pods: RunningPod) -> NodeZones:
    """Two zones; all pods run in the first, which is full."""
    full = report(amounts(cpu=0, memory=0), EIGHT)
    zones = (replace(full.zones[0], allocatable=EIGHT), full.zones[1])
    return replace(full, zones=zones, assignment=ZoneAssignment(len(pods), busiest=0))


def test_an_evicted_pod_releases_its_resources_in_its_zone() -> None:
    victim = RunningPod(A, request_of(container(cpu=8, memory=8)))
    before = report_with_zones(victim)
    after = zones_without(before, [victim], reports.container_zones_of(before, [victim]))
    assert not isinstance(after, EvictionUnknown)
    assert [zone.available for zone in after.zones] == [EIGHT, EIGHT]


def test_container_zones_are_reported_in_the_order_of_fingerprints() -> None:
    pods = [RunningPod(("space", name), REQUEST) for name in "abcd"]
    order = sorted(pods, key=lambda one: container_fingerprint("space", one.name[1], "main"))
    before = replace(report_with_zones(*pods), assignment=ZoneAssignment(4, 1, {0: (0, 2)}))
    container_zones = reports.container_zones_of(before, pods)
    assert container_zones is not None
    assert [container_zones[(*one.name, "main")] for one in order] == [0, 1, 0, 1]
    assert reports.container_zones_of(before, pods[:3]) == {}  # a container is missing: all zones are unknown


def test_an_eviction_with_unknown_zones_is_not_guessed() -> None:
    victim = RunningPod(A, request_of(container(cpu=8, memory=8)))
    before = report_with_zones(victim)
    container_zones = {(*A, "main"): 0}
    assert zones_without(before, [], container_zones) is EvictionUnknown.NO_VICTIMS
    assert zones_without(before, [victim], None) is EvictionUnknown.SEATS_UNKNOWN
    assert zones_without(before, [victim], {}) is EvictionUnknown.SEATS_EMPTY
    assert (
        zones_without(before, [RunningPod(B, victim.request)], container_zones)
        is EvictionUnknown.NOTHING_FREED
    )
    larger = RunningPod(A, request_of(container(cpu=9, memory=8)))
    assert zones_without(before, [larger], container_zones) is EvictionUnknown.TOO_MUCH_FREED


def test_only_exclusive_resources_of_long_running_containers_are_released() -> None:
    victim = RunningPod(
        A, request_of(container("first", ContainerType.INIT, cpu=8, memory=8), container(cpu=2, memory=1))
    )
    container_zones = {(*A, "first"): 0, (*A, "main"): 0}
    after = zones_without(report_with_zones(victim), [victim], container_zones)
    assert not isinstance(after, EvictionUnknown)
    assert after.zones[0].available == amounts(cpu=2, memory=1)


def test_evictions_are_evaluated_only_with_make_room_and_reservations() -> None:
    victim = RunningPod(A, request_of(container(cpu=8, memory=8)))
    before, container_zones = report_with_zones(victim), {(*A, "main"): 0}
    assert zones_after_eviction(before, [victim], container_zones, POLICY) is before
    assert (
        zones_after_eviction(
            before, [victim], container_zones, NumaStalenessPolicy(OverReserve.SKIP, simulate_evictions=True)
        )
        is before
    )
    assert (
        zones_after_eviction(before, [victim], container_zones, replace(POLICY, simulate_evictions=True))
        != before
    )


def test_pods_that_ran_before_the_scheduler_started_are_in_a_report_without_fingerprint() -> None:
    """Pods and reports are listed in any order."""
    for up, free in ((True, [8, 8]), (False, [5, 5])):
        cache = NumaCache()
        cache.report_received(report(EIGHT, EIGHT), ())
        shape = PodSignature(zones=REQUEST)
        cache.pod_added(
            Pod(PodKey(*A), "u", {}, "n", ours=True, was_started=up, spec=PodSpec(shape)), assumed=False
        )
        zones = cache.zones_of("n")
        assert zones is not None
        assert [zone.available["cpu"] // 1000 for zone in zones.zones] == free
