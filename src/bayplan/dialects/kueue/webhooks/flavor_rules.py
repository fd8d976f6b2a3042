"""Validation of ResourceFlavors and Topologies beyond their schemas; every violation is recorded."""

from __future__ import annotations

from bayplan.dialects.kube.fields.metadata_rules import (
    IMMUTABLE,
    check_labels,
    check_taints,
    check_toleration_keys,
)
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType
from bayplan.dialects.kueue.fields.topology_and_flavor import topology
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches
from bayplan.model.node import HOSTNAME


def check_flavor(flavor: Field, rules: FeatureSwitches) -> None:
    """Validate a ResourceFlavor. One with a topology must select its nodes by at least one label."""
    del rules
    spec = flavor.at("spec")
    check_labels(spec.at("nodeLabels"))
    check_taints(spec.at("nodeTaints"))
    check_toleration_keys(spec.at("tolerations"))
    if spec.at("topologyName").text() and not spec.at("nodeLabels").value:
        why = "at least one nodeLabel is required when topology is set"
        spec.at("nodeLabels").error(why, FieldErrorType.REQUIRED)


def check_flavor_update(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """Validate an update of a ResourceFlavor: its topology is immutable."""
    del rules
    name, before = new.at("spec", "topologyName"), old.at("spec", "topologyName")
    if before.text() and name.text() != before.text():
        name.error(IMMUTABLE, FieldErrorType.INVALID)


def check_topology(obj: Field, rules: FeatureSwitches) -> None:
    """Validate a Topology."""
    del rules
    topology(obj)


def check_topology_update(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """Validate an update of a Topology: levels may change only if the hostname stays the lowest."""
    del rules
    levels, before = (
        [level.at("nodeLabel").text() for level in obj.at("spec", "levels").items()] for obj in (new, old)
    )
    by_host = all(keys and keys[-1] == HOSTNAME for keys in (levels, before))
    if levels != before and not by_host:
        new.at("spec", "levels").error(IMMUTABLE, FieldErrorType.INVALID)
