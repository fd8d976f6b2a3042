"""What is possible and what is right, by trying everything: plain recursion over dicts, no engine in it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Leaf = tuple[str, ...]
HOST = "kubernetes.io/hostname"


def usable(world: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    return node["ready"] and node["schedulable"] and all(level in node["labels"] for level in world["levels"])


def accepts(ask: Mapping[str, Any], node: Mapping[str, Any]) -> bool:
    """Whether the pod set's own rules allow the node."""
    return (
        all(node["labels"].get(key) == value for key, value in ask["select"].items())
        and (not ask["affinity"] or node["labels"].get("kind") in ask["affinity"])
        and set(node["taints"]) <= set(ask["tolerates"])
    )


def pod_needs(ask: Mapping[str, Any]) -> dict[str, int]:
    return {**ask["requests"], "pods": 1}


def leaf_of(world: Mapping[str, Any], node: Mapping[str, Any]) -> Leaf:
    return tuple(node["labels"][level] for level in world["levels"])


def leaf_free(
    world: Mapping[str, Any], ask: Mapping[str, Any], taken: Mapping[Leaf, Mapping[str, int]]
) -> dict[Leaf, dict[str, int]]:
    """What the pod set may use of every leaf, after what was taken there already."""
    free: dict[Leaf, dict[str, int]] = {}
    for node in world["nodes"]:
        if usable(world, node) and accepts(ask, node):
            total = free.setdefault(leaf_of(world, node), {})
            for name, amount in node["free"].items():
                total[name] = total.get(name, 0) + amount
    for leaf, amounts in taken.items():
        for name, amount in amounts.items():
            if leaf in free:
                free[leaf][name] = free[leaf].get(name, 0) - amount
    return free


def copies(free: Mapping[str, int], needs: Mapping[str, int]) -> int:
    """How many pods, counted one by one."""
    count = 0
    while all(free.get(name, 0) >= amount * (count + 1) for name, amount in needs.items()):
        count += 1
    return count


def room(
    world: Mapping[str, Any], ask: Mapping[str, Any], taken: Mapping[Leaf, Mapping[str, int]] | None = None
) -> dict[Leaf, int]:
    """Pods per leaf."""
    return {leaf: copies(free, pod_needs(ask)) for leaf, free in leaf_free(world, ask, taken or {}).items()}


def domains(leaves: Iterable[Leaf], depth: int) -> dict[Leaf, list[Leaf]]:
    """Leaves by their domain `depth` levels below the top; depth 0 is everything."""
    found: dict[Leaf, list[Leaf]] = {}
    for leaf in leaves:
        found.setdefault(leaf[:depth], []).append(leaf)
    return found


def can_hold(caps: Mapping[Leaf, int], count: int, layers: Sequence[tuple[int, int]]) -> bool:
    """Whether `count` pods fit, every `size` of them (a last, smaller lot too) in one domain of `depth`."""
    if not layers:
        return sum(caps.values()) >= count
    (size, depth), inner = layers[0], layers[1:]
    lots = [{leaf: caps[leaf] for leaf in leaves} for leaves in domains(caps, depth).values()]
    return _dealt(lots, count // size, count % size, size, inner)


def _dealt(
    lots: Sequence[Mapping[Leaf, int]], whole: int, rest: int, size: int, inner: Sequence[tuple[int, int]]
) -> bool:
    """Give the first domain any number of whole lots, with or without the rest, and try the others."""
    if not whole and not rest:
        return True
    if not lots:
        return False
    return any(
        can_hold(lots[0], number * size + extra, inner)
        and _dealt(lots[1:], whole - number, rest - extra, size, inner)
        for number in range(whole + 1)
        for extra in {0, rest}
    )


def layers_of(world: Mapping[str, Any], ask: Mapping[str, Any]) -> list[tuple[int, int]]:
    return [(size, world["levels"].index(level) + 1) for size, level in ask["segments"]]


def wanted(ask: Mapping[str, Any], leave_out: bool) -> int:
    """How many pods are to be placed."""
    size, count = ask["segments"][0][0] if ask["segments"] else 1, int(ask["count"])
    return count // size * size if leave_out else count


def depth_of(world: Mapping[str, Any], level: str) -> int:
    return list(world["levels"]).index(level) + 1


def lowest_depth(
    world: Mapping[str, Any], ask: Mapping[str, Any], start: int, leave_out: bool,
    leader: Mapping[str, Any] | None = None,
) -> int | None:  # fmt: skip
    """From depth `start` upwards: the first depth where one domain holds everything."""
    for depth in range(start, 0, -1):
        if exists(world, ask, depth, leave_out, leader):
            return depth
    return None


def exists(
    world: Mapping[str, Any], ask: Mapping[str, Any], depth: int, leave_out: bool,
    leader: Mapping[str, Any] | None = None,
) -> bool:  # fmt: skip
    """Whether some domain `depth` levels down (0: the whole world) holds the pods, and their leader."""
    if leader is None and not wanted(ask, leave_out):
        return any(usable(world, node) for node in world["nodes"])
    seats: list[dict[Leaf, dict[str, int]]] = [{}]
    if leader is not None:
        seats = [{leaf: pod_needs(leader)} for leaf, count in room(world, leader).items() if count]
    for taken in seats:
        caps = room(world, ask, taken)
        for leaf in taken:
            caps.setdefault(leaf, 0)
        for domain, leaves in domains(caps, depth).items():
            if all(leaf[:depth] == domain for leaf in taken):
                here = {leaf: caps[leaf] for leaf in leaves}
                if can_hold(here, wanted(ask, leave_out), layers_of(world, ask)):
                    return True
    return False


def start_depth(world: Mapping[str, Any], ask: Mapping[str, Any]) -> int:
    """Where a locality starts looking: its level, or for auto the lowest that the segments allow."""
    if ask["level"] != "auto":
        return depth_of(world, ask["level"])
    return depth_of(world, ask["segments"][0][1]) if ask["segments"] else len(world["levels"])


def feasible(
    world: Mapping[str, Any], ask: Mapping[str, Any], leave_out: bool, leader: Mapping[str, Any] | None = None
) -> bool:
    """Whether the request can be met at all."""
    if ask["how"] == "required":
        depth = 1 if ask["level"] == "auto" else depth_of(world, ask["level"])
        return exists(world, ask, depth, leave_out, leader)
    return exists(world, ask, 0, leave_out, leader)


def all_fit(
    world: Mapping[str, Any], members: Sequence[Mapping[str, Any]], leave_out: bool,
    taken: Mapping[Leaf, Mapping[str, int]] | None = None,
) -> bool:  # fmt: skip
    """Whether pod sets can all be placed, each with its own locality, in any way and not just in turn."""
    if not members:
        return any(usable(world, node) for node in world["nodes"])
    ask, taken = members[0], taken or {}
    depth = 0
    if ask["how"] == "required":
        depth = 1 if ask["level"] == "auto" else depth_of(world, ask["level"])
    for pods in ways(sorted(room(world, ask, taken).items()), wanted(ask, leave_out)):
        if not apart(pods, depth) and can_hold(pods, sum(pods.values()), layers_of(world, ask)):
            use = {leaf: Counter(taken.get(leaf, {})) for leaf in {*taken, *pods}}
            for leaf, count in pods.items():
                use[leaf].update({name: amount * count for name, amount in pod_needs(ask).items()})
            if all_fit(world, members[1:], leave_out, use):
                return True
    return False


def ways(caps: Sequence[tuple[Leaf, int]], count: int) -> Iterator[dict[Leaf, int]]:
    """Every way to lay out that many pods."""
    if not caps:
        if not count:
            yield {}
        return
    (leaf, cap), rest = caps[0], caps[1:]
    for here in range(min(cap, count) + 1):
        for others in ways(rest, count - here):
            yield {leaf: here, **others} if here else others


# ── what is wrong with an answer ───────────────────────────────────────────────────────────────────


def overcommitted(
    world: Mapping[str, Any], placed: Sequence[tuple[Mapping[str, Any], Sequence[Leaf]]]
) -> Iterator[str]:
    """Leaves that hold more than they have: all pod sets together, and any few on the nodes they accept."""
    for several in _subsets(placed):
        use: dict[Leaf, Counter[str]] = {}
        for ask, leaves in several:
            for leaf in leaves:
                use.setdefault(leaf, Counter()).update(pod_needs(ask))
        have: dict[Leaf, Counter[str]] = {}
        for node in world["nodes"]:
            if usable(world, node) and any(accepts(ask, node) for ask, _ in several):
                have.setdefault(leaf_of(world, node), Counter()).update(node["free"])
        for leaf, amounts in use.items():
            for name, amount in amounts.items():
                if amount > have.get(leaf, Counter())[name]:
                    names = [ask["name"] for ask, _ in several]
                    yield f"{names} use {amount} {name} of {leaf}, which has {have.get(leaf)}"


def _subsets(
    placed: Sequence[tuple[Mapping[str, Any], Sequence[Leaf]]],
) -> Iterator[Sequence[tuple[Mapping[str, Any], Sequence[Leaf]]]]:
    for size in range(1, len(placed) + 1):
        yield from itertools.combinations(placed, size)


def broken_segments(
    world: Mapping[str, Any], ask: Mapping[str, Any], leaves: Sequence[Leaf]
) -> Iterator[str]:
    """Every `size` consecutive ranks share a domain; so do the last ones that are fewer."""
    for size, depth in layers_of(world, ask):
        for start in range(0, len(leaves), size):
            lot = {leaf[:depth] for leaf in leaves[start : start + size]}
            if len(lot) > 1:
                yield f"ranks {start}.. of {size} stand in {sorted(lot)}"


def apart(leaves: Iterable[Leaf], depth: int) -> bool:
    """Whether some pods stand in different domains."""
    return len({leaf[:depth] for leaf in leaves}) > 1


def wrongs(
    world: Mapping[str, Any], ask: Mapping[str, Any], leaves: Sequence[Leaf], leave_out: bool
) -> list[str]:
    """All that one pod set's answer breaks, by itself."""
    found = list(overcommitted(world, [(ask, leaves)]))
    found += broken_segments(world, ask, leaves)
    if len(leaves) != wanted(ask, leave_out):
        found.append(f"{len(leaves)} placed, {wanted(ask, leave_out)} wanted")
    if ask["how"] == "required" and ask["level"] != "auto" and apart(leaves, depth_of(world, ask["level"])):
        found.append(f"not in one {ask['level']}: {leaves}")
    return found
