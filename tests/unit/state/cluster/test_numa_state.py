"""Every setting of the staleness policy, as it shows in the zones of a node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bayplan.model.node import Node
from bayplan.model.numa import (
    Alignment,
    NodeZones,
    NumaRequest,
    NumaStalenessPolicy,
    OverReserve,
    QosClass,
    TopologyManagerPolicy,
    Whose,
    ZoneAssignment,
)
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec
from bayplan.placement.cluster.topology_tree import objects
from bayplan.placement.numa.fingerprint import pods_fingerprint
from bayplan.placement.numa.releases import NumaRelease
from bayplan.state.cluster import numa_state
from bayplan.state.cluster.numa_state import NumaCache
from tests.support.numa_nodes import amounts, container, report, request_of

EIGHT = amounts(cpu=8, memory=8)
PINNED = request_of(container(cpu=3, memory=1))
SHARED = NumaRequest(QosClass.BURSTABLE, PINNED.containers)
RESERVE = NumaStalenessPolicy(OverReserve.RESERVE, period=1.0)


def one(
    name: str, wants: NumaRequest = PINNED, node: str = "n", *,
    ours: bool = False, up: bool = False, over: bool = False,
) -> Pod:  # fmt: skip
    shape, key = PodSignature(zones=wants), PodKey("space", name)
    return Pod(key, f"uid-{name}", {}, node, finished=over, spec=PodSpec(shape), ours=ours, was_started=up)


def told(*pods: str, cpus: int = 8, node: str = "n", **more: object) -> NodeZones:
    sign = pods_fingerprint(("space", name) for name in pods)
    result = report(amounts(cpu=cpus, memory=8), EIGHT, name=node, fingerprint=sign)
    return replace(result, **more)  # type: ignore[arg-type]


def free(book: NumaCache, node: str = "n") -> list[int] | None:
    """CPUs by zone; None if the zones are unknown."""
    ground = book.snapshot(objects([Node(node, {}, {"cpu": 1, "memory": 1})]))
    assert ground is not None
    columns = ground.columns
    left: list[int] = (columns.available[columns.resources["cpu"], :, 0] // 1000).tolist()
    return left if columns.fresh[0] else None


def book(care: NumaStalenessPolicy, *known: str) -> NumaCache:
    result = NumaCache(care)
    result.report_received(told(*known), ())
    return result


@pytest.mark.parametrize(
    ("caution", "coming", "bound"),
    [
        (OverReserve.NONE, [8, 8], [8, 8]),
        (OverReserve.SKIP, None, [8, 8]),
        (OverReserve.RESERVE, [5, 5], [5, 5]),
    ],
)
def test_caution(caution: OverReserve, coming: list[int] | None, bound: list[int] | None) -> None:
    result = book(NumaStalenessPolicy(caution, period=1.0))
    result.pod_added(one("a", ours=True), assumed=True)
    assert free(result) == coming
    result.pod_added(one("a", ours=True), assumed=False)
    assert free(result) == bound


@pytest.mark.parametrize(
    ("whose", "wants", "usable"),
    [
        (Whose.ALL, PINNED, False), (Whose.ALL, SHARED, False),
        (Whose.EXCLUSIVE, PINNED, False), (Whose.EXCLUSIVE, SHARED, True),
        (Whose.NONE, PINNED, True),
    ],
)  # fmt: skip
def test_strangers(whose: Whose, wants: NumaRequest, usable: bool) -> None:
    result = book(replace(RESERVE, foreign_pods=whose))
    result.pod_added(one("other", wants), assumed=False)
    assert (free(result) is not None) == usable
    result.pod_added(one("other", wants, up=True), assumed=False)
    result.report_received(told("other", cpus=5), ())
    result.catch_up(10.0)
    assert free(result) is not None, "its report knows it now"


@pytest.mark.parametrize(
    ("counted", "exclusive_only", "signed", "believed"),
    [
        (Whose.ALL, False, ("a", "b"), True),
        (Whose.ALL, True, ("a",), False),
        (Whose.EXCLUSIVE, False, ("a",), True),
        (Whose.AS_REPORTED, True, ("a",), True),
        (Whose.AS_REPORTED, False, ("a",), False),
        (Whose.AS_REPORTED, False, ("a", "b"), True),
    ],
)
def test_which_pods_a_fingerprint_includes(
    counted: Whose, exclusive_only: bool, signed: tuple[str, ...], believed: bool
) -> None:
    result = book(replace(RESERVE, counted=counted))
    for name, wants in (("a", PINNED), ("b", SHARED)):
        result.pod_added(one(name, wants, ours=True, up=True), assumed=False)
    result.report_received(told(*signed, cpus=5, exclusive_only=exclusive_only), ())
    result.catch_up(10.0)
    assert (free(result) == [5, 8]) == believed


@pytest.mark.parametrize("starting", [True, False])
def test_pods_that_are_over_count_only_where_all_that_started_do(starting: bool) -> None:
    result = book(replace(RESERVE, count_starting=starting))
    result.pod_added(one("a", ours=True, up=True), assumed=False)
    result.pod_added(one("b", ours=True, up=True), assumed=False)
    result.pod_added(one("b", ours=True, up=True, over=True), assumed=False)
    result.report_received(told("a", cpus=5), ())
    result.catch_up(10.0)
    assert (free(result) == [5, 8]) == (not starting)


@pytest.mark.parametrize("heed", [True, False])
def test_a_node_that_aligns_in_another_way(heed: bool) -> None:
    result = book(replace(RESERVE, follow_settings=heed))
    result.pod_added(one("a", ours=True), assumed=False)
    result.report_received(told("nobody", alignment=Alignment(TopologyManagerPolicy.NONE)), ())
    result.catch_up(10.0)
    zones = result.zones_of("n")
    assert zones is not None
    assert (zones.alignment.policy is TopologyManagerPolicy.NONE) == heed


def test_looks_at_nodes_in_doubt_have_a_period_and_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numa_state, "CHECKED_MAX", 1)
    result = NumaCache(replace(RESERVE, period=5.0))
    for name in ("m", "n"):
        result.report_received(told(node=name), ())
        result.pod_added(one(f"on-{name}", node=name, ours=True, up=True), assumed=False)
    result.catch_up(0.0)
    result.catch_up(5.0)
    for name in ("m", "n"):
        result.report_received(told(f"on-{name}", cpus=5, node=name), ())
    assert not result.catch_up(9.9), "too early"
    assert result.catch_up(10.0)
    assert [free(result, name) == [5, 8] for name in ("m", "n")].count(True) == 1
    assert result.next_due() == 15.0
    assert result.catch_up(15.0)
    result.touched.update(("m", "n"))
    assert all(free(result, name) == [5, 8] for name in ("m", "n"))


def test_container_zones_are_recomputed_after_any_change() -> None:
    """The resources that pods would release are cached with it."""
    result = NumaCache(NumaStalenessPolicy(OverReserve.RESERVE, simulate_evictions=True))
    result.pod_added(one("a", ours=True, up=True), assumed=False)
    result.report_received(told("a", assignment=ZoneAssignment(1, 1)), ())
    key, nodes = PodKey("space", "a"), objects([Node("n", {}, {"cpu": 1, "memory": 1})])

    def gift() -> tuple[object, NumaRelease]:
        ground = result.snapshot(nodes)
        assert ground is not None
        number = ground.release_number("n", key, PINNED)
        return result.container_zones("n"), list(ground.releases.numbers)[number]

    seats, first = gift()
    assert seats == {("space", "a", "main"): 1}
    assert {(share.place, share.resource) for share in first.amounts} == {(1, "cpu"), (1, "memory")}
    result.pod_added(one("b", ours=True), assumed=False)
    assert gift() == (seats, first), "a report cannot know of one that is still coming"
    result.pod_added(one("b", ours=True, up=True), assumed=False)
    assert gift() == ({}, NumaRelease()), "there is one more than the report tells of"
    result.pod_removed(PodKey("space", "b"), "n", was_there=False)
    assert gift() == (seats, first)
    result.report_removed("n")
    result.report_received(told("a", assignment=ZoneAssignment(1, 0)), [one("a", ours=True, up=True)])
    moved, now = gift()
    assert moved == {("space", "a", "main"): 0}
    assert {share.place for share in now.amounts} == {0}
