"""The preemption search: remove candidates until the gang fits, then reprieve those that it fits beside.

Which candidates there are, their order, and when the search stops is up to a policy. What "fits" means is up
to a trial, which removes and restores candidates on an overlay: quota, placement, zones and budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

Candidate = TypeVar("Candidate")
Candidate_contra = TypeVar("Candidate_contra", contravariant=True)


class RemovalTrial(Protocol[Candidate_contra]):
    """An overlay on which candidates are removed and restored."""

    def remove(self, candidates: Sequence[Candidate_contra]) -> None:
        """Remove candidates."""

    def restore(self, candidates: Sequence[Candidate_contra]) -> None:
        """Restore removed candidates."""

    def may_fit(self) -> bool:
        """A cheap check: if it fails, the gang does not fit."""

    def fits(self) -> bool:
        """Whether the gang fits now."""


def remove_until_fits(
    trial: RemovalTrial[Candidate], candidates: Iterable[Candidate], *, check_each: bool = False
) -> list[Candidate]:
    """The shortest prefix of candidates without which the gang fits; they stay removed. Empty if none is.

    Candidates are drawn one by one, since a removal may change which of the others qualify. The gang is tried
    after each removal if `check_each`, else after one, two, four, … and then by bisection.
    """
    removed: list[Candidate] = []
    next_check, too_few, found = 1, 0, False
    for candidate in candidates:
        trial.remove((candidate,))
        removed.append(candidate)
        if len(removed) < next_check or not trial.may_fit():
            continue
        found = trial.fits()
        if found:
            break
        too_few = len(removed)
        next_check = too_few + 1 if check_each else 2 * too_few
    if not found and (len(removed) == too_few or not trial.fits()):
        trial.restore(removed)
        return []
    while len(removed) - too_few > 1:
        middle = (too_few + len(removed)) // 2
        back = removed[middle:]
        trial.restore(back)
        if trial.fits():
            removed = removed[:middle]
        else:
            trial.remove(back)
            too_few = middle
    return removed


def reprieve(
    count: int,
    fits_if: Callable[[int, int], bool],
    keep: Callable[[int, int], None],
    *,
    together: int = 1,
    may_try: Callable[[], bool] = lambda: True,
) -> int:
    """Reprieve numbered candidates in order: each stays if the gang fits beside it and those kept before.

    Of up to `together` candidates the longest run that can stay is found by doubling and bisection. That
    takes fewer tries, and gives the same answer unless the gang fits beside two but not beside one of them.
    Returns the first candidate that was not decided on, because `may_try` said no.
    """
    at = 0
    while at < count and may_try():
        end = min(at + together, count)
        low, high, step = at, end + 1, 1  # up to `low` the candidates can stay, up to `high` they cannot
        while low < end and high > low + 1:
            middle = min(low + step, end) if high > end else (low + high) // 2
            if fits_if(at, middle):
                low, step = middle, 2 * step
            else:
                high = middle
        if low > at:
            keep(at, low)
        at = low if low == end else low + 1
    return at


def reprieve_removed(trial: RemovalTrial[Candidate], removed: Sequence[Candidate]) -> list[Candidate]:
    """Restore removed candidates that the gang fits beside, the last first; returns the others, the victims.

    The candidate removed last is always needed: the gang did not fit before its removal.
    """
    order = removed[:-1][::-1]
    kept: set[int] = set()

    def fits_if(start: int, stop: int) -> bool:
        trial.restore(order[start:stop])
        fits = trial.fits()
        trial.remove(order[start:stop])
        return fits

    def keep(start: int, stop: int) -> None:
        trial.restore(order[start:stop])
        kept.update(map(id, order[start:stop]))

    reprieve(len(order), fits_if, keep)
    return [candidate for candidate in removed if id(candidate) not in kept]
