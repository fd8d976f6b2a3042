"""Fair shares, whatever the queues: bounded, conserved, by priority, and the same when asked again."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from bayplan.model.quota import Entitlement, FairQueue
from bayplan.scheduling.fair_share.shares import ShareClaim, divide, fair_shares

numbers = st.integers(0, 20).map(Fraction)
claims = st.lists(
    st.builds(
        ShareClaim,
        requested=numbers,
        quota=st.none() | numbers,
        limit=st.none() | numbers,
        weight=st.integers(0, 3).map(Fraction),
        priority=st.integers(0, 2),
        age=st.tuples(st.floats(0, 3), st.text("abc", max_size=3)),
    ),
    max_size=6,
)


@given(claims, numbers)
def test_nobody_gets_more_than_it_may(asks: list[ShareClaim], amount: Fraction) -> None:
    for claim, got in zip(asks, divide(asks, amount), strict=True):
        assert 0 <= got <= claim.requested
        assert claim.limit is None or got <= claim.limit


@given(claims, numbers)
def test_nothing_is_given_twice_and_nothing_wanted_is_left(asks: list[ShareClaim], amount: Fraction) -> None:
    got = divide(asks, amount)
    owed = sum(min(claim.upper_bound, amount if claim.quota is None else claim.quota) for claim in asks)
    assert sum(got) <= max(amount, owed)
    if sum(got) < amount:
        assert all(
            have == claim.upper_bound or not claim.weight for claim, have in zip(asks, got, strict=True)
        )


@given(claims, numbers)
def test_quota_is_kept(asks: list[ShareClaim], amount: Fraction) -> None:
    for claim, got in zip(asks, divide(asks, amount), strict=True):
        assert got >= min(claim.upper_bound, amount if claim.quota is None else claim.quota)


@given(claims, numbers)
def test_lower_priorities_get_only_what_higher_ones_leave(asks: list[ShareClaim], amount: Fraction) -> None:
    got = divide(asks, amount)
    for claim, have in zip(asks, got, strict=True):
        if (
            have < claim.upper_bound and claim.weight
        ):  # it wants more, so nobody below it has more than its quota
            for other, its in zip(asks, got, strict=True):
                quota = amount if other.quota is None else other.quota
                assert other.priority >= claim.priority or its <= quota


@given(claims, numbers, st.integers(0, 5))
def test_more_to_share_costs_nobody_more_than_a_rounding(
    asks: list[ShareClaim], amount: Fraction, more: int
) -> None:
    bounded = [claim for claim in asks if claim.quota is not None]  # others grow with the amount itself
    for before, after in zip(divide(bounded, amount), divide(bounded, amount + more), strict=True):
        assert after >= before - 1


@given(claims, numbers)
def test_who_only_asks_for_what_it_got_gets_it_again(asks: list[ShareClaim], amount: Fraction) -> None:
    got = divide(asks, amount)
    again = [
        ShareClaim(have, claim.quota, claim.limit, claim.weight, claim.priority, claim.age)
        for claim, have in zip(asks, got, strict=True)
    ]
    assert divide(again, amount) == got


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[str, FairQueue], dict[str, dict[str, int]]]:
    names = [f"q{number}" for number in range(draw(st.integers(1, 7)))]
    queues = {}
    for at, name in enumerate(names):
        said = {
            resource: Entitlement(draw(numbers), draw(st.none() | numbers), Fraction(draw(st.integers(0, 3))))
            for resource in ("cpu", "gpu")
        }
        parent = draw(st.sampled_from(["", *names[:at]]))
        queues[name] = FairQueue(name, parent, draw(st.integers(0, 1)), said, float(at))
    wants = {name: {"cpu": draw(st.integers(0, 20)), "gpu": draw(st.integers(0, 20))} for name in names}
    return queues, wants


@given(trees(), numbers)
def test_in_a_tree_children_stay_within_their_parent(
    tree: tuple[dict[str, FairQueue], dict[str, dict[str, int]]], amount: Fraction
) -> None:
    queues, wants = tree
    shares = fair_shares(queues, wants, {"cpu": amount, "gpu": amount})
    for name, queue in queues.items():
        below = [child for child in queues.values() if child.parent == name]
        for resource, said in queue.entitlements.items():
            share = shares[name][resource]
            assert said.limit is None or share <= said.limit
            owed = sum(child.entitlements[resource].quota or 0 for child in below)
            assert sum(shares[child.name][resource] for child in below) <= max(share, owed)
