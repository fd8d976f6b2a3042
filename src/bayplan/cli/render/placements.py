"""Draws the placement of queued gangs, one drawing for each topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bayplan.cli.render.topology_tree import draw, take_picture
from bayplan.model.assignment import Misfit, Placement
from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.node_rules import Toleration
from bayplan.model.queued_gang import Admission
from bayplan.model.quota import Flavor
from bayplan.placement.cluster.snapshot import CapacitySnapshot


def drawn(
    gang: Gang,
    admission: Admission,
    flavors: Mapping[str, Flavor],
    supplies: Mapping[str, CapacitySnapshot],
    *,
    full: bool = False,
) -> list[str]:
    """One drawing for each topology in which the gang is placed."""
    lines: list[str] = []
    for topology, supply in sorted(supplies.items()):
        placed = {
            pod_set.name: pod_set.assignment
            for pod_set in admission.pod_sets
            if pod_set.assignment is not None and topology in _topologies(pod_set.flavors, flavors)
        }
        if placed:
            part = only(gang, placed)
            lines += [text.plain for text in draw(take_picture(part, Placement(placed), supply), full=full)]
    return lines


def drawn_misfit(gang: Gang, misfit: Misfit, supply: CapacitySnapshot) -> list[str]:
    """The drawing of the domain that came closest."""
    return [text.plain for text in draw(take_picture(gang, Placement({}, misfit), supply))]


def _topologies(chosen: Mapping[str, str], flavors: Mapping[str, Flavor]) -> set[str]:
    return {flavors[name].topology for name in chosen.values() if name in flavors}


def only(gang: Gang, wanted: Mapping[str, object]) -> Gang:
    """The gang with only the given pod sets."""
    pod_sets = tuple(pod_set for pod_set in gang.root.pod_sets() if pod_set.name in wanted)
    return replace(gang, root=replace(gang.root, members=pod_sets, minimum=len(pod_sets)))


def tolerating(gang: Gang, tolerations: tuple[Toleration, ...]) -> Gang:
    """The gang with the tolerations of a flavor added to its pods."""
    return replace(gang, root=_tolerating(gang.root, tolerations)) if tolerations else gang


def _tolerating(group: Group, more: tuple[Toleration, ...]) -> Group:
    members: list[Group | PodSet] = []
    for member in group.members:
        if isinstance(member, Group):
            members.append(_tolerating(member, more))
        else:
            rules = replace(member.rules, tolerations=member.rules.tolerations + more)
            members.append(replace(member, rules=rules))
    return replace(group, members=tuple(members))
