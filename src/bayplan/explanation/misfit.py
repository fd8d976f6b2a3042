"""Explains why a gang does not fit: what it requests, what was found, what to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bayplan.dialects.kube.encode.numa_messages import message_for as unaligned_message
from bayplan.explanation.text import (
    amount_text,
    counted,
    importance,
    is_cap,
    oversized_text,
    short_levels,
    short_resources,
)
from bayplan.model.assignment import Code, Exclusions, Misfit, NearMiss, Oversized
from bayplan.model.filter_failure import FILTERED, FilterReason, filter_of
from bayplan.model.gang import AUTO, Gang, Group, Locality, PodSet
from bayplan.model.node import Topology
from bayplan.model.node_rules import Toleration
from bayplan.model.numa import ALIGNED
from bayplan.model.profile import Profile, Strategy
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.gang.place import place

DEVICES = (FilterReason.DEVICES, FilterReason.DEVICES_ELSEWHERE)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Sentences about what was requested, what was found, and what would help."""

    asked: tuple[str, ...]
    found: tuple[str, ...]
    advice: tuple[str, ...]


def explain(
    gang: Gang, misfit: Misfit, supply: CapacitySnapshot, profile: Profile, left_out: Mapping[str, int]
) -> Explanation:
    """Explain a misfit. Advice is simulated before it is given."""
    topology = supply.tree.topology
    stuck = [pod_set for pod_set in gang.root.pod_sets() if pod_set.name in misfit.pod_sets]
    return Explanation(
        asked=tuple(request_text(pod_set, topology) for pod_set in stuck),
        found=(*_found(misfit, topology, left_out), *_unknown_resources(stuck, supply), *_unaligned(misfit)),
        advice=tuple(_advice(gang, misfit, supply, profile)),
    )


def lacks_devices(misfit: Misfit) -> bool:
    """Whether devices are among what nodes lack."""
    named = [] if misfit.nearest is None else [misfit.nearest.resource]
    found = {filter_of(resource) for resource in (*named, *misfit.excluded.resources)}
    failure = misfit.filter_failure
    found |= {reason for reason, _ in failure.counts} if failure is not None else set()
    return not found.isdisjoint(DEVICES)


def brief(misfit: Misfit, topology: Topology) -> str:
    """A misfit in one line: the closest domain; excluded nodes only if no pod fits."""
    shown = misfit if misfit.fit == 0 else replace(misfit, excluded=Exclusions())
    return "; ".join(_found(shown, topology, {}))


def request_text(pod_set: PodSet, topology: Topology) -> str:
    """`8 pods of 8 gpu and 4 cpu each, all in one rack, every 4 in one host`."""
    level = short_levels(topology.levels)
    names = short_resources(pod_set.requests)
    order = sorted((name for name in names if not is_cap(name)), key=importance)
    each = [f"{amount_text(name, pod_set.requests[name])} {names[name]}" for name in order]
    of = f" of {' and '.join([', '.join(each[:-1]), each[-1]] if each[1:] else each)}" if each else ""
    parts = [f"{counted(pod_set.count, 'pod')}{of}{' each' if each and pod_set.count != 1 else ''}"]
    locality = pod_set.locality
    together = "in" if pod_set.count == 1 else "all in"
    if locality.required:
        parts.append(f"{together} {_one(locality.required, level)}")
    elif locality.preferred:
        parts.append(f"if possible {together} {_one(locality.preferred, level)}")
    parts += [f"every {segment.size} in {_one(segment.level, level)}" for segment in pod_set.segments]
    return ", ".join(parts)


def _one(name: str, level: Mapping[str, str]) -> str:
    return "the smallest domain that holds them" if name == AUTO else f"one {level.get(name, name)}"


def unplaceable(misfit: Misfit, topology: Topology) -> str:
    """Why a request cannot be satisfied by any cluster with this topology."""
    levels = ", ".join(topology.levels)
    match misfit.code:
        case Code.UNKNOWN_LEVEL | Code.UNKNOWN_SEGMENT_LEVEL | Code.UNKNOWN_INNER_LEVEL:
            return f"{misfit.level} is not a level of topology {topology.name}; its levels are {levels}"
        case Code.SEGMENT_ABOVE_LOCALITY:
            return (
                f"segments at {misfit.level} cannot stay inside one {misfit.other_level}, which is below it"
            )
        case Code.INNER_LEVEL_NOT_LOWER:
            return f"inner segments at {misfit.level} must be below the outer ones at {misfit.other_level}"
        case Code.INNER_SIZE_NOT_DIVISOR:
            inner, outer = misfit.sizes
            return f"inner segments of {inner} do not evenly divide outer ones of {outer}"
        case Code.SEGMENT_SIZE_MISSING:
            return f"segments at {misfit.level} have no size"
        case _:
            return misfit.code.value.replace("_", " ")


def _found(misfit: Misfit, topology: Topology, left_out: Mapping[str, int]) -> Iterator[str]:
    match misfit.code:
        case Code.NO_ROOM if misfit.oversized is not None:
            yield oversized_text(misfit.oversized)
        case Code.NO_ROOM:
            yield _nearest(misfit, topology)
            level = short_levels(topology.levels)
            for layer in misfit.layers:
                name = level.get(layer.level, layer.level)
                yield f"of the segments in one {name} each, {layer.fit} of {layer.asked} fit there"
        case Code.NO_DOMAINS:
            yield f"there is no usable node with all of the labels {', '.join(topology.levels)}"
        case Code.NO_REPLACEMENT:
            yield "there is too little capacity in the domain of its running pods"
        case Code.NOT_DECIDED:
            yield "the exact search ran out of time without an answer"
        case Code.NOT_BINDABLE:
            yield "a filter rejects the pods on the nodes that have capacity for them"
        case Code.NOT_INSTALLED:
            yield "the exact strategy is not installed"
        case _:
            yield unplaceable(misfit, topology)
    yield from _excluded(misfit.excluded, topology, left_out)


def _unaligned(misfit: Misfit) -> Iterator[str]:
    """What a node lacks to align the pod."""
    if misfit.unaligned is not None:
        yield unaligned_message(misfit.unaligned)


def _unknown_resources(stuck: Sequence[PodSet], supply: CapacitySnapshot) -> Iterator[str]:
    for resource in sorted({name for pod_set in stuck for name in pod_set.requests}):
        if resource not in supply.resources and not is_cap(resource):
            yield f"no node offers any {resource}"


def _nearest(misfit: Misfit, topology: Topology) -> str:
    near = misfit.nearest
    if near is None:
        return f"{misfit.fit} of {misfit.asked} fit"
    where = f"{_level_of(near, topology)} {'/'.join(near.domain)}" if near.domain else "the whole topology"
    asked = near.fit + near.short
    closest = "comes closest with room for" if near.domain else "has room for"
    unit = f" (in whole segments of {misfit.unit})" if misfit.unit > 1 else ""
    text = f"{where} {closest} {near.fit} of {counted(asked, 'pod')}{unit}"
    if near.resource.startswith(ALIGNED):
        text += "; the NUMA zones of its nodes do not fit the pods"
    elif filter_of(near.resource) in DEVICES:
        text += "; the devices of its nodes do not suffice for the claims"
    elif near.resource.startswith(FILTERED):
        text += "; a filter rejects the pods on its nodes"
    elif near.resource and near.lacking:
        name = short_resources([near.resource])[near.resource]
        text += f"; it lacks {amount_text(near.resource, near.lacking)} {name}"
    return text


def _level_of(near: NearMiss, topology: Topology) -> str:
    """The short name of the level, which need not be a level of the topology: a gang may name any label."""
    return short_levels([*dict.fromkeys((*topology.levels, near.level))])[near.level]


def _excluded(excluded: Exclusions, topology: Topology, left_out: Mapping[str, int]) -> Iterator[str]:
    """How many nodes were excluded and why; leaves, where the topology does not end at the host."""
    reasons = [
        (excluded.selector, "not matching the node selector"),
        (excluded.affinity, "not matching the node affinity"),
        (excluded.outside, "outside the domain of the running pods"),
    ]
    reasons += [(nodes, f"with the taint {taint}") for taint, nodes in excluded.taints.items()]
    short = short_resources(excluded.resources)
    reasons += [
        (nodes, f"with too little {short[resource]} left for one pod")
        for resource, nodes in excluded.resources.items()
        if not is_cap(resource)
    ]
    by_cap = {resource: nodes for resource, nodes in excluded.resources.items() if is_cap(resource)}
    unaligned = sum(nodes for resource, nodes in by_cap.items() if resource.startswith(ALIGNED))
    devices = sum(nodes for resource, nodes in by_cap.items() if filter_of(resource) in DEVICES)
    reasons.append((unaligned, "with room for a pod, but not in one NUMA zone"))
    reasons.append((devices, "with too few devices for the claims of one pod"))
    reasons.append((sum(by_cap.values()) - unaligned - devices, "where a filter rejects the pod"))
    total, leaf = excluded.nodes, short_levels(topology.levels)[topology.levels[-1]]
    if topology.ends_at_host:
        reasons += [(nodes, why) for why, nodes in left_out.items()]
        total, leaf = total + sum(left_out.values()), "node"
    elif left_out:
        yield ", ".join(f"{counted(nodes, 'node')} {why}" for why, nodes in left_out.items())
    listed = [f"{nodes} {why}" for nodes, why in reasons if nodes]
    if listed:
        yield f"of {counted(total, leaf)}: " + ", ".join(listed)


def _without_exact(profile: Profile) -> Profile:
    """The profile without the exact strategy, which may take seconds, for repeated simulations."""
    if Strategy.EXACT not in (profile.required, profile.preferred, profile.unconstrained):
        return profile
    defaults = Profile()
    return replace(
        profile,
        required=defaults.required,
        preferred=defaults.preferred,
        unconstrained=defaults.unconstrained,
    )


def _advice(gang: Gang, misfit: Misfit, supply: CapacitySnapshot, profile: Profile) -> Iterator[str]:
    if misfit.code is Code.NOT_INSTALLED:
        yield "install it: pip install 'bayplan[exact]'"
        return
    if misfit.code is not Code.NO_ROOM:
        return
    topology = supply.tree.topology
    level = short_levels(topology.levels)
    fast_profile = _without_exact(profile)
    helped: set[str] = set()
    for way, change, text in _changes(gang, misfit, topology, level):
        if way not in helped and place(supply, change, fast_profile).ok:
            helped.add(way)
            yield text
    near = misfit.nearest
    if misfit.oversized is not None:
        yield f"request less in each pod{_largest(misfit.oversized)}, or add larger nodes"
        return
    if near is None:
        return
    if near.fit > 0:
        where = f" in that {_level_of(near, topology)}" if near.domain else ""
        yield f"request {counted(near.fit, 'pod')}, which would fit{where}"
    if near.lacking and not is_cap(near.resource):
        name = short_resources([near.resource])[near.resource]
        where = f"{_level_of(near, topology)} {'/'.join(near.domain)}" if near.domain else "the cluster"
        yield f"free or add {amount_text(near.resource, near.lacking)} {name} in {where}"


def _largest(oversized: Oversized) -> str:
    """`, at most 96 cpu`."""
    names = short_resources(name for name, _, _ in oversized.lacks)
    limits = [f"{amount_text(name, has)} {names[name]}" for name, _, has in oversized.lacks if has]
    return f", at most {' and '.join(limits)}" if limits else ""


def _changes(
    gang: Gang, misfit: Misfit, topology: Topology, level: Mapping[str, str]
) -> Iterator[tuple[str, Gang, str]]:
    """Changes to the gang that may help: the kind of change, the changed gang, and the advice."""
    stuck = [pod_set for pod_set in gang.root.pod_sets() if pod_set.name in misfit.pod_sets]
    required = {pod_set.locality.required for pod_set in stuck}
    for name in [each for each in topology.levels if each in required]:
        for higher in reversed(topology.levels[: topology.levels.index(name)]):
            wider = _changed(gang, misfit, locality=Locality(required=higher))
            yield "widen", wider, f"require one {level[higher]} instead of one {level[name]}: that fits"
        loose = _changed(gang, misfit, locality=Locality(preferred=name))
        yield "loosen", loose, f"prefer one {level[name]} instead of requiring it: that fits, in several"
    if any(pod_set.segments for pod_set in stuck):
        yield "unite", _changed(gang, misfit, segments=()), "remove the segments: that fits"
    for text in misfit.excluded.taints:
        key = text.partition(":")[0].partition("=")[0]
        tolerant = _changed(gang, misfit, tolerations=(Toleration(key, "Exists"),))
        yield text, tolerant, f"tolerate the taint {text}: that fits"


def _changed(
    gang: Gang,
    misfit: Misfit,
    locality: Locality | None = None,
    segments: tuple[()] | None = None,
    tolerations: tuple[Toleration, ...] = (),
) -> Gang:
    """The gang with changed constraints for the pod sets that did not fit."""

    def change(member: Group | PodSet) -> Group | PodSet:
        if isinstance(member, Group):
            stuck = any(pod_set.name in misfit.pod_sets for pod_set in member.pod_sets())
            changed = member.locality if locality is None or member.locality == Locality() else locality
            return replace(
                member,
                members=tuple(map(change, member.members)),
                locality=changed if stuck else member.locality,
            )
        if member.name not in misfit.pod_sets:
            return member
        rules = replace(member.rules, tolerations=member.rules.tolerations + tolerations)
        return replace(
            member,
            locality=member.locality if locality is None else locality,
            segments=member.segments if segments is None else segments,
            rules=rules,
        )

    root = change(gang.root)
    assert isinstance(root, Group)
    return replace(gang, root=root)
