"""The live view of `bayplan up`: GPU use by rack, gangs with their state, and the last decisions."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bayplan.assembly.local_cluster import LocalCluster
from bayplan.backends.fake_controllers.manifests import GPU, TOPOLOGY
from bayplan.cli.live.rows import rows
from bayplan.dialects.kube.fields.reader import printable
from bayplan.explanation.text import counted
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.state.cluster.node_state import FLAT

BLOCKS_SHOWN = 12
RACKS_SHOWN = 16
BAR = 8
DECISIONS_SHOWN = 8
GANGS_SHOWN = 10
FRAME_LINES = 8  # the head, the borders of three panels, and the line of the cursor
FRAME_COLUMNS = 4
MARKS = "·░▒▓█"
LEGEND = "· free  ░ below 1/3  ▒ below 2/3  ▓ nearly full  █ full"


@dataclass(frozen=True, slots=True)
class ViewSize:
    """How many columns and lines each part of a frame may have."""

    columns: int = 10_000
    blocks: int = BLOCKS_SHOWN
    gangs: int = GANGS_SHOWN
    decisions: int = DECISIONS_SHOWN
    is_fixed: bool = False  # lines are cut off instead of wrapped

    @staticmethod
    def of(columns: int, lines: int) -> ViewSize:
        """For a terminal, from 80 columns and 24 lines."""
        left = max(lines - FRAME_LINES, 8)
        blocks = min(BLOCKS_SHOWN, left * 3 // 8)
        gangs = min(GANGS_SHOWN, left * 3 // 8)
        decisions = min(DECISIONS_SHOWN, left - blocks - gangs)
        return ViewSize(max(columns - FRAME_COLUMNS, 40), blocks, gangs, decisions, is_fixed=True)


EVERYTHING = ViewSize()


@dataclass(frozen=True, slots=True)
class Rack:
    """GPU use of one rack."""

    block: str
    name: str
    used: int
    total: int


def racks(cluster: LocalCluster) -> list[Rack]:
    """GPU use by rack of every topology, from the capacity snapshots; then nodes without a topology."""
    with cluster.lock:
        state = cluster.scheduler.state
        seen: set[str] = set()
        shown: list[Rack] = []
        for name in sorted(state.store.nodes.topologies, key=lambda name: (name != TOPOLOGY, name)):
            if name != FLAT.name:
                shown += _of_topology(state.store.nodes.topologies[name].snapshot(), seen)
        rest = [node for node in state.store.nodes.by_name.values() if node.name not in seen]
        if rest:
            used = _used(state.store.nodes.topologies[FLAT.name].snapshot())
            total = sum(node.allocatable.get(GPU, 0) for node in rest)
            busy = sum(used.get(node.name, 0) for node in rest)
            shown.append(Rack("no topology", counted(len(rest), "node"), busy, total))
    return shown


def _of_topology(supply: CapacitySnapshot, seen: set[str]) -> Iterator[Rack]:
    """The domains one level above the hosts; nodes shown by another topology are skipped."""
    tree, row = supply.tree, supply.resources.get(GPU)
    if not tree.rows:
        return
    level = max(tree.lowest - 1, 0)
    totals = np.add.reduceat([node.allocatable.get(GPU, 0) for node in tree.nodes], tree.starts[level])
    free = np.add.reduceat(supply.free[row], tree.starts[level]) if row is not None else totals
    fresh = {node.name for node in tree.nodes} - seen
    for domain in range(tree.size(level)):
        first = tree.nodes[tree.starts[level][domain]]
        if first.name in fresh:
            *above, own = tree.path(level, domain)
            total = int(totals[domain])
            yield Rack("/".join(above) or tree.topology.name, own, total - int(free[domain]), total)
    seen |= fresh


def _used(supply: CapacitySnapshot) -> dict[str, int]:
    """GPUs in use by node."""
    row = supply.resources.get(GPU)
    if row is None:
        return {}
    free = supply.free[row]
    return {
        node.name: node.allocatable.get(GPU, 0) - int(left)
        for node, left in zip(supply.tree.nodes, free, strict=True)
    }


def picture(cluster: LocalCluster, started: float, size: ViewSize = EVERYTHING) -> Group:
    """One frame."""
    shown = racks(cluster)
    used, total = sum(rack.used for rack in shown), sum(rack.total for rack in shown)
    seconds = cluster.clock.wall() - started
    with cluster.lock:
        nodes = len(cluster.scheduler.state.store.nodes.by_name)
    head = Text.assemble(
        ("Bayplan", "bold"),
        f"  {counted(nodes, 'node')}, {used:,} of {total:,} GPUs in use, {seconds:.0f} s",
    )
    return Group(
        head,
        Panel(rack_table(shown, size), title="GPUs in use, by block and rack", title_align="left"),
        Panel(_gangs(cluster, size), title="gangs", title_align="left"),
        Panel(_decisions(cluster, size), title="last decisions", title_align="left"),
    )


def rack_table(shown: Iterable[Rack], size: ViewSize) -> Table:
    """GPU use as bars by rack, or as marks where bars need more columns or lines than there are."""
    blocks: dict[str, list[Rack]] = {}
    for rack in shown:
        blocks.setdefault(rack.block, []).append(rack)
    widest = max((_columns(name, row) for name, row in blocks.items()), default=0)
    if size.is_fixed and (widest > size.columns or len(blocks) > size.blocks):
        return _marks(blocks, size)
    table = Table.grid(padding=(0, 2))
    for name, row in list(blocks.items())[:BLOCKS_SHOWN]:
        cells = [Text.assemble(printable(f"{rack.name} "), _bar(rack)) for rack in row[:RACKS_SHOWN]]
        more = [Text(f"… {len(row) - RACKS_SHOWN} more")] if len(row) > RACKS_SHOWN else []
        table.add_row(Text(printable(name), style="bold"), *cells, *more)
    if len(blocks) > BLOCKS_SHOWN:
        table.add_row(Text(f"… {len(blocks) - BLOCKS_SHOWN} more blocks"))
    return table


def _columns(block: str, row: list[Rack]) -> int:
    """The columns that a block needs with a bar for each rack."""
    return len(block) + sum(2 + len(rack.name) + 1 + BAR for rack in row[:RACKS_SHOWN]) + 12


def _marks(blocks: dict[str, list[Rack]], size: ViewSize) -> Table:
    """One mark for each rack, or for several; one line for each block, or for several, and a legend."""
    lines = max(1, size.blocks - 1)
    together = -(-len(blocks) // lines)
    names = list(blocks)
    groups = [names[n : n + together] for n in range(0, len(names), together)]
    titles = [some[0] if len(some) == 1 else f"{some[0]}–{some[-1]}" for some in groups]
    left = size.columns - max(map(len, titles)) - 2 - len(" 100 %  10,000 of 10,000")
    racks = max(sum(len(blocks[name]) for name in some) for some in groups)
    each = max(1, -(-racks // max(8, left)))
    table = Table.grid(padding=(0, 2))
    for title, some in zip(titles, groups, strict=True):
        row = [rack for name in some for rack in blocks[name]]
        used, total = sum(rack.used for rack in row), sum(rack.total for rack in row)
        marks = "".join(_mark(row[n : n + each]) for n in range(0, len(row), each))
        share = f"{round(100 * used / total)} %" if total else "no GPUs"
        amounts = f"{used:,} of {total:,}"
        table.add_row(
            Text(printable(title), style="bold"), Text(marks), Text(share, justify="right"), amounts
        )
    legend = f"one mark: {counted(each, 'rack')}; {LEGEND}"
    grid = Table.grid()
    grid.add_row(table)
    grid.add_row(Text(legend, style="dim", no_wrap=True, overflow="ellipsis"))
    return grid


def _mark(some: list[Rack]) -> str:
    used, total = sum(rack.used for rack in some), sum(rack.total for rack in some)
    if not used:
        return MARKS[0]
    return MARKS[-1] if used >= total else MARKS[1 + 3 * used // total]


def _bar(rack: Rack) -> tuple[str, str]:
    if not rack.total:
        return "no GPUs", "dim"
    filled = round(BAR * rack.used / rack.total)
    style = "red" if rack.used == rack.total else "yellow" if rack.used else "green"
    return "█" * filled + "░" * (BAR - filled), style


def _grid(size: ViewSize, columns: int) -> Table:
    """A table whose lines are cut off at the edge of a terminal."""
    table = Table.grid(padding=(0, 2))
    if size.is_fixed:
        for number in range(columns):
            table.add_column(no_wrap=True, overflow="ellipsis", ratio=1 if number == columns - 1 else None)
        table.expand = True
    return table


def _gangs(cluster: LocalCluster, size: ViewSize) -> Table:
    table = _grid(size, 4)
    all_rows = rows(cluster)
    count = size.gangs if len(all_rows) <= size.gangs or not size.is_fixed else size.gangs - 1
    for row in all_rows[:count]:
        table.add_row(
            Text(printable(f"{row.kind} {row.name}"), style="dim" if row.finished else "bold"),
            counted(row.pods, "pod"),
            Text(printable(row.state), style="dim" if row.finished else ""),
            Text(printable(row.why), style="yellow"),
        )
    if len(all_rows) > count:
        left = all_rows[count:]
        finished = sum(row.finished for row in left)
        table.add_row(f"… {len(left)} more", "", f"{finished} of them finished" if finished else "")
    return table if all_rows else _nothing("none")


def _decisions(cluster: LocalCluster, size: ViewSize) -> Table:
    table = _grid(size, 2)
    lines = list(cluster.decision_log.lines)[-size.decisions :]
    for when, line in lines:
        table.add_row(Text(clock_text(when), style="dim"), Text(printable(line)))
    return table if lines else _nothing("none yet")


def _nothing(word: str) -> Table:
    table = Table.grid()
    table.add_row(Text(word, style="dim"))
    return table


def clock_text(when: float) -> str:
    """A time of day in the local time zone."""
    return time.strftime("%H:%M:%S", time.localtime(when))
