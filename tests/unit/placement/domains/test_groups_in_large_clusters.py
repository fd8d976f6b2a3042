"""A group of several pod sets is not tried in one domain after the other without end."""

from __future__ import annotations

from random import Random

import pytest

from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.watchdog import OutOfTime
from bayplan.placement.domains import greedy
from bayplan.placement.gang.place import place
from bayplan.state.cluster.topology_state import TopologyState


def tried(monkeypatch: pytest.MonkeyPatch, cpu: int, pods: int) -> int:
    """How many places were tried for three pod sets on 300 hosts of 8 GPUs and 8 CPUs, in one host each."""
    cluster = TopologyState(Topology("t", (HOSTNAME,)))
    amounts = {"gpu": 8, "cpu": 8, "pods": 20}
    cluster.load(Node(f"n{number:03}", {HOSTNAME: f"n{number:03}"}, amounts) for number in range(300))
    members = tuple(PodSet(f"set-{number}", pods, pods, {"gpu": 3, "cpu": cpu}) for number in range(3))
    group = Group("trio", members, 3, Locality(required=HOSTNAME))
    calls, real = [], greedy.place_pod_set

    def counted(*given: object) -> object:
        calls.append(given)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(greedy, "place_pod_set", counted)
    assert not place(cluster.snapshot(), Gang(Ref("", "", "", "gang"), Group("", (group,), 1))).ok
    return len(calls)


def test_a_domain_without_enough_room_in_sum_is_tried_once_for_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert tried(monkeypatch, cpu=1, pods=2) <= 3


def racks(*free: tuple[int, int]) -> TopologyState:
    """Racks of two hosts each, with so many CPUs on each of the two."""
    cluster = TopologyState(Topology("t", ("rack", HOSTNAME)))
    cluster.load(
        Node(name, {"rack": f"r{number:03}", HOSTNAME: name}, {"cpu": cpu, "pods": 20})
        for number, pair in enumerate(free)
        for cpu, name in zip(pair, (f"n{number:03}-a", f"n{number:03}-b"), strict=True)
    )
    return cluster


def trio(first: int, second: int) -> Gang:
    """Two pods of four CPUs each and so many of three and of two, all in one rack."""
    sets = (("a", 2, 4), ("b", first, 3), ("c", second, 2))
    members = tuple(PodSet(name, count, count, {"cpu": cpu}) for name, count, cpu in sets if count)
    return Gang(Ref("", "", "", "gang"), Group("", (Group("g", members, 1, Locality(required="rack")),), 1))


TORN = (9, 5)  # has room for each of the pod sets, and in sum, and still not for all of them


@pytest.mark.parametrize("where", [0, 70, 199])
def test_the_only_rack_that_holds_a_group_is_found_among_many_that_nearly_do(where: int) -> None:
    pairs = [TORN] * 200
    pairs[where] = (8, 8)
    found = place(racks(*pairs).snapshot(), trio(2, 0))
    assert found.ok
    hosts = {share.values[-1] for one in found.assignments.values() for share in one.shares}
    assert hosts == {f"n{where:03}-a", f"n{where:03}-b"}


def test_a_search_through_many_domains_ends_when_its_time_is_used_up() -> None:
    asked: list[None] = []

    def check() -> None:
        asked.append(None)
        if len(asked) > 100:
            raise OutOfTime("gang")

    with pytest.raises(OutOfTime):
        place(racks(*[TORN] * 200).snapshot(), trio(2, 0), check=check)
    assert not place(racks(*[TORN] * 200).snapshot(), trio(2, 0)).ok


def test_a_group_has_the_same_place_in_a_domain_by_itself_as_in_the_whole() -> None:
    rng = Random(7)
    for _ in range(200):
        pairs = [(rng.randint(0, 12), rng.randint(0, 12)) for _ in range(rng.randint(1, 6))]
        gang = trio(rng.randint(0, 3), rng.randint(1, 3))
        found = place(racks(*pairs).snapshot(), gang)
        alone = [place(racks(pair).snapshot(), gang) for pair in pairs]
        assert found.ok == any(one.ok for one in alone), (pairs, gang)
        if found.ok:
            shares = [share for one in found.assignments.values() for share in one.shares]
            rack = int(shares[0].values[-1][1:4])
            pods = {n: [s.count for s in one.shares] for n, one in found.assignments.items()}
            assert pods == {n: [s.count for s in one.shares] for n, one in alone[rack].assignments.items()}
