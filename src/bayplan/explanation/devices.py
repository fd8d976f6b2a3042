"""Which devices pods lack, in sentences: by claim, request and step, with the number of nodes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bayplan.explanation.text import counted
from bayplan.model.devices.claims import ALL, DeviceRequest, PodDevices
from bayplan.placement.cluster.node_index import NodeIndex
from bayplan.placement.devices.shortfall import DeviceShortfall, DeviceStep, device_shortfalls
from bayplan.placement.devices.supply import DeviceSupply

PODS_MAX = 512
STEPS = {
    DeviceStep.POOLS: "a pool of devices is incomplete or invalid, which its driver has to mend",
    DeviceStep.PUBLISHED: "too few devices are published",
    DeviceStep.CLASS: "too few devices are of the class",
    DeviceStep.SELECTORS: "the selectors of the request select too few devices",
    DeviceStep.TAINTS: "too few devices are without a taint that is not tolerated",
    DeviceStep.IN_USE: "too few devices are free",
    DeviceStep.CONSTRAINTS: "no free devices satisfy the constraints together",
    DeviceStep.TOGETHER: "the requests want the same devices",
}


def device_lines(supply: DeviceSupply, node_index: NodeIndex, devices: PodDevices) -> Iterator[str]:
    """How many such pods find devices, and at which step the other nodes fail."""
    counts = supply.counts(node_index, devices, PODS_MAX)
    fitting = int((counts > 0).sum())
    if not devices.claims:
        return
    pods = f"{PODS_MAX} or more pods" if int(counts.sum()) >= PODS_MAX else counted(int(counts.sum()), "pod")
    where = f"{fitting} of {counted(len(node_index), 'node')}"
    yield f"devices: {asked_text(devices)}; enough for {pods}, on {where}"
    short = node_index.table.nodes[np.flatnonzero(counts < 1)].tolist()
    found = device_shortfalls(supply.counter, short, devices.claims, supply.usage)
    for one in sorted(found, key=lambda one: (one.claim, one.request, one.step)):
        yield f"  {_sentence(one)}"


def asked_text(devices: PodDevices) -> str:
    """`claim gpus: 4 x gpu.example.com`: what a pod asks for by claims that have no devices yet."""
    return "; ".join(f"claim {claim.key.name}: {_asked(claim.requests)}" for claim in devices.claims)


def _asked(requests: tuple[DeviceRequest, ...]) -> str:
    """`4 x gpu.example.com or 2 x small.example.com`: what requests ask for, with their alternatives."""
    return ", ".join(
        " or ".join(f"{'all' if ask.mode == ALL else ask.count} x {ask.device_class}" for ask in request.asks)
        for request in requests
    )


def _sentence(one: DeviceShortfall) -> str:
    request = f", request {one.request}" if one.request else ""
    text = f"claim {one.claim}{request}: on {counted(one.nodes, 'node')} {STEPS[one.step]}"
    if one.step in (DeviceStep.CONSTRAINTS, DeviceStep.TOGETHER, DeviceStep.POOLS):
        return text
    return f"{text} (asked for {one.asked}, at most {one.most})"
