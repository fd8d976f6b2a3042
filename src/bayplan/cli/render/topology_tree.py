"""Draws a tree of domains for a terminal: free capacity and what the gang takes; other domains are folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from bayplan.dialects.kube.fields.reader import printable
from bayplan.explanation.text import (
    amount_text,
    counted,
    importance,
    is_cap,
    plural,
    short_levels,
    short_resources,
)
from bayplan.model.assignment import Misfit, Placement
from bayplan.model.gang import Gang
from bayplan.model.node import PODS
from bayplan.placement.cluster.node_table import mask
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools

LINES_MAX = 60
COLUMNS_MAX = 3
RUN_MIN = 4  # this many hosts in the same state are joined in one line

Numbers = NDArray[np.float64]  # exact up to 2^53, and free of overflow beyond


@dataclass(frozen=True, slots=True)
class DrawingLine:
    """One line of the drawing. `free` and `takes` have one entry per resource column."""

    depth: int
    name: str
    free: tuple[str, ...]
    takes: tuple[str, ...] = ()
    pods: str = ""
    folded: bool = False
    hides: bool = False  # folded, though the gang uses it


@dataclass(frozen=True, slots=True)
class ClassColumn:
    """Devices of one class, by row: free, all, and those that the gang takes."""

    name: str
    free: tuple[int, ...]
    total: tuple[int, ...]
    takes: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """Amounts per leaf, to be summed over any domain."""

    supply: CapacitySnapshot
    resources: tuple[str, ...]
    free: tuple[Numbers, ...]
    total: tuple[Numbers, ...]
    takes: tuple[Numbers, ...]
    pods: Mapping[str, Numbers]  # by pod set
    marked: Numbers  # leaves to show one by one
    fits: Numbers | None = None  # for a misfit: how many of its pods each leaf would hold

    def below(self, level: int, numbers: Numbers) -> Numbers:
        """Sums over the domains of a level."""
        tree = self.supply.tree
        return np.add.reduceat(numbers, tree.first_leaves(level, np.arange(tree.size(level))))


def take_picture(
    gang: Gang, placement: Placement, supply: CapacitySnapshot, classes: Sequence[ClassColumn] = ()
) -> Picture:
    """What the gang takes from each leaf; for a misfit, the domain that came closest. Devices come first."""
    wants = {pod_set.name: pod_set.requests for pod_set in gang.root.pod_sets()}
    pods = {name: np.zeros(supply.leaves) for name in wants} if placement.ok else {}
    for name, here in pods.items():
        for share in placement.assignments[name].shares:
            leaf = supply.leaf(share.values)
            if leaf is not None:
                here[leaf] += share.count
    classes = classes[:COLUMNS_MAX]
    resources = _columns(gang)[: COLUMNS_MAX - len(classes)]
    takes = tuple(
        sum((pods[name] * wants[name].get(resource, 0) for name in pods), np.zeros(supply.leaves))
        for resource in resources
    )
    return Picture(
        supply=supply,
        resources=(*(one.name for one in classes), *resources),
        free=(
            *(_by_leaf(supply, np.where(supply.active, one.free, 0)) for one in classes),
            *(_free(supply, resource, supply.active) for resource in resources),
        ),
        total=(
            *(_by_leaf(supply, np.array(one.total)) for one in classes),
            *(_total(supply, resource) for resource in resources),
        ),
        takes=(*(_by_leaf(supply, np.array(one.takes)) for one in classes), *takes),
        pods=pods,
        marked=sum(pods.values(), np.zeros(supply.leaves)) if placement.ok else _closest(placement, supply),
        fits=None if placement.misfit is None else _fits(gang, placement.misfit, supply),
    )


def draw(picture: Picture, *, full: bool = False) -> list[Text]:
    """The lines of the drawing, aligned. Without `full`, at most about LINES_MAX lines."""
    if not picture.supply.leaves:
        return []
    lowest = picture.supply.tree.lowest
    if full:
        return _aligned(picture, list(_lines(picture, lowest, None)))
    lines: list[DrawingLine] = []
    for depth in range(lowest, -1, -1):
        for limit in (12, 6, 3):
            lines = list(_lines(picture, depth, limit))
            complete = not any(line.hides and line.depth < depth for line in lines)
            if complete and len(lines) <= LINES_MAX:
                return _aligned(picture, lines)
    return _aligned(picture, lines)


def _columns(gang: Gang) -> tuple[str, ...]:
    """The requested resources, devices first."""
    asked = {n for pod_set in gang.root.pod_sets() for n in pod_set.requests if not is_cap(n)}
    return tuple(sorted(asked, key=importance)[:COLUMNS_MAX])


def _free(supply: CapacitySnapshot, resource: str, rows: Bools) -> Numbers:
    """The free amount on the given rows, by leaf."""
    if resource not in supply.resources:
        return np.zeros(supply.leaves)
    row = supply.resources[resource]
    free = _by_leaf(supply, np.where(rows, supply.free[row], 0))
    if supply.claimed is not None:
        free = free - supply.claimed[row]
    return np.maximum(free, 0)


def _total(supply: CapacitySnapshot, resource: str) -> Numbers:
    amounts = (node.allocatable.get(resource, 0) for node in supply.tree.nodes)
    return _by_leaf(supply, np.fromiter(amounts, np.float64, supply.tree.rows))


def _by_leaf(supply: CapacitySnapshot, rows: NDArray[np.generic]) -> Numbers:
    return np.add.reduceat(rows.astype(np.float64), supply.tree.starts[supply.tree.lowest])


def _closest(placement: Placement, supply: CapacitySnapshot) -> Numbers:
    marked = np.zeros(supply.leaves)
    near = placement.misfit.nearest if placement.misfit else None
    if near is not None and near.domain:
        level = len(near.domain) - 1
        sizes = range(supply.tree.size(level))
        domain = next((one for one in sizes if supply.tree.path(level, one) == near.domain), None)
        if domain is not None:
            marked[slice(*supply.tree.leaf_range(level, domain))] = 1
    return marked


def _fits(gang: Gang, misfit: Misfit, supply: CapacitySnapshot) -> Numbers:
    """How many pods of the pod set that did not fit each leaf could hold."""
    stuck = next(pod_set for pod_set in gang.root.pod_sets() if pod_set.name in misfit.pod_sets)
    allowed = supply.active & mask(supply.table, stuck.rules)
    limit = np.full(supply.leaves, np.inf)
    for resource, amount in (dict(stuck.requests) | {PODS: 1}).items():
        free = _free(supply, resource, allowed)
        limit = np.minimum(limit, free // amount)
    return limit


def _lines(picture: Picture, deepest: int, limit: int | None) -> Iterator[DrawingLine]:
    """Top down: the domains that the gang uses, then the others in one line."""
    tree = picture.supply.tree
    marks = [picture.below(level, picture.marked) for level in range(len(tree.levels))]
    sums = {level: _Sums(picture, level) for level in range(deepest + 1)}

    def walk(level: int, domains: range) -> Iterator[DrawingLine]:
        touched = [domain for domain in domains if marks[level][domain]]
        others = [domain for domain in domains if not marks[level][domain]]
        runs = [[domain] for domain in touched]
        if limit is not None and level == deepest:
            runs = _runs(sums[level], touched)
        for run in runs[:limit]:
            yield sums[level].line(run)
            if level < deepest:
                first = int(tree.children[level][run[0]])
                yield from walk(level + 1, range(first, first + int(tree.spans[level][run[0]])))
        rest = [domain for run in runs[len(runs[:limit]) :] for domain in run]
        if rest:
            yield sums[level].fold(rest, touched=True)
        if others:
            yield sums[level].fold(others, touched=False, alone=not touched)

    yield from walk(0, range(tree.size(0)))


def _runs(sums: _Sums, domains: Sequence[int]) -> list[list[int]]:
    """Adjacent domains in the same state, joined if there are at least RUN_MIN of them."""
    runs: list[list[int]] = []
    for domain in domains:
        if runs and sums.state(domain) == sums.state(runs[-1][0]):
            runs[-1].append(domain)
        else:
            runs.append([domain])
    return [part for run in runs for part in ([run] if len(run) >= RUN_MIN else [[one] for one in run])]


class _Sums:
    """The amounts of the domains of one level, and their text."""

    def __init__(self, picture: Picture, level: int) -> None:
        tree = picture.supply.tree
        self.level = level
        self.tree = tree
        self.nodes = tree.nodes
        self.word = short_levels(tree.levels)[tree.levels[level]]
        self.resources = picture.resources
        self.free = [picture.below(level, numbers) for numbers in picture.free]
        self.total = [picture.below(level, numbers) for numbers in picture.total]
        self.takes = [picture.below(level, numbers) for numbers in picture.takes]
        self.fits = None if picture.fits is None else picture.below(level, picture.fits)
        self.pods = {name: picture.below(level, numbers) for name, numbers in picture.pods.items()}

    def state(self, domain: int) -> tuple[object, ...]:
        """The values that are equal for domains that look the same."""
        numbers = [*self.free, *self.total, *self.takes, *self.pods.values()]
        if self.fits is not None:
            numbers.append(self.fits)
        return *(float(each[domain]) for each in numbers), self._unusable(domain)

    def line(self, run: Sequence[int]) -> DrawingLine:
        """One domain, or a run of equal ones."""
        name = self._name(run[0])
        if len(run) > 1:
            name = f"{name} … {self._name(run[-1])} ({counted(len(run), self.word)})"
        name += self._unusable(run[0])
        return DrawingLine(
            self.level, f"{self.word} {name}", self._free(run), self._takes(run), self._pods(run)
        )

    def fold(self, domains: Sequence[int], *, touched: bool, alone: bool = False) -> DrawingLine:
        """Several domains in one line."""
        more = "" if alone else "more "
        word = self.word if len(domains) == 1 else plural(self.word)
        name = f"… {len(domains)} {more}{word}{' with pods' if touched else ''}"
        takes = self._takes(domains) if touched else ()
        pods = self._pods(domains)
        return DrawingLine(self.level, name, self._free(domains), takes, pods, folded=True, hides=touched)

    def _name(self, domain: int) -> str:
        return printable(self.tree.path(self.level, domain)[-1])

    def _free(self, domains: Sequence[int]) -> tuple[str, ...]:
        chosen = list(domains)
        return tuple(
            f"{amount_text(name, free[chosen].sum())} of {amount_text(name, total[chosen].sum())}"
            for name, free, total in zip(self.resources, self.free, self.total, strict=True)
        )

    def _takes(self, domains: Sequence[int]) -> tuple[str, ...]:
        chosen = list(domains)
        sums = [takes[chosen].sum() for takes in self.takes]
        return tuple(
            amount_text(name, amount) if amount else ""
            for name, amount in zip(self.resources, sums, strict=True)
        )

    def _unusable(self, domain: int) -> str:
        """Why a host accepts no pods."""
        if self.level < self.tree.lowest or not self.tree.topology.ends_at_host:
            return ""
        node = self.nodes[domain]
        return ", not ready" if not node.ready else "" if node.schedulable else ", cordoned"

    def _pods(self, domains: Sequence[int]) -> str:
        chosen = list(domains)
        if self.fits is not None:
            return str(int(self.fits[chosen].sum()))
        counts = {name: int(pods[chosen].sum()) for name, pods in self.pods.items()}
        if len(counts) == 1:
            return next((str(count) for count in counts.values() if count), "")
        return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _aligned(picture: Picture, lines: list[DrawingLine]) -> list[Text]:
    short = short_resources(picture.resources)
    takes_any = any(any(line.takes) for line in lines)
    heads = [""]
    for name in picture.resources:
        heads += [f"{short[name]} free", "takes"] if takes_any else [f"{short[name]} free"]
    heads.append("fits" if picture.fits is not None else "pods")
    rows = [_cells(line, len(picture.resources), takes_any=takes_any) for line in lines]
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    drawn = [_joined(heads, widths, "dim")]
    for line, row in zip(lines, rows, strict=True):
        drawn.append(_joined(row, widths, "dim" if line.folded else ""))
    return drawn


def _cells(line: DrawingLine, columns: int, *, takes_any: bool) -> list[str]:
    cells = ["  " * line.depth + line.name]
    for column in range(columns):
        cells.append(line.free[column])
        if takes_any:
            cells.append(line.takes[column] if line.takes else "")
    return [*cells, line.pods]


def _joined(cells: Sequence[str], widths: Sequence[int], style: str) -> Text:
    text = Text(cells[0].ljust(widths[0]), style=style)
    for cell, width in zip(cells[1:], widths[1:], strict=True):
        text.append("   " + cell.rjust(width), style=style)
    text.rstrip()
    return text
