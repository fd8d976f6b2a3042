"""Reports of zones are late: what is believed meanwhile, when one has caught up, and what evictions free."""

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
from bayplan.placement.numa.columns import taken_everywhere
from bayplan.placement.numa.evictions import imagined, without
from bayplan.placement.numa.fingerprint import sign_of_container, sign_of_pods, xxh64
from bayplan.placement.numa.reports import NOTHING_KNOWN, NumaView, RunningPod
from bayplan.placement.numa.resources import pinned_containers
from bayplan.state.cluster.numa_state import NumaCache
from tests.support.numa_nodes import amounts, columns, container, pod, report

CARE = NumaStalenessPolicy(OverReserve.RESERVE)
EIGHT = amounts(cpu=8, memory=8)
ASKED = pod(container(cpu=3, memory=1))
A, B = ("space", "a"), ("space", "b")


def left(belief: NumaView, care: NumaStalenessPolicy = CARE) -> list[int]:
    zones, fresh = reports.believed(belief, care)
    assert zones is not None and fresh
    return [zone.available["cpu"] // 1000 for zone in zones.zones]


def signed(*pods: tuple[str, str], zones: NodeZones | None = None) -> NodeZones:
    return replace(zones or report(EIGHT, EIGHT), sign=sign_of_pods(pods))


def test_a_pod_on_its_way_takes_room_in_every_zone_until_the_report_knows_of_it() -> None:
    belief = reports.reserving(NumaView(report(EIGHT, EIGHT)), A, ASKED, CARE)
    assert left(belief) == [5, 5]
    running = [RunningPod(A, ASKED)]
    assert reports.caught_up(belief, signed(), running, CARE) is None
    newer = signed(A, zones=report(amounts(cpu=5, memory=7), EIGHT))
    found = reports.caught_up(belief, newer, running, CARE)
    assert found is not None and left(found) == [5, 8]


def test_what_is_reserved_is_never_less_than_nothing_and_a_zone_lists_no_more_than_before() -> None:
    belief = NumaView(report(amounts(cpu=4)))
    for name in (A, B):
        belief = reports.reserving(belief, name, pod(container(cpu=3, memory=2, gpu=1)), CARE)
    zones, _ = reports.believed(belief, CARE)
    assert zones is not None and zones.zones[0].available == {"cpu": 0}


def test_what_is_reserved_for_a_whole_gang_is_taken_from_the_columns_at_once() -> None:
    nodes = [report(EIGHT, amounts(cpu=4), name=name) for name in "ab"]
    beliefs = [NumaView(one) for one in nodes]
    for pod_name in (A, B):
        beliefs[1] = reports.reserving(beliefs[1], pod_name, ASKED, CARE)
    beliefs[0] = reports.reserving(beliefs[0], A, ASKED, CARE)
    one_by_one = [zones for belief in beliefs if (zones := reports.believed(belief, CARE)[0]) is not None]
    asked = dict(ASKED.containers[0].requests)
    at_once = taken_everywhere(columns(*nodes), np.asarray([0, 1]), asked, np.asarray([1, 2]))
    assert (at_once.available == columns(*one_by_one).available).all()


def test_the_same_pod_is_reserved_once_and_released_once() -> None:
    belief = NumaView(report(EIGHT))
    belief = reports.reserving(reports.reserving(belief, A, ASKED, CARE), A, ASKED, CARE)
    assert left(belief) == [5]
    assert left(reports.releasing(belief, A)) == [8]
    assert left(reports.releasing(belief, B)) == [5]


def test_a_report_older_than_a_pod_does_not_free_what_is_reserved_for_it() -> None:
    belief = reports.reserving(NumaView(report(EIGHT, EIGHT)), A, ASKED, CARE)
    older = signed()  # right about the pods that run: none
    found = reports.caught_up(belief, older, [], CARE, coming={A})
    assert found is not None and left(found) == [5, 5]
    gone = reports.caught_up(belief, older, [], CARE)  # the pod ended before it ran
    assert gone is not None and left(gone) == [8, 8]


def test_without_a_sign_or_with_one_that_makes_no_sense_a_report_proves_nothing() -> None:
    belief = reports.refused(NumaView(report(EIGHT)))
    assert reports.caught_up(belief, report(EIGHT), [], CARE) is None


def test_a_sign_may_leave_out_pods_that_have_nothing_to_themselves() -> None:
    pinned, shared = RunningPod(A, ASKED), RunningPod(B, pod(container()))
    latest = replace(signed(A), exclusive_only=True)
    assert reports.knows(latest, [pinned, shared], CARE)
    assert not reports.knows(signed(A), [pinned, shared], CARE)
    assert reports.knows(signed(A), [pinned, shared], replace(CARE, counted=Whose.EXCLUSIVE))
    assert not reports.knows(latest, [pinned, shared], replace(CARE, counted=Whose.ALL))


def test_a_stranger_makes_a_node_unusable_until_its_report_is_right() -> None:
    belief = reports.visited(NumaView(report(EIGHT)))
    assert reports.believed(belief, CARE) == (None, False)
    running = [RunningPod(B, ASKED)]
    found = reports.caught_up(belief, signed(B), running, CARE)
    assert found is not None and reports.believed(found, CARE)[1]
    assert reports.visited(NOTHING_KNOWN) == NOTHING_KNOWN


def test_who_is_a_stranger_is_a_choice() -> None:
    shared = pod(container())
    assert reports.is_stranger(shared, (), CARE, ours=False)
    assert not reports.is_stranger(shared, (), CARE, ours=True)
    assert not reports.is_stranger(shared, (), replace(CARE, strangers=Whose.EXCLUSIVE), ours=False)
    assert reports.is_stranger(ASKED, (), replace(CARE, strangers=Whose.EXCLUSIVE), ours=False)
    assert not reports.is_stranger(ASKED, (), replace(CARE, strangers=Whose.NONE), ours=False)


def test_a_node_is_left_alone_while_a_pod_is_being_bound_to_it() -> None:
    care = NumaStalenessPolicy(OverReserve.SKIP)
    belief = reports.reserving(NumaView(report(EIGHT)), A, ASKED, care, uid="1")
    assert reports.believed(belief, care) == (None, False)
    assert left(reports.bound(belief, "1"), care) == [8]
    assert left(reports.releasing(belief, A, "1"), care) == [8]


def test_a_changed_policy_is_taken_over_with_the_next_look() -> None:
    belief = NumaView(report(EIGHT))
    latest = report(EIGHT, scope=TopologyManagerScope.POD)
    heard = reports.heard(belief, latest, CARE)
    assert heard.resettled and heard.report == belief.report
    found = reports.caught_up(heard, latest, [], CARE)
    assert found is not None and found.report == latest
    assert not reports.heard(belief, latest, replace(CARE, heed_settings=False)).resettled


def test_the_first_report_of_a_node_is_believed_and_without_caution_every_one() -> None:
    assert reports.heard(NOTHING_KNOWN, report(EIGHT), CARE).report == report(EIGHT)
    careless = NumaStalenessPolicy()
    belief = reports.heard(NumaView(report(EIGHT)), report(amounts(cpu=1, memory=1)), careless)
    assert left(belief, careless) == [1]
    assert left(reports.reserving(belief, A, ASKED, careless), careless) == [1]


def test_a_look_at_nodes_in_doubt_is_bounded_and_begins_with_the_worst() -> None:
    doubted = {name: reports.refused(NumaView(report(EIGHT, name=name))) for name in "abc"}
    doubted["c"] = reports.visited(doubted["c"])
    latest = {name: replace(signed(), node=name) for name in "abc"}
    found = reports.resynced(doubted, latest, {}, CARE, most=2)
    assert sorted(found) == ["a", "c"]
    assert sorted(reports.resynced(doubted, latest, {}, CARE)) == ["a", "b", "c"]


def test_only_nodes_that_refused_somebody_are_looked_at_if_not_eager() -> None:
    belief = reports.reserving(NumaView(report(EIGHT)), A, ASKED, CARE)
    assert reports.in_doubt(belief, CARE)
    assert not reports.in_doubt(belief, replace(CARE, eager=False))


def test_parts_of_a_cpu_are_shared_and_whole_ones_are_not() -> None:
    def pinned(milli: int, service: QosClass = QosClass.GUARANTEED) -> tuple[str, ...]:
        return pinned_containers(pod(ContainerRequest("main", (("cpu", milli),)), service=service), ())

    assert (pinned(1500), pinned(2000), pinned(0)) == ((), ("main",), ())
    assert pinned(2000, QosClass.BURSTABLE) == ()


# ── signs ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_hash_is_the_published_one() -> None:
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"a") == 0xD24EC4F1A98C6E5B
    assert xxh64(b"xxhash") == 0x32DD38952C4BC720
    assert xxh64(b"xxhash", 20141025) == 0xB559B98D844E0635
    assert xxh64(b"Call me Ishmael. Some years ago--never mind how long precisely-") == 0x02A2E85470D6FD96


# ── evictions ──────────────────────────────────────────────────────────────────────────────────────


def seated_report(*pods: RunningPod) -> NodeZones:
    """Two zones, the first one full; everybody sits in the first."""
    full = report(amounts(cpu=0, memory=0), EIGHT)
    zones = (replace(full.zones[0], allocatable=EIGHT), full.zones[1])
    return replace(full, zones=zones, seating=ZoneAssignment(len(pods), busiest=0))


def test_who_leaves_gives_back_what_it_had_where_it_sat() -> None:
    victim = RunningPod(A, pod(container(cpu=8, memory=8)))
    before = seated_report(victim)
    after = without(before, [victim], reports.seats(before, [victim]))
    assert not isinstance(after, EvictionUnknown)
    assert [zone.available for zone in after.zones] == [EIGHT, EIGHT]


def test_places_are_told_in_the_order_of_signs() -> None:
    pods = [RunningPod(("space", name), ASKED) for name in "abcd"]
    order = sorted(pods, key=lambda one: sign_of_container("space", one.name[1], "main"))
    before = replace(seated_report(*pods), seating=ZoneAssignment(4, 1, {0: (0, 2)}))
    seats = reports.seats(before, pods)
    assert seats is not None
    assert [seats[(*one.name, "main")] for one in order] == [0, 1, 0, 1]
    assert reports.seats(before, pods[:3]) == {}  # somebody is missing: nobody knows who sits where


def test_what_cannot_be_thought_through_is_not_guessed() -> None:
    victim = RunningPod(A, pod(container(cpu=8, memory=8)))
    before = seated_report(victim)
    seats = {(*A, "main"): 0}
    assert without(before, [], seats) is EvictionUnknown.NOBODY
    assert without(before, [victim], None) is EvictionUnknown.SEATS_UNKNOWN
    assert without(before, [victim], {}) is EvictionUnknown.SEATS_EMPTY
    assert without(before, [RunningPod(B, victim.wants)], seats) is EvictionUnknown.NOTHING_FREED
    larger = RunningPod(A, pod(container(cpu=9, memory=8)))
    assert without(before, [larger], seats) is EvictionUnknown.TOO_MUCH_FREED


def test_only_what_lasts_and_is_its_own_comes_back() -> None:
    victim = RunningPod(
        A, pod(container("first", ContainerType.INIT, cpu=8, memory=8), container(cpu=2, memory=1))
    )
    seats = {(*A, "first"): 0, (*A, "main"): 0}
    after = without(seated_report(victim), [victim], seats)
    assert not isinstance(after, EvictionUnknown)
    assert after.zones[0].available == amounts(cpu=2, memory=1)


def test_evictions_are_imagined_only_if_asked_for_and_reports_are_followed() -> None:
    victim = RunningPod(A, pod(container(cpu=8, memory=8)))
    before, seats = seated_report(victim), {(*A, "main"): 0}
    assert imagined(before, [victim], seats, CARE) is before
    assert imagined(before, [victim], seats, NumaStalenessPolicy(OverReserve.SKIP, make_room=True)) is before
    assert imagined(before, [victim], seats, replace(CARE, make_room=True)) != before


def test_pods_that_ran_before_we_came_are_in_a_report_that_has_no_sign() -> None:
    """Pods and reports are listed in any order."""
    for up, free in ((True, [8, 8]), (False, [5, 5])):
        book = NumaCache()
        book.report(report(EIGHT, EIGHT), ())
        shape = PodSignature(zones=ASKED)
        book.came(Pod(PodKey(*A), "u", {}, "n", ours=True, up=up, wants=PodSpec(shape)), assumed=False)
        zones = book.zones_of("n")
        assert zones is not None
        assert [zone.available["cpu"] // 1000 for zone in zones.zones] == free
