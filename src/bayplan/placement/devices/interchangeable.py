"""Which devices of a node are interchangeable: to swap two of them changes nothing for the asks of a pod.

If the search fails with one of them, it fails with the other: that need not be tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.placement.devices.in_use import DevicesInUse
from bayplan.placement.devices.problem import AskOnNode, NodeDevice, NodeProblem


def device_classes(problem: NodeProblem, in_use: DevicesInUse) -> tuple[int, ...]:
    """A number for each device of the node, the same for devices that are interchangeable."""
    attributes = sorted({one.match or one.distinct for claim in problem.claims for one in claim.constraints})
    candidates: list[list[tuple[int, str]]] = [[] for _ in problem.devices]
    for number, ask in enumerate(_asks(problem)):
        for position in ask.candidates.positions:
            candidates[position].append((number, ask.candidates.errors.get(position, "")))
    numbers: dict[object, int] = {}
    return tuple(
        numbers.setdefault((*_traits(found, attributes, in_use), tuple(chosen)), len(numbers))
        for found, chosen in zip(problem.devices, candidates, strict=True)
    )


def _asks(problem: NodeProblem) -> Iterator[AskOnNode]:
    return (ask for claim in problem.asks for request in claim for ask in request)


def _traits(found: NodeDevice, attributes: list[str], in_use: DevicesInUse) -> tuple[object, ...]:
    device, key = found.device, found.key
    return (
        found.pool.key, found.part.unusable, device.capacity, device.taints, device.consumes,
        device.shareable, key in in_use.alone, in_use.has_shares(key),
        tuple(sorted(in_use.consumed.get(key, {}).items())),
        tuple(device.attribute(key.driver, name) for name in attributes),
    )  # fmt: skip
