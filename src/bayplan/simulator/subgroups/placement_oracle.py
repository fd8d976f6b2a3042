"""Whether a group's minima have room on free nodes: everything is tried, without the scheduler's engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayplan.dialects.kube.decode.wire import amounts_of
from bayplan.simulator.core.checkers import pods_on_nodes, used_by
from bayplan.simulator.subgroups.group_view import GroupView, SharedDomain, domain_of
from bayplan.simulator.subgroups.queue_view import Amounts, amounts_of_pod

Object = dict[str, Any]
STEPS_MAX = 20_000


class OutOfSteps(Exception):
    """Nobody knows."""


@dataclass(slots=True)
class FreeHosts:
    """Hosts with what is free on them."""

    nodes: Mapping[str, Object]
    free: dict[str, Amounts]
    steps: int = STEPS_MAX

    @staticmethod
    def of(nodes: Sequence[Object], pods: Sequence[Object]) -> FreeHosts:
        """As it is now; whoever is leaving still holds its room."""
        used = used_by(pods_on_nodes(pods))
        free = {}
        for node in nodes:
            name = node["metadata"]["name"]
            has = amounts_of(node["status"].get("allocatable"))
            free[name] = {key: amount - used.get(name, {}).get(key, 0) for key, amount in has.items()}
        return FreeHosts({node["metadata"]["name"]: node for node in nodes}, free)

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise OutOfSteps

    def fits(self, asked: Amounts, name: str) -> bool:
        return all(amount <= self.free[name].get(key, 0) for key, amount in asked.items())

    def take(self, asked: Amounts, name: str, sign: int = 1) -> None:
        for key, amount in asked.items():
            self.free[name][key] = self.free[name].get(key, 0) - sign * amount


@dataclass(slots=True)
class _Wish:
    """A pod that needs a node: which it may have, by itself."""

    leaf: str
    asked: Amounts
    nodes: tuple[str, ...]
    key: tuple[Any, ...] = field(default=())


def fits_on_free_hosts(view: GroupView, ground: FreeHosts) -> bool | None:
    """Whether all that its leaves lack could be bound now; None: nobody knows."""
    short, wishes = view.short(view.standing()), list[_Wish]()
    waiting = view.waiting()
    for leaf, lack in short.items():
        mine = [pod for pod in waiting if view.leaf_of(pod) == leaf]
        if len(mine) < lack:
            return False
        alike = {str((pod["spec"]["containers"][0]["resources"], _rules(pod))) for pod in mine}
        if len(mine) > lack and len(alike) > 1:
            return None
        wishes += [_wish(leaf, pod, ground) for pod in mine[:lack]]
    if not wishes or not all(wish.nodes for wish in wishes):
        return False
    wishes.sort(key=lambda wish: (-wish.asked.get("cpu", 0), wish.key))
    try:
        return any(_packs(wishes, allowed, ground, 0, -1) for allowed in _choices(view, ground))
    except OutOfSteps:
        return None


def _rules(pod: Object) -> tuple[Any, Any]:
    return pod["spec"].get("nodeSelector"), pod["spec"].get("tolerations")


def _wish(leaf: str, pod: Object, ground: FreeHosts) -> _Wish:
    nodes = tuple(name for name, node in ground.nodes.items() if _may(pod, node))
    asked = amounts_of_pod(pod)
    return _Wish(leaf, asked, nodes, (leaf, tuple(sorted(asked.items())), nodes))


def _may(pod: Object, node: Object) -> bool:
    """Whether a node takes a pod at all."""
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    tolerated = {one.get("key") for one in pod["spec"].get("tolerations") or ()}
    bad = [one for one in spec.get("taints") or () if one["effect"] != "PreferNoSchedule"]
    wanted = pod["spec"].get("nodeSelector") or {}
    ready = any(
        one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions") or ()
    )
    return (
        ready
        and not spec.get("unschedulable")
        and all(one["key"] in tolerated for one in bad)
        and wanted.items() <= labels.items()
    )


def _choices(view: GroupView, ground: FreeHosts) -> Iterator[dict[str, frozenset[str]]]:
    """Every way to choose a domain for each bond: the nodes that leaves are left with."""
    every = frozenset(ground.nodes)
    start = dict.fromkeys(view.minima, every)
    bonds = sorted(view.bonds, key=lambda bond: -len(bond.leaves))
    yield from _choose(view, ground, bonds, start)


def _choose(
    view: GroupView, ground: FreeHosts, bonds: Sequence[SharedDomain], allowed: dict[str, frozenset[str]]
) -> Iterator[dict[str, frozenset[str]]]:
    if not bonds:
        yield allowed
        return
    bond = bonds[0]
    pinned = [pod["spec"]["nodeName"] for pod in view.standing() if view.leaf_of(pod) in bond.leaves]
    for domain, nodes in _domains(bond.level, ground).items():
        ground.step()
        if all(node in nodes for node in pinned):
            inner = {
                leaf: some & nodes if leaf in bond.leaves else some for leaf, some in allowed.items()
            }  # fmt: skip
            if domain and any(inner[leaf] for leaf in bond.leaves if leaf in inner):
                yield from _choose(view, ground, bonds[1:], inner)


def _domains(level: str, ground: FreeHosts) -> dict[tuple[str, ...], frozenset[str]]:
    found: dict[tuple[str, ...], set[str]] = {}
    for name, node in ground.nodes.items():
        domain = domain_of(node["metadata"].get("labels") or {}, level)
        if domain is not None:
            found.setdefault(domain, set()).add(name)
    return {domain: frozenset(nodes) for domain, nodes in found.items()}


def _packs(
    wishes: Sequence[_Wish], allowed: Mapping[str, frozenset[str]], ground: FreeHosts, at: int, last: int
) -> bool:
    """Whether all from this one on have a node; of equal ones, later ones are on later nodes."""
    if at == len(wishes):
        return True
    wish = wishes[at]
    for number, name in enumerate(wish.nodes):
        if number < last or name not in allowed[wish.leaf] or not ground.fits(wish.asked, name):
            continue
        ground.step()
        ground.take(wish.asked, name)
        equal = at + 1 < len(wishes) and wishes[at + 1].key == wish.key
        found = _packs(wishes, allowed, ground, at + 1, number if equal else -1)
        ground.take(wish.asked, name, -1)
        if found:
            return True
    return False
