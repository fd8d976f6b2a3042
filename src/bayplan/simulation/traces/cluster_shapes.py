"""Clusters from a short description (`4x8x16 gpu=8`) or from a table of hosts and switches."""

from __future__ import annotations

import math
from collections import defaultdict

from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.simulation.traces.trace_file import TraceError, table
from bayplan.simulation.traces.workload import CPU, GPU, MEMORY

BLOCK, RACK = "topology.bayplan/block", "topology.bayplan/rack"
LEVELS = (BLOCK, RACK)
SWITCH_COLUMNS = ("ip", "DSW", "PSW", "ASW")
GIB = 1 << 30
HOST = {"gpu": 0, "cpu": 128, "memory": 1024, "pods": 110}
"""The amounts of a host by key of the description: GPUs, cores, GiB, pods."""

NODES_MAX = 200_000


class InvalidShape(Exception):
    """The description of a cluster is invalid; the message says why."""


def is_shape(text: str) -> bool:
    """Whether a text describes a shape: it begins with numbers that are joined by `x`."""
    return all(part.isdecimal() for part in (text.split() or [""])[0].split("x"))


def parse_shape(text: str) -> tuple[Node, ...]:
    """The nodes of a shape: blocks x racks x hosts, racks x hosts, or hosts; all hosts are equal."""
    dimensions, *amounts = text.split()
    if not is_shape(text) or not 1 <= len(numbers := [int(part) for part in dimensions.split("x")]) <= 3:
        raise InvalidShape(f"the shape is {text[:60]!r}; give it as `4x8x16 gpu=8`: blocks, racks, hosts")
    if min(numbers) < 1 or math.prod(numbers) > NODES_MAX:
        raise InvalidShape(f"the shape {dimensions[:60]} has no hosts, or more than {NODES_MAX:,}")
    host = dict(HOST)
    for amount in amounts:
        key, _, value = amount.partition("=")
        if key not in host or not value.isdecimal() or len(value) > 9:
            raise InvalidShape(
                f"{amount[:40]!r} is no amount of a host; give {', '.join(host)}, each =NUMBER"
            )
        host[key] = int(value)
    blocks, racks, hosts = [1] * (3 - len(numbers)) + numbers
    return tuple(
        host_node(f"b{block:03d}-r{rack:03d}-h{at:03d}", f"b{block:03d}", f"b{block:03d}-r{rack:03d}", host)
        for block in range(blocks)
        for rack in range(racks)
        for at in range(hosts)
    )


def read_switches(path: str, gpus: int) -> tuple[Node, ...]:
    """A table of hosts with their switches: the aggregation switch is the block, the access switch the rack.

    Hosts are renamed by their place, because the table names them by a digest only. It has no amounts; each
    host gets this many GPUs.
    """
    racks: dict[tuple[str, str], int] = defaultdict(int)
    for row in table(path, SWITCH_COLUMNS):
        block, rack = row.text("PSW"), row.text("ASW")
        if not block or not rack:
            raise row.error("PSW or ASW is empty; give the switches of the host")
        racks[f"{row.text('DSW')}-{block}", rack] += 1
    if not racks:
        raise TraceError(path, None, "there are no hosts below the header")
    host = HOST | {"gpu": gpus}
    return tuple(
        host_node(f"{block}-{rack}-h{at:03d}", block, f"{block}-{rack}", host)
        for (block, rack), count in sorted(racks.items())
        for at in range(count)
    )


def host_node(name: str, block: str, rack: str, host: dict[str, int]) -> Node:
    """A host with labels for its block and rack. The names of racks are unique in the cluster."""
    amounts = {CPU: host["cpu"] * 1000, MEMORY: host["memory"] * GIB, PODS: host["pods"]}
    if host["gpu"]:
        amounts[GPU] = host["gpu"]
    return Node(name, {BLOCK: block, RACK: rack, HOSTNAME: name}, amounts)
