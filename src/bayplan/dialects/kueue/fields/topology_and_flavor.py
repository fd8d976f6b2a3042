"""Decode Topologies and ResourceFlavors."""

from __future__ import annotations

from bayplan.dialects.kube.decode.node_fields import taint
from bayplan.dialects.kube.decode.node_rule_fields import tolerations
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.annotation_rules import check_level
from bayplan.model.node import HOSTNAME, LEVELS_MAX, Topology
from bayplan.model.quota import Flavor


def topology(obj: Field) -> Topology | None:
    """The decoded Topology, or None if its levels are invalid."""
    levels = obj.at("spec", "levels")
    keys: list[str] = []
    if not 1 <= len(levels.items()) <= LEVELS_MAX:
        levels.error(f"must hold between 1 and {LEVELS_MAX} levels")
        return None
    for index, level in enumerate(levels.items()):
        label = level.at("nodeLabel")
        check_level(label)
        if label.text() in keys:
            label.error("must not be a level twice")
        if label.text() == HOSTNAME and index < len(levels.items()) - 1:
            label.error("may only be the lowest level")
        keys.append(label.text())
    if len(set(keys)) < len(keys):
        return None
    return Topology(obj.at("metadata", "name").text("default"), tuple(keys))


def flavor(obj: Field) -> Flavor:
    """A ResourceFlavor."""
    spec = obj.at("spec")
    return Flavor(
        name=obj.at("metadata", "name").text(),
        labels=spec.at("nodeLabels").texts(),
        taints=tuple(taint(one) for one in spec.at("nodeTaints").items()),
        tolerations=tolerations(spec.at("tolerations")),
        topology=spec.at("topologyName").text(),
    )
