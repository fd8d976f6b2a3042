"""Where to cut a list of node names so that each part shares a long prefix: `pool-a-` 1, 2 | `pool-b-` 1.

Names keep their order, so a part is always a run of consecutive names. A prefix ends in a dash before the end
of the name, and gets a part of its own when at least two names of the list start with it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise


def common_prefix(names: Sequence[str]) -> str:
    """The longest text that every name starts with."""
    low, high = min(names), max(names)  # all names between the two share their common prefix
    for length, (left, right) in enumerate(zip(low, high, strict=False)):
        if left != right:
            return low[:length]
    return low


def common_suffix(names: Sequence[str]) -> str:
    """The longest text that every name ends with."""
    return common_prefix([name[::-1] for name in names])[::-1]


def shared_prefixes(names: Sequence[str]) -> list[str]:
    """For each name the longest prefix that it shares with another, "" if there is none.

    In sorted order it is always one of the two neighbours that shares most.
    """
    longest: dict[str, str] = {}
    ordered = sorted(names)
    shared = ""
    for name, follower in pairwise(ordered):
        before, shared = shared, _shared_by(name, follower, shared)
        longest[name] = before if len(before) > len(shared) else shared
    longest.update((name, shared) for name in ordered[-1:])
    return [longest[name] for name in names]


def fewer_parts(keys: Sequence[str], parts_max: int, part_max: int) -> list[str]:
    """Prefixes shortened by whole segments until there are at most `parts_max` runs of equal ones."""
    distinct = set(keys)
    for dashes in sorted({key.count("-") for key in distinct}, reverse=True):
        shorter = {key: _up_to_dash(key, dashes) for key in distinct}
        cut = [shorter[key] for key in keys]
        if len(split_runs(run_lengths(cut), part_max)) <= parts_max:
            return cut
    return [""] * len(keys)


def run_lengths(keys: Iterable[str]) -> list[int]:
    """The lengths of the runs of equal keys."""
    return [len(list(run)) for _, run in groupby(keys)]


def split_runs(lengths: Iterable[int], part_max: int) -> list[int]:
    """The same runs, with those that are too long cut into pieces."""
    return [min(part_max, length - start) for length in lengths for start in range(0, length, part_max)]


def runs_that_save_most(keys: Sequence[str], parts_max: int, part_max: int) -> list[int]:
    """Run lengths where the prefixes that save most get a part each, and the names in between share one.

    So with two thousand node pools and a thousand parts, about half of the pools are stored compactly.
    """
    lengths = run_lengths(keys)
    savings = [len(key) * length for (key, _), length in zip(groupby(keys), lengths, strict=True)]
    by_saving = sorted(range(len(lengths)), key=lambda run: (-savings[run], run))

    def parts(alone: int) -> list[int]:
        return split_runs(_merged(lengths, by_saving[:alone]), part_max)

    choices = range(min(parts_max, len(lengths)) + 1)
    alone = bisect_right(choices, parts_max, key=lambda choice: len(parts(choice))) - 1
    return parts(max(alone, 0))


def _shared_by(left: str, right: str, hint: str) -> str:
    """The longest common prefix. The search starts at `hint`, a prefix of the left name."""
    shared = hint
    while shared and not (right.startswith(shared) and len(shared) < len(right)):
        shared = shared[: shared.rfind("-", 0, -1) + 1]
    while (dash := left.find("-", len(shared))) >= 0:
        longer = left[: dash + 1]
        if not right.startswith(longer) or len(longer) >= min(len(left), len(right)):
            break
        shared = longer
    return shared


def _up_to_dash(key: str, dashes: int) -> str:
    return "".join(f"{part}-" for part in key.split("-")[:-1][:dashes])


def _merged(lengths: Sequence[int], alone: Iterable[int]) -> Iterator[int]:
    """Run lengths where the runs named stand alone and each stretch of others is one run."""
    start = 0
    for index in sorted(alone):
        if start < index:
            yield sum(lengths[start:index])
        yield lengths[index]
        start = index + 1
    yield sum(lengths[start:])
