"""Balanced placement: as even as possible over as few domains as possible."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.placement.counts import Counts
from bayplan.placement.request import Request
from bayplan.placement.select import Chosen
from bayplan.placement.tree import Tree


@dataclass(frozen=True, slots=True, eq=False)
class Even:
    counts: Counts
    chosen: Chosen


def choose(tree: Tree, counts: Counts, request: Request) -> Even | None:
    return None
