"""Encode topology assignments: `domains` (v1beta1) and `slices` (v1beta2).

A slice holds once what its domains have in common: a value or count that all share is `universal`; values
that differ are a common prefix, a common suffix and the `roots` between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import msgspec

from bayplan.dialects.kueue.fields.name_prefixes import (
    common_prefix,
    common_suffix,
    fewer_parts,
    run_lengths,
    runs_that_save_most,
    shared_prefixes,
    split_runs,
)
from bayplan.model.assignment import Assignment, DomainAssignment, Path
from bayplan.model.node import HOSTNAME

Slice = dict[str, Any]
SLICES_MAX = 1_000
ROOTS_MAX = 100_000
BYTES_TARGET = 1_400_000
"""Target size of an assignment; etcd accepts 1.5 MiB for the whole Workload."""


def hosts_only(assignment: Assignment) -> Assignment:
    """The assignment without its upper levels if the lowest is the hostname, which implies them."""
    if len(assignment.levels) < 2 or assignment.levels[-1] != HOSTNAME:
        return assignment
    shares = tuple(DomainAssignment(share.values[-1:], share.count) for share in assignment.shares)
    return Assignment((HOSTNAME,), shares, assignment.proven)


def node_of(levels: Sequence[str], values: Path) -> str | None:
    """The node that a domain of these levels is, or None if it is more than one node."""
    return values[-1] if levels and levels[-1] == HOSTNAME and values else None


def pods_on_node(assignment: Assignment, node: str) -> int:
    """How many pods the assignment has on the node; 0 if it does not name nodes."""
    on_node = (s.count for s in assignment.shares if node_of(assignment.levels, s.values) == node)
    return sum(on_node)


def pods_inside(assignment: Assignment, domain: Path) -> int:
    """How many pods the assignment has in the domain or below it; the empty path is everywhere."""
    return sum(share.count for share in assignment.shares if share.values[: len(domain)] == domain)


def encode_domains(assignment: Assignment) -> dict[str, Any]:
    """The v1beta1 form: every domain in full."""
    domains = [{"values": list(share.values), "count": share.count} for share in assignment.shares]
    return {"levels": list(assignment.levels), "domains": domains}


def encode_slices(assignment: Assignment, *, by_node_prefix: bool = True) -> dict[str, Any]:
    """The v1beta2 form: one slice, or one per run of nodes with a common name prefix if that is smaller."""
    columns, counts = _columns(assignment), [share.count for share in assignment.shares]
    best = _slices(columns, counts, [len(counts)])
    if by_node_prefix and len(counts) > 1 and assignment.levels[-1:] == (HOSTNAME,):
        prefixes = shared_prefixes(columns[-1])
        runs = run_lengths(fewer_parts(prefixes, SLICES_MAX, ROOTS_MAX))
        if len(runs) > 1:
            best = _smaller(_slices(columns, counts, runs), best)
        if _size(best) > BYTES_TARGET:
            runs = runs_that_save_most(prefixes, SLICES_MAX, ROOTS_MAX)
            best = _smaller(best, _slices(columns, counts, runs))
    return {"levels": list(assignment.levels), "slices": best}


def _columns(assignment: Assignment) -> list[list[str]]:
    """The values of all shares, level by level."""
    return [[share.values[level] for share in assignment.shares] for level in range(len(assignment.levels))]


def _smaller(first: list[Slice], second: list[Slice]) -> list[Slice]:
    return second if _size(second) < _size(first) else first


def _size(slices: list[Slice]) -> int:
    return len(msgspec.json.encode(slices))


def _slices(columns: list[list[str]], counts: list[int], runs: Iterable[int]) -> list[Slice]:
    """One slice per run of domains, cut further where a slice may not hold so many."""
    bounds = accumulate(split_runs(runs, ROOTS_MAX), initial=0)
    return [
        {
            "domainCount": stop - start,
            "valuesPerLevel": [_level_values(column[start:stop]) for column in columns],
            "podCounts": _pod_counts(counts[start:stop]),
        }
        for start, stop in pairwise(bounds)
    ]


def _level_values(values: list[str]) -> dict[str, Any]:
    prefix, suffix = common_prefix(values), common_suffix(values)
    if values.count(prefix) == len(values):
        return {"universal": prefix}
    individual: dict[str, Any] = {}
    if prefix and suffix:  # they must not overlap: "aba" and "ababa" share the prefix and the suffix "aba"
        prefix = prefix[: min(map(len, values)) - len(suffix)]
    if prefix:
        individual["prefix"] = prefix
    if suffix:
        individual["suffix"] = suffix
    start, end = len(prefix), -len(suffix) or None
    individual["roots"] = [value[start:end] for value in values]
    return {"individual": individual}


def _pod_counts(counts: list[int]) -> dict[str, Any]:
    return {"universal": counts[0]} if counts.count(counts[0]) == len(counts) else {"individual": counts}
