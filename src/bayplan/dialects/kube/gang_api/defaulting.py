"""Defaults of groups, and removal of fields whose feature gate is disabled."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kube.gang_api.declared import Rule, Structure, value_of
from bayplan.dialects.kube.gang_api.gates import POLICY, V1ALPHA2, Gates
from bayplan.dialects.kube.gang_api.rules import STRUCTURES

Object = dict[str, Any]
_GROUPS = ("PodGroup", "CompositePodGroup")


def set_defaults(item: Object) -> None:
    """Set the disruption mode of a group; a Workload has no defaults."""
    if item.get("kind") in _GROUPS:
        mode: Any = "Pod" if _version(item) == V1ALPHA2 else {"single": {}}
        item["spec"].setdefault("disruptionMode", mode)


def set_preemption_policy(item: Object, gates: Gates) -> None:
    """Set the preemption policy of a group; done separately, since its priority class has precedence."""
    if item.get("kind") in _GROUPS and _version(item) != V1ALPHA2 and POLICY in gates:
        item["spec"].setdefault("preemptionPolicy", "PreemptLowerPriority")


def defaulted(item: Object) -> Object:
    """The object with its defaults, as it is read from storage."""
    copy = {**item, "spec": dict(item["spec"])}
    set_defaults(copy)
    return copy


def drop_disabled(item: Object, old: Object | None, gates: Gates) -> None:
    """Remove fields that are disabled, unless they were set before."""
    structure = STRUCTURES.get((_version(item), item["kind"]))
    if structure is not None:
        _drop(structure, item["spec"], None if old is None else old["spec"], gates)


def drop_disabled_status(item: Object, gates: Gates) -> None:
    """The same for the status of a PodGroup: without claims, it has no claim statuses."""
    claims = next(
        rule for rule in STRUCTURES[_version(item), "PodGroup"].rules if rule.key == "resourceClaims"
    )
    if claims.dropped not in gates and value_of(claims, item["spec"]) is None:
        item.get("status", {}).pop("resourceClaimStatuses", None)


def _drop(structure: Structure, item: Object, old: Object | None, gates: Gates) -> None:
    for rule in structure.rules:
        before = None if old is None else value_of(rule, old)
        gate = rule.gate or rule.dropped
        if gate and gate not in gates and before is None:
            item.pop(rule.key, None)
        elif rule.listed:
            _drop_in_items(rule, item.get(rule.key) or [], before or [], gates)


def _drop_in_items(rule: Rule, items: list[Object], before: list[Object], gates: Gates) -> None:
    assert rule.below is not None
    for place, item in enumerate(items):
        _drop(rule.below(), item, before[place] if place < len(before) else None, gates)


def _version(item: Object) -> str:
    return str(item.get("apiVersion", "")).rpartition("/")[2]
