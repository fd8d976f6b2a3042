"""The preemption search removes the shortest prefix of candidates and reprieves those that may stay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from bayplan.placement.preemption.victim_search import remove_until_fits, reprieve, reprieve_removed


@dataclass
class Bench:
    """Candidates that each free as much as their number; the gang needs a sum."""

    need: int
    removed: list[int] = field(default_factory=list)
    tries: int = 0

    def remove(self, candidates: Sequence[int]) -> None:
        self.removed += candidates

    def restore(self, candidates: Sequence[int]) -> None:
        for candidate in candidates:
            self.removed.remove(candidate)

    def may_fit(self) -> bool:
        return bool(self.removed)

    def fits(self) -> bool:
        self.tries += 1
        return sum(self.removed) >= self.need


@pytest.mark.parametrize("check_each", [True, False])
@pytest.mark.parametrize("need", range(1, 46))
def test_the_shortest_prefix_that_is_enough_stays_removed(need: int, check_each: bool) -> None:
    bench = Bench(need)
    found = remove_until_fits(bench, range(1, 10), check_each=check_each)
    assert found == bench.removed == list(range(1, len(found) + 1))
    assert sum(found) >= need > sum(found[:-1])


def test_nothing_stays_removed_if_all_candidates_are_not_enough() -> None:
    bench = Bench(46)
    assert remove_until_fits(bench, range(1, 10)) == []
    assert bench.removed == []


def test_candidates_are_drawn_after_the_removal_of_those_before() -> None:
    bench = Bench(6)
    seen: list[int] = []

    def draw() -> Iterator[int]:
        for candidate in (3, 2, 1):
            seen.append(len(bench.removed))
            yield candidate

    remove_until_fits(bench, draw(), check_each=True)
    assert seen == [0, 1, 2]


def test_a_removed_candidate_that_the_gang_fits_beside_is_restored_the_last_first() -> None:
    bench = Bench(9)
    removed = remove_until_fits(bench, [3, 2, 1, 8])
    assert reprieve_removed(bench, removed) == [3, 8]
    assert sorted(bench.removed) == [3, 8]


@pytest.mark.parametrize("together", [1, 3, 8])
@pytest.mark.parametrize("slack", range(38))
def test_candidates_are_reprieved_in_order_whether_tried_one_by_one_or_together(
    slack: int, together: int
) -> None:
    takes = [5, 1, 9, 2, 2, 7, 4, 7]
    kept: list[int] = []

    def fits_if(start: int, stop: int) -> bool:
        return bool(sum(takes[at] for at in (*kept, *range(start, stop))) <= slack)

    decided = reprieve(
        len(takes), fits_if, lambda start, stop: kept.extend(range(start, stop)), together=together
    )
    expected: list[int] = []
    for at, take in enumerate(takes):
        if sum(takes[other] for other in expected) + take <= slack:
            expected.append(at)
    assert kept == expected
    assert decided == len(takes)


def test_the_candidates_after_the_last_try_are_left_undecided() -> None:
    tries = iter((True, True, False))
    assert reprieve(5, lambda _, __: False, lambda _, __: None, may_try=lambda: next(tries)) == 2
