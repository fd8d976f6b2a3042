"""Queues are ranked among their siblings by exact shares: amounts in bytes are too large for floats."""

from __future__ import annotations

from fractions import Fraction

from bayplan.model.quota import Entitlement, FairQueue
from bayplan.scheduling.fair_share.accounts import Accounts, share_ratio
from bayplan.state.scheduling.fair_usage import FairView

MEMORY = "memory"
LARGE = 2**60
NONE: dict[str, int] = {}


def accounts(quotas: dict[str, Fraction], usage: dict[str, int]) -> Accounts:
    said = {name: Entitlement(quota, None, Fraction(0)) for name, quota in quotas.items()}
    queues = {name: FairQueue(name, "", 0, {MEMORY: said[name]}, 0.0) for name in quotas}
    used = {name: {MEMORY: amount} for name, amount in usage.items()}
    return Accounts(FairView(queues, used, {}, {}, {MEMORY: 4 * LARGE}))


def test_a_queue_that_uses_one_byte_less_of_the_same_quota_is_first() -> None:
    found = accounts(dict.fromkeys("ab", Fraction(2 * LARGE)), {"a": LARGE + 1, "b": LARGE})
    assert min("ab", key=lambda name: found.rank(name, "", NONE, NONE)) == "b"


def test_a_queue_that_is_allowed_one_byte_less_is_first_of_two_that_use_nothing() -> None:
    quotas = {"a": Fraction(2 * LARGE + 1), "b": Fraction(2 * LARGE)}
    found = accounts(quotas, {"a": 0, "b": 0})
    assert min("ab", key=lambda name: found.rank(name, "", NONE, NONE)) == "b"


def test_queues_with_equal_shares_of_several_resources_tie_and_the_name_decides() -> None:
    tenths = {name: Entitlement(Fraction(1, 10), None, Fraction(0)) for name in ("x", "y", "z")}
    once = {"x": Entitlement(Fraction(3, 10), None, Fraction(0))}
    queues = {"a": FairQueue("a", "", 0, tenths, 0.0), "b": FairQueue("b", "", 0, once, 0.0)}
    found = Accounts(FairView(queues, {}, {}, {}, dict.fromkeys("xyz", 1)))
    assert found.rank("a", "", NONE, NONE)[:-1] == found.rank("b", "", NONE, NONE)[:-1]


def test_ratios_of_usage_to_share_are_compared_exactly() -> None:
    assert share_ratio(LARGE + 1, LARGE) > share_ratio(1, 1) == share_ratio(LARGE, LARGE)
    assert share_ratio(1, 0) > share_ratio(LARGE, 1) > share_ratio(0, 0) == share_ratio(0, 1)
