"""What a group gets when it says nothing, and what is left out where its feature is off."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kube.gang_api.declared import Rule, Structure, found
from bayplan.dialects.kube.gang_api.gates import POLICY, SECOND, Gates
from bayplan.dialects.kube.gang_api.rules import SHAPES

Object = dict[str, Any]
_GROUPS = ("PodGroup", "CompositePodGroup")


def set_defaults(item: Object) -> None:
    """Fill in how a group is disrupted; a Workload has no defaults."""
    if item.get("kind") in _GROUPS:
        mode: Any = "Pod" if _version(item) == SECOND else {"single": {}}
        item["spec"].setdefault("disruptionMode", mode)


def set_preemption_policy(item: Object, gates: Gates) -> None:
    """Fill in what a group may do to others; apart, since its priority class has the first word."""
    if item.get("kind") in _GROUPS and _version(item) != SECOND and POLICY in gates:
        item["spec"].setdefault("preemptionPolicy", "PreemptLowerPriority")


def defaulted(item: Object) -> Object:
    """The same object with its defaults, as it is read from where it is kept."""
    copy = {**item, "spec": dict(item["spec"])}
    set_defaults(copy)
    return copy


def drop_disabled(item: Object, old: Object | None, gates: Gates) -> None:
    """Leave out what the cluster does not serve, unless it stood there before."""
    shape = SHAPES.get((_version(item), item["kind"]))
    if shape is not None:
        _drop(shape, item["spec"], None if old is None else old["spec"], gates)


def drop_disabled_status(item: Object, gates: Gates) -> None:
    """The same for the status of a PodGroup: without claims, nothing is said about them."""
    claims = next(rule for rule in SHAPES[_version(item), "PodGroup"].rules if rule.key == "resourceClaims")
    if claims.dropped not in gates and found(claims, item["spec"]) is None:
        item.get("status", {}).pop("resourceClaimStatuses", None)


def _drop(shape: Structure, item: Object, old: Object | None, gates: Gates) -> None:
    for rule in shape.rules:
        before = None if old is None else found(rule, old)
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
