"""The input of `bayplan place`: one topology, the nodes of the flavor, and the gangs to place on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from bayplan.cli.config.device_inputs import DeviceInputs
from bayplan.cli.config.objects import Inputs, title
from bayplan.cli.config.read_files import InputDocument, InputProblem
from bayplan.cli.inputs.levels import inferred_topology, parse_levels
from bayplan.cli.inputs.placement_devices import PlacementDevices, TakenDevices, with_takes
from bayplan.cli.render.topology_tree import ClassColumn
from bayplan.dialects.kube.decode.pod_fields import usage_by_node
from bayplan.explanation.misfit import lacks_devices, unplaceable
from bayplan.model.assignment import Misfit, Placement
from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.node import PODS, Node, Topology
from bayplan.model.node_rules import Taint, Toleration
from bayplan.model.numa import NodeZones, ZoneRules
from bayplan.model.profile import Profile
from bayplan.model.quota import Flavor
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.node_caps import Aligned, aligned_use, place_aligned
from bayplan.placement.domains.request import resolve
from bayplan.placement.gang.place import place
from bayplan.placement.numa.columns import NumaColumns, zone_columns
from bayplan.state.cluster.topology_state import TopologyState


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """The options of `bayplan place` that select topology, flavor and strategy."""

    profile: Profile
    levels: str | None = None
    topology: str | None = None
    flavor: str | None = None


@dataclass(frozen=True, slots=True)
class PlacementInput:
    """A validated input."""

    topology: Topology
    nodes: tuple[Node, ...]
    usage: Mapping[str, Mapping[str, int]]  # of running pods, by node
    gangs: tuple[Gang, ...]
    profile: Profile
    left_out: Mapping[str, int]  # numbers of unusable nodes, by reason
    zones: Mapping[str, NodeZones] = field(default_factory=dict)  # NUMA reports by node
    devices: DeviceInputs | None = None  # if a gang claims any


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """A gang, the capacity before it was placed, and its placement."""

    gang: Gang
    supply: CapacitySnapshot
    placement: Placement
    asked: Gang  # the gang with NUMA constraints added to its requests
    columns: NumaColumns | None = None  # the NUMA zones, if any node reports them
    classes: tuple[ClassColumn, ...] = ()  # devices of the classes that it claims, before it was placed
    taken: tuple[TakenDevices, ...] = ()
    shortages: tuple[str, ...] = ()  # why nodes have no devices for it


class InvalidInput(Exception):
    """The input is invalid; the problems say why."""

    def __init__(self, *problems: InputProblem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


def build_input(inputs: Inputs, options: PlaceOptions) -> PlacementInput:
    """Choose flavor and topology, and validate every gang. Raises InvalidInput."""
    missing = []
    if not inputs.nodes:
        missing.append(InputProblem("", "", "there is no Node in the input; add the nodes to place on"))
    if not inputs.gangs:
        missing.append(
            InputProblem("", "", "there is no Job, JobSet or Workload in the input; add a gang to place")
        )
    if missing:
        raise InvalidInput(*missing)
    flavor = _choose_flavor(inputs.flavors, options)
    gangs = tuple(_tolerating(gang, flavor.tolerations) for _, gang in inputs.gangs)
    members = [node for node in inputs.nodes.values() if flavor.labels.items() <= node.labels.items()]
    topology = _choose_topology(inputs, options, flavor, members)
    problems = [
        problem
        for (document, _), gang in zip(inputs.gangs, gangs, strict=True)
        for problem in _check_gang(document, gang, topology, options.profile)
    ]
    for (document, _), gang in zip(inputs.gangs, gangs, strict=True):
        problems += [
            InputProblem(document.file, title(document), why) for why in inputs.devices.problems(gang.source)
        ]
    if problems:
        raise InvalidInput(*problems)
    return PlacementInput(
        topology=topology,
        nodes=tuple(replace(node, taints=_merged(node, flavor)) for node in members),
        usage=usage_by_node(inputs.uses),
        gangs=gangs,
        profile=options.profile,
        left_out=_left_out(inputs, members, topology),
        zones=inputs.zones,
        devices=inputs.devices if any(inputs.devices.entries.values()) else None,
    )


def place_all(placement_input: PlacementInput) -> Iterator[PlacementResult]:
    """Place the gangs in order; each gets the capacity that the earlier ones left."""
    cluster = TopologyState(placement_input.topology)
    cluster.load(placement_input.nodes)
    for name, amounts in placement_input.usage.items():
        cluster.use_node(name, amounts)
    columns: NumaColumns | None = None
    devices: PlacementDevices | None = None
    if placement_input.devices is not None:
        devices = PlacementDevices(placement_input.devices, placement_input.nodes)
    for gang in placement_input.gangs:
        if placement_input.zones and columns is None:
            columns = zone_columns(cluster.snapshot().tree.nodes.tolist(), placement_input.zones)
        result = _place(cluster.snapshot(), gang, columns, devices, placement_input.profile)
        supply, placement = result.supply, result.placement
        yield result
        if placement.ok:
            _use_capacity(cluster, gang, placement)
            if columns is not None and placement_input.topology.ends_at_host:
                columns = _use_zones(columns, supply, gang, placement, placement_input.profile.zones)


def _place(
    snapshot: CapacitySnapshot, gang: Gang, columns: NumaColumns | None,
    devices: PlacementDevices | None, profile: Profile,
) -> PlacementResult:  # fmt: skip
    """Place one gang, and give it its devices."""
    latest = Aligned(Placement({}), snapshot, gang)

    def find(here: CapacitySnapshot, asked: Gang) -> Placement:
        nonlocal latest
        latest = place_aligned(here, asked, columns, profile.zones, partial(place, profile=profile))
        return latest.placement

    if devices is None:
        find(snapshot, gang)
        return PlacementResult(gang, latest.snapshot, latest.placement, latest.gang, columns)
    gang = devices.with_claims(gang)
    placement = devices.place(snapshot, gang, find)
    misfit, classes = placement.misfit, devices.columns(snapshot, gang)
    result = PlacementResult(gang, latest.snapshot, placement, latest.gang, columns, classes)
    if misfit is None:
        taken = devices.take(snapshot, gang, placement)
        return replace(result, classes=with_takes(classes, snapshot, taken), taken=taken)
    lacking = tuple(devices.shortages(gang, misfit.pod_sets)) if lacks_devices(misfit) else ()
    return replace(result, shortages=lacking)


def rows_of(supply: CapacitySnapshot, placement: Placement, pod_set: str) -> dict[int, int]:
    """The number of pods of a pod set on each row, where leaves are hosts."""
    counts: dict[int, int] = {}
    for share in placement.assignments[pod_set].shares:
        leaf = supply.leaf(share.values)
        if leaf is not None:
            counts[leaf] = counts.get(leaf, 0) + share.count
    return counts


def _use_zones(
    columns: NumaColumns, supply: CapacitySnapshot, gang: Gang, placement: Placement, rules: ZoneRules
) -> NumaColumns:
    for pod_set in gang.root.pod_sets():
        rows = rows_of(supply, placement, pod_set.name)
        at, pods = np.array(list(rows.items()), np.int64).reshape(-1, 2).T
        columns = aligned_use(columns, pod_set, at, pods, rules)
    return columns


def _use_capacity(cluster: TopologyState, gang: Gang, placement: Placement) -> None:
    for pod_set in gang.root.pod_sets():
        for share in placement.assignments[pod_set.name].shares:
            amounts = {name: amount * share.count for name, amount in pod_set.requests.items()}
            cluster.use_domain(share.values, amounts | {PODS: share.count})


def _choose_flavor(flavors: list[Flavor], options: PlaceOptions) -> Flavor:
    named = [flavor for flavor in flavors if options.flavor in (None, flavor.name)]
    if options.flavor is not None and not named:
        known = ", ".join(flavor.name for flavor in flavors) or "none"
        raise InvalidInput(
            InputProblem("", "--flavor", f"there is no ResourceFlavor {options.flavor}; there are: {known}")
        )
    if len(named) > 1:
        names = ", ".join(flavor.name for flavor in named)
        raise InvalidInput(
            InputProblem("", "", f"there are several ResourceFlavors ({names}): choose one with --flavor")
        )
    return named[0] if named else Flavor("")


def _choose_topology(inputs: Inputs, options: PlaceOptions, flavor: Flavor, members: list[Node]) -> Topology:
    if options.levels is not None:
        return _from_levels(options.levels, members)
    name = options.topology or flavor.topology or None
    candidates = [topology for topology in inputs.topologies if name in (None, topology.name)]
    if name is not None and not candidates:
        known = ", ".join(topology.name for topology in inputs.topologies) or "none"
        source = "--topology" if options.topology else f"ResourceFlavor {flavor.name}"
        raise InvalidInput(InputProblem("", source, f"there is no Topology {name}; there are: {known}"))
    if len(candidates) > 1:
        names = ", ".join(topology.name for topology in candidates)
        raise InvalidInput(
            InputProblem("", "", f"there are several Topologies ({names}): choose one with --topology")
        )
    return candidates[0] if candidates else inferred_topology(members, [gang for _, gang in inputs.gangs])


def _from_levels(text: str, members: list[Node]) -> Topology:
    try:
        levels = parse_levels(text)
    except ValueError as error:
        raise InvalidInput(InputProblem("", "--levels", str(error))) from None
    unknown = [level for level in levels if not any(level in node.labels for node in members)]
    if unknown:
        raise InvalidInput(
            *(InputProblem("", "--levels", f"no node has a label {level}") for level in unknown)
        )
    return Topology("--levels", levels)


def _check_gang(
    document: InputDocument, gang: Gang, topology: Topology, profile: Profile
) -> Iterator[InputProblem]:
    """Problems of a gang that can never fit: unknown levels, and segments that do not nest."""
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
    """Why nodes of the input are not used, each counted once."""
    reasons = Counter({"of another flavor": len(inputs.nodes) - len(members)})
    for node in members:
        lacking = [level for level in topology.levels if level not in node.labels]
        if lacking:
            reasons[f"without label {lacking[0]}"] += 1
        elif not node.ready:
            reasons["not ready"] += 1
        elif not node.schedulable:
            reasons["cordoned"] += 1
    return +reasons
