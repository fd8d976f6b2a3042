"""A cluster with more racks than it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from bayplan.model.node import HOSTNAME, Node
from bayplan.simulation.traces.cluster_shapes import RACK

SWEEP_MAX = 64
SWEEP = re.compile(r"racks=(\d{1,4})\.\.(\d{1,4})")


class InvalidSweep(Exception):
    """A range or a target is invalid; the message says why."""


def parse_sweep(text: str) -> range:
    """`racks=0..8`. Raises InvalidSweep."""
    found = SWEEP.fullmatch(text.strip())
    if found is None or int(found[1]) > int(found[2]):
        raise InvalidSweep(f"{text[:60]!r} is no range of racks; give it as racks=0..8")
    if int(found[2]) - int(found[1]) >= SWEEP_MAX:
        raise InvalidSweep(f"{text[:60]!r} has more than {SWEEP_MAX} values; give fewer")
    return range(int(found[1]), int(found[2]) + 1)


def with_racks(nodes: Sequence[Node], count: int) -> tuple[Node, ...]:
    """The cluster with this many racks more, each like its largest rack. Raises InvalidSweep."""
    racks: dict[str, list[Node]] = {}
    for node in nodes:
        racks.setdefault(node.labels.get(RACK, ""), []).append(node)
    if "" in racks:
        raise InvalidSweep(f"racks can be added to a cluster whose nodes have the label {RACK} only")
    model = max(sorted(racks), key=lambda name: len(racks[name]))
    added = []
    for number in range(1, count + 1):
        for node in racks[model]:
            name = f"{node.name}-added-{number}"
            labels = {**node.labels, RACK: f"{model}-added-{number}"}
            if HOSTNAME in labels:
                labels[HOSTNAME] = name
            added.append(replace(node, name=name, labels=labels))
    return (*nodes, *added)
