"""A group of several pod sets is not tried in one domain after the other without end."""

from __future__ import annotations

import pytest

from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.placement import greedy
from bayplan.placement.place import place
from bayplan.state.cluster import Cluster


def tried(monkeypatch: pytest.MonkeyPatch, cpu: int, pods: int) -> int:
    """How many places were tried for three pod sets on 300 hosts of 8 GPUs and 8 CPUs, in one host each."""
    cluster = Cluster(Topology("t", (HOSTNAME,)))
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


def test_the_number_of_domains_that_are_tried_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greedy, "_holds_in_sum", lambda *_: True)  # as if room were torn everywhere
    assert tried(monkeypatch, cpu=1, pods=2) <= 3 * greedy.DOMAINS_TRIED
