"""A small knapsack: exactly `number` domains with enough capacity and the least to spare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

WORK_MAX = 500_000_000
"""Machine words to process, about half a second; every step costs at least STEP_WORDS."""
STEP_WORDS = 100


@dataclass(slots=True)
class ReachableSums:
    """The sums that some choice of so many domains reaches, as a bit set: bit p stands for p pods.

    `steps` records, in order, which domain first reached which sums, so that a choice can be read back.
    """

    unled: int = 0  # sums without the leader placed yet
    done: int = 0
    steps: list[tuple[int, bool, int]] = field(default_factory=list)  # (domain, led, new done sums)
    unled_steps: list[tuple[int, int]] = field(default_factory=list)


def fewest(
    pods: Sequence[int], pods_led: Sequence[int], need: int, number: int, leader: bool
) -> list[int] | None:
    """Which `number` domains to take, as positions; None if they cannot hold `need`.

    A domain with 0 pods takes no workers; one with -1 in `pods_led` cannot lead. The first choice
    found, in the order given, wins among equals. If there are too many to try, the largest are taken; with a
    leader the result is None then.
    """
    if not leader and len(set(pods)) == 1:
        suits = number <= len(pods) and pods[0] * (number - 1) < need <= pods[0] * number
        return list(range(number)) if suits else None
    if len(pods) * number * (need // 64 + STEP_WORDS) > WORK_MAX:
        largest = sorted(range(len(pods)), key=lambda position: -pods[position])[:number]
        holds = not leader and len(largest) == number and sum(pods[at] for at in largest) >= need
        return sorted(largest) if holds else None
    layers = [ReachableSums() for _ in range(number + 1)]
    if leader:
        layers[0].unled = 1
    else:
        layers[0].done = 1
    unfinished = (1 << need) - 1  # sums that still lack pods
    for position, (room, room_led) in enumerate(zip(pods, pods_led, strict=True)):
        for depth in range(min(number, position + 1), 0, -1):
            _extend(layers[depth - 1], layers[depth], position, room, room_led, unfinished)
    enough = layers[number].done >> need
    if not enough:
        return None
    best = need + (enough & -enough).bit_length() - 1
    return _read_back(layers, pods, pods_led, number, best)


def _extend(
    before: ReachableSums, after: ReachableSums, position: int, room: int, room_led: int, unfinished: int
) -> None:
    """Add one domain to every choice with one domain less."""
    if room > 0:
        reached = ((before.done & unfinished) << room) & ~after.done
        if reached:
            after.done |= reached
            after.steps.append((position, False, reached))
    if before.unled:
        if room_led >= 0:
            reached = (before.unled << room_led) & ~after.done
            if reached:
                after.done |= reached
                after.steps.append((position, True, reached))
        if room > 0:
            reached = (before.unled << room) & ~after.unled
            if reached:
                after.unled |= reached
                after.unled_steps.append((position, reached))


def _read_back(
    layers: Sequence[ReachableSums], pods: Sequence[int], pods_led: Sequence[int], depth: int, total: int
) -> list[int]:
    chosen: list[int] = []
    unled = False
    while depth:
        if unled:
            position = next(at for at, sums in layers[depth].unled_steps if sums >> total & 1)
            total -= pods[position]
        else:
            position, led = next((at, led) for at, led, sums in layers[depth].steps if sums >> total & 1)
            total -= pods_led[position] if led else pods[position]
            unled = led
        chosen.append(position)
        depth -= 1
    return chosen[::-1]
