"""What `bayplan up` shows: racks filling up, who waits and why, and the last decisions."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bayplan.cli.home_cluster import HomeCluster
from bayplan.cli.words import shown_name
from bayplan.simulator.objects import BLOCK, GPU, RACK, TOPOLOGY
from bayplan.state.line import Place

BLOCKS_SHOWN = 12
RACKS_SHOWN = 16
BAR = 8
DECISIONS_SHOWN = 8
GANGS_SHOWN = 10
WORDS = {
    Place.INCOMPLETE: "its pods are being made",
    Place.READY: "next",
    Place.BACKOFF: "tried again soon",
    Place.PARKED: "waits for room",
    Place.MAKING_ROOM: "others make room",
    Place.COMMITTED: "is being bound",
    Place.RUNNING: "runs",
}


@dataclass(frozen=True, slots=True)
class Rack:
    """How full one rack is."""

    block: str
    name: str
    used: int
    total: int


def racks(cluster: HomeCluster) -> list[Rack]:
    """GPU use by rack, read off the arrays the engine works on."""
    with cluster.lock:
        board = cluster.scheduler.state.clusters.get(TOPOLOGY)
        if board is None:
            return []
        supply = board.snapshot()
        tree, row = supply.tree, supply.resources.get(GPU)
        if row is None or not tree.rows:
            return []
        free = np.add.reduceat(supply.free[row], tree.starts[1])
        total = np.add.reduceat([node.allocatable.get(GPU, 0) for node in tree.nodes], tree.starts[1])
        labels = [tree.nodes[first].labels for first in tree.starts[1]]
    return [
        Rack(label[BLOCK], label[RACK], int(all_ - left), int(all_))
        for label, left, all_ in zip(labels, free, total, strict=True)
    ]


def picture(cluster: HomeCluster, started: float) -> Group:
    """One frame."""
    found = racks(cluster)
    used, total = sum(rack.used for rack in found), sum(rack.total for rack in found)
    seconds = cluster.clock.wall() - started
    head = Text.assemble(
        ("Bayplan", "bold"),
        f"  {cluster.shape.nodes:,} nodes, {used:,} of {total:,} GPUs in use, {seconds:.0f} s",
    )
    return Group(
        head,
        Panel(_racks(found), title="GPUs in use, by block and rack", title_align="left"),
        Panel(_gangs(cluster), title="gangs", title_align="left"),
        Panel(_decisions(cluster), title="last decisions", title_align="left"),
    )


def _racks(found: Iterable[Rack]) -> Table:
    table = Table.grid(padding=(0, 2))
    blocks: dict[str, list[Rack]] = {}
    for rack in found:
        blocks.setdefault(rack.block, []).append(rack)
    for name, row in list(blocks.items())[:BLOCKS_SHOWN]:
        cells = [Text.assemble(f"{rack.name} ", _bar(rack)) for rack in row[:RACKS_SHOWN]]
        more = [Text(f"… {len(row) - RACKS_SHOWN} more")] if len(row) > RACKS_SHOWN else []
        table.add_row(Text(name, style="bold"), *cells, *more)
    if len(blocks) > BLOCKS_SHOWN:
        table.add_row(Text(f"… {len(blocks) - BLOCKS_SHOWN} more blocks"))
    return table


def _bar(rack: Rack) -> tuple[str, str]:
    filled = round(BAR * rack.used / rack.total) if rack.total else 0
    style = "red" if rack.used == rack.total else "yellow" if rack.used else "green"
    return "█" * filled + "░" * (BAR - filled), style


def _gangs(cluster: HomeCluster) -> Table:
    table = Table.grid(padding=(0, 2))
    with cluster.lock:
        state = cluster.scheduler.state
        rows = sorted(state.entries(), key=lambda entry: (-entry.priority, entry.since, entry.ref.name))
        for entry in rows[:GANGS_SHOWN]:
            pods = len(state.members.get(entry.ref, ()))
            refused = state.told(entry.ref) if entry.place in (Place.PARKED, Place.MAKING_ROOM) else None
            table.add_row(
                Text(f"{entry.ref.kind} {shown_name(entry.ref)}", style="bold"),
                "1 pod" if pods == 1 else f"{pods} pods",
                WORDS[entry.place],
                Text(cluster.words(refused, entry.ref) if refused else "", style="yellow"),
            )
        left = len(rows) - GANGS_SHOWN
    if left > 0:
        table.add_row(f"… {left} more")
    return table if rows else _nothing("none")


def _decisions(cluster: HomeCluster) -> Table:
    table = Table.grid(padding=(0, 2))
    lines = list(cluster.ticker.lines)[-DECISIONS_SHOWN:]
    for when, line in lines:
        table.add_row(Text(clock_text(when), style="dim"), line)
    return table if lines else _nothing("none yet")


def _nothing(word: str) -> Table:
    table = Table.grid()
    table.add_row(Text(word, style="dim"))
    return table


def clock_text(when: float) -> str:
    """A moment as the clock on the wall shows it."""
    return time.strftime("%H:%M:%S", time.localtime(when))
