"""Fair shares of the queues of a tree."""

from __future__ import annotations

from fractions import Fraction

from bayplan.model.quota import Entitlement, FairQueue
from bayplan.scheduling.fair_share.shares import fair_shares, is_rooted

GPU = "gpu"


def fair_queue(
    name: str, quota: int | None = 0, parent: str = "", limit: int | None = None, weight: int = 1,
    priority: int = 0, created: float = 0.0,
) -> FairQueue:  # fmt: skip
    said = Entitlement(
        None if quota is None else Fraction(quota),
        None if limit is None else Fraction(limit),
        Fraction(weight),
    )
    return FairQueue(name, parent, priority, {GPU: said}, created)


def shared(queues: list[FairQueue], capacity: int, **wanted: int) -> dict[str, Fraction]:
    found = fair_shares(
        {one.name: one for one in queues}, {name: {GPU: n} for name, n in wanted.items()}, {GPU: capacity}
    )
    return {name: share.get(GPU, Fraction(0)) for name, share in found.items()}


def test_quota_comes_first_and_weight_divides_the_rest() -> None:
    queues = [fair_queue("a", 2, weight=1), fair_queue("b", 4, weight=3)]
    assert shared(queues, 10, a=10, b=10) == {"a": 3, "b": 7}


def test_no_queue_gets_more_than_it_requests_or_its_limit() -> None:
    queues = [fair_queue("a"), fair_queue("b"), fair_queue("c", limit=3)]
    assert shared(queues, 12, a=2, b=20, c=20) == {"a": 2, "b": 7, "c": 3}


def test_beyond_quota_the_higher_priority_is_served_first() -> None:
    queues = [fair_queue("a", 2), fair_queue("b", priority=1), fair_queue("c", 1)]
    assert shared(queues, 8, a=9, b=4, c=9) == {"a": 3, "b": 4, "c": 1}


def test_what_rounding_leaves_goes_to_the_oldest_of_equals() -> None:
    queues = [fair_queue("a", created=2.0), fair_queue("b", created=1.0)]
    assert shared(queues, 5, a=9, b=9) == {"a": 2, "b": 3}


def test_a_weight_of_zero_means_quota_only() -> None:
    assert shared([fair_queue("a", 1, weight=0), fair_queue("b")], 8, a=9, b=9) == {"a": 1, "b": 7}


def test_a_quota_without_bound_is_all_there_is() -> None:
    assert shared([fair_queue("a", None)], 8, a=9) == {"a": 8}


def test_children_share_what_their_parent_has() -> None:
    queues = [
        fair_queue("p", 4),
        fair_queue("q", 4),
        fair_queue("a", 4, "p"),
        fair_queue("b", 0, "p"),
        fair_queue("c", 0, "q"),
    ]
    found = shared(queues, 8, a=1, b=9, c=9)
    assert found == {"p": 4, "q": 4, "a": 1, "b": 3, "c": 4}


def test_quota_counts_even_if_there_is_less() -> None:
    assert shared([fair_queue("a", 4), fair_queue("b", 4)], 6, a=9, b=9) == {"a": 4, "b": 4}


def test_queues_without_a_path_to_the_root_have_no_share() -> None:
    queues = {
        one.name: one
        for one in (fair_queue("a", 4, "b"), fair_queue("b", 4, "a"), fair_queue("c", 4, "none"))
    }
    assert not any(is_rooted(queues, name) for name in queues)
    assert fair_shares(queues, {"a": {GPU: 3}, "c": {GPU: 3}}, {GPU: 9}) == {"a": {}, "b": {}, "c": {}}
