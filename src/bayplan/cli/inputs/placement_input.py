"""The scene of a placement: one topology, the nodes that take part, and the gangs to place on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from bayplan.cli.config.objects import Inputs, title
from bayplan.cli.config.read_files import InputDocument, InputProblem
from bayplan.cli.inputs.levels import inferred_topology, told_levels
from bayplan.dialects.kube.decode.pod_fields import usage_by_node
from bayplan.explanation.misfit import unplaceable
from bayplan.model.assignment import Misfit, Placement
from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.node import PODS, Node, Topology
from bayplan.model.node_rules import Taint, Toleration
from bayplan.model.numa import NodeZones, ZoneRules
from bayplan.model.profile import Profile
from bayplan.model.quota import Flavor
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.node_caps import aligned_use, place_aligned
from bayplan.placement.domains.request import resolve
from bayplan.placement.gang.place import place
from bayplan.placement.numa.columns import NumaColumns, zone_columns
from bayplan.state.cluster.topology_state import TopologyState


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """What the command line says about the scene."""

    profile: Profile
    levels: str | None = None
    topology: str | None = None
    flavor: str | None = None


@dataclass(frozen=True, slots=True)
class PlacementInput:
    """Ready to place."""

    topology: Topology
    nodes: tuple[Node, ...]
    usage: Mapping[str, Mapping[str, int]]  # of pods that run already, by node
    gangs: tuple[Gang, ...]
    profile: Profile
    left_out: Mapping[str, int]  # nodes that cannot take part, by reason
    zones: Mapping[str, NodeZones] = field(default_factory=dict)  # of those that tell, by node


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """A gang, the room it found, and what came of it."""

    gang: Gang
    supply: CapacitySnapshot
    placement: Placement
    asked: Gang  # the gang with what zones add to its requests
    columns: NumaColumns | None = None  # the zones that it found, if any node tells of some


class InvalidInput(Exception):
    """The input cannot make a scene; the problems say why."""

    def __init__(self, *problems: InputProblem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def build_scene(inputs: Inputs, wishes: PlaceOptions) -> PlacementInput:
    """Choose flavor and topology, and see that every gang can be understood. Unfit if not."""
    missing = []
    if not inputs.nodes:
        missing.append(InputProblem("", "", "there is no Node in the input: nothing to place on"))
    if not inputs.gangs:
        missing.append(
            InputProblem("", "", "there is no Job, JobSet or Workload in the input: nothing to place")
        )
    if missing:
        raise InvalidInput(*missing)
    flavor = _choose_flavor(inputs.flavors, wishes)
    gangs = tuple(_tolerating(gang, flavor.tolerations) for _, gang in inputs.gangs)
    members = [node for node in inputs.nodes.values() if flavor.labels.items() <= node.labels.items()]
    topology = _choose_topology(inputs, wishes, flavor, members)
    problems = [
        problem
        for (document, _), gang in zip(inputs.gangs, gangs, strict=True)
        for problem in _check_gang(document, gang, topology, wishes.profile)
    ]
    if problems:
        raise InvalidInput(*problems)
    return PlacementInput(
        topology=topology,
        nodes=tuple(replace(node, taints=_merged(node, flavor)) for node in members),
        usage=usage_by_node(inputs.uses),
        gangs=gangs,
        profile=wishes.profile,
        left_out=_left_out(inputs, members, topology),
        zones=inputs.zones,
    )


def place_all(scene: PlacementInput) -> Iterator[PlacementResult]:
    """Place one gang after the other, each seeing what the earlier ones took."""
    cluster = TopologyState(scene.topology)
    cluster.load(scene.nodes)
    for name, amounts in scene.usage.items():
        cluster.use_node(name, amounts)
    columns: NumaColumns | None = None
    for gang in scene.gangs:
        if scene.zones and columns is None:
            columns = zone_columns(cluster.snapshot().tree.nodes.tolist(), scene.zones)
        find = partial(place, profile=scene.profile)
        aligned = place_aligned(cluster.snapshot(), gang, columns, scene.profile.zones, find)
        supply, placement = aligned.supply, aligned.placement
        yield PlacementResult(gang, supply, placement, aligned.gang, columns)
        if placement.ok:
            _hold(cluster, gang, placement)
            if columns is not None and scene.topology.ends_at_host:
                columns = _sit(columns, supply, gang, placement, scene.profile.zones)


def rows_of(supply: CapacitySnapshot, placement: Placement, pod_set: str) -> dict[int, int]:
    """How many pods of a pod set each row gets, where leaves are hosts."""
    found: dict[int, int] = {}
    for share in placement.assignments[pod_set].shares:
        leaf = supply.leaf(share.values)
        if leaf is not None:
            found[leaf] = found.get(leaf, 0) + share.count
    return found


def _sit(
    columns: NumaColumns, supply: CapacitySnapshot, gang: Gang, placement: Placement, rules: ZoneRules
) -> NumaColumns:
    for pod_set in gang.root.pod_sets():
        rows = rows_of(supply, placement, pod_set.name)
        at, pods = np.array(list(rows.items()), np.int64).reshape(-1, 2).T
        columns = aligned_use(columns, pod_set, at, pods, rules)
    return columns


def _hold(cluster: TopologyState, gang: Gang, placement: Placement) -> None:
    for pod_set in gang.root.pod_sets():
        for share in placement.assignments[pod_set.name].shares:
            amounts = {name: amount * share.count for name, amount in pod_set.requests.items()}
            cluster.use_domain(share.values, amounts | {PODS: share.count})


def _choose_flavor(flavors: list[Flavor], wishes: PlaceOptions) -> Flavor:
    named = [flavor for flavor in flavors if wishes.flavor in (None, flavor.name)]
    if wishes.flavor is not None and not named:
        known = ", ".join(flavor.name for flavor in flavors) or "none"
        raise InvalidInput(
            InputProblem("", "--flavor", f"there is no ResourceFlavor {wishes.flavor}; there are: {known}")
        )
    if len(named) > 1:
        names = ", ".join(flavor.name for flavor in named)
        raise InvalidInput(
            InputProblem("", "", f"there are several ResourceFlavors ({names}): choose one with --flavor")
        )
    return named[0] if named else Flavor("")


def _choose_topology(inputs: Inputs, wishes: PlaceOptions, flavor: Flavor, members: list[Node]) -> Topology:
    if wishes.levels is not None:
        return _told(wishes.levels, members)
    name = wishes.topology or flavor.topology or None
    given = [topology for topology in inputs.topologies if name in (None, topology.name)]
    if name is not None and not given:
        known = ", ".join(topology.name for topology in inputs.topologies) or "none"
        source = "--topology" if wishes.topology else f"ResourceFlavor {flavor.name}"
        raise InvalidInput(InputProblem("", source, f"there is no Topology {name}; there are: {known}"))
    if len(given) > 1:
        names = ", ".join(topology.name for topology in given)
        raise InvalidInput(
            InputProblem("", "", f"there are several Topologies ({names}): choose one with --topology")
        )
    return given[0] if given else inferred_topology(members, [gang for _, gang in inputs.gangs])


def _told(text: str, members: list[Node]) -> Topology:
    try:
        levels = told_levels(text)
    except ValueError as wrong:
        raise InvalidInput(InputProblem("", "--levels", str(wrong))) from None
    unknown = [level for level in levels if not any(level in node.labels for node in members)]
    if unknown:
        raise InvalidInput(
            *(InputProblem("", "--levels", f"no node has a label {level}") for level in unknown)
        )
    return Topology("--levels", levels)


def _check_gang(
    document: InputDocument, gang: Gang, topology: Topology, profile: Profile
) -> Iterator[InputProblem]:
    """Levels that the topology does not have, and segments that do not nest, can never fit."""
    for pod_set in gang.root.pod_sets():
        answer = resolve(pod_set, pod_set.locality, topology, profile)
        if isinstance(answer, Misfit):
            where = f"{title(document)}, pod set {pod_set.name}"
            yield InputProblem(document.file, where, unplaceable(answer, topology))


def _tolerating(gang: Gang, tolerations: tuple[Toleration, ...]) -> Gang:
    return replace(gang, root=_with_tolerations(gang.root, tolerations)) if tolerations else gang


def _with_tolerations(group: Group, tolerations: tuple[Toleration, ...]) -> Group:
    members: list[Group | PodSet] = []
    for member in group.members:
        if isinstance(member, Group):
            members.append(_with_tolerations(member, tolerations))
        else:
            rules = replace(member.rules, tolerations=member.rules.tolerations + tolerations)
            members.append(replace(member, rules=rules))
    return replace(group, members=tuple(members))


def _merged(node: Node, flavor: Flavor) -> tuple[Taint, ...]:
    return node.taints + tuple(taint for taint in flavor.taints if taint not in node.taints)


def _left_out(inputs: Inputs, members: list[Node], topology: Topology) -> Counter[str]:
    """Why nodes of the input play no part, each counted once."""
    found = Counter({"of another flavor": len(inputs.nodes) - len(members)})
    for node in members:
        lacking = [level for level in topology.levels if level not in node.labels]
        if lacking:
            found[f"without label {lacking[0]}"] += 1
        elif not node.ready:
            found["not ready"] += 1
        elif not node.schedulable:
            found["cordoned"] += 1
    return +found
