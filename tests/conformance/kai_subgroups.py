"""kai/subgroup*: what is said about sub-groups, and the tree that they make."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kai.api.gang_tree import BadTree, decode
from bayplan.dialects.kai.api.pod_group import PodGroup, read_pod_group
from bayplan.dialects.kai.api.validation import sub_group_problems
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.gang import Group, Locality, PodSet

Object = dict[str, Any]


def check_validation(case: Object) -> list[str]:
    """The first complaint about a list of sub-groups."""
    group = _read({"subGroups": case["subGroups"]})
    told = next(iter(sub_group_problems(group.sub_groups)), None)
    wanted = case["expected"]["error"]
    return [] if told == wanted else [f"want {wanted!r}, got {told!r}"]


def check_tree(case: Object) -> list[str]:
    """The tree; children are compared as sets."""
    wanted = case["expected"].get("errorContains")
    try:
        found = decode(_read(case["podGroupSpec"])).root
    except BadTree as trouble:
        return [] if wanted and wanted in str(trouble) else [f"want {wanted!r}, got {trouble}"]
    if wanted:
        return [f"want error {wanted!r}, got {found}"]
    ours, theirs = _plain(found), _of_case({**case["observed"]["tree"], "name": "group"})
    if not case["podGroupSpec"].get("subGroups"):  # there ours has the pod set that theirs gets later
        wishes = [one["wishes"] for one in (ours, *ours["members"])]
        ours |= {"members": [], "wishes": {wish: level for one in wishes for wish, level in one.items()}}
    return [] if ours == theirs else [f"want {theirs}, got {ours}"]


def _read(spec: Object) -> PodGroup:
    return read_pod_group(Field({"metadata": {"name": "group"}, "spec": spec}))


def _plain(member: Group | PodSet) -> Object:
    """A member as a mapping; a wish inside a wish is one node with both."""
    wishes = _wishes(member.locality)
    if isinstance(member, PodSet):
        return {"name": member.name, "min": max(member.minimum, 1), "wishes": wishes}
    inner = member.members[0] if len(member.members) == 1 else None
    if inner is not None and inner.name == member.name:
        below = _plain(inner)
        return below | {"wishes": wishes | below["wishes"]}
    members = sorted((_plain(one) for one in member.members), key=lambda one: str(one["name"]))
    return {"name": member.name, "members": members, "wishes": wishes}


def _wishes(locality: Locality) -> dict[str, str]:
    found = {"required": locality.required or "", "preferred": locality.preferred or ""}
    return {wish: level for wish, level in found.items() if level}


def _of_case(node: Object) -> Object:
    constraint = node["topologyConstraint"] or {}
    found = {"required": constraint.get("requiredLevel"), "preferred": constraint.get("preferredLevel")}
    wishes = {wish: level for wish, level in found.items() if level}
    if "minAvailable" in node:
        return {"name": node["name"], "min": node["minAvailable"], "wishes": wishes}
    inner = [_of_case(one) for one in (*node["subGroupSets"], *node["podSets"])]
    alone = inner[0] if len(inner) == 1 else {}
    if wishes and "min" in alone and not alone["wishes"]:  # the same pods: ours says the nearest wish there
        nearest = next(wish for wish in ("preferred", "required") if wish in wishes)
        alone["wishes"][nearest] = wishes.pop(nearest)
    return {
        "name": node["name"],
        "members": sorted(inner, key=lambda one: str(one["name"])),
        "wishes": wishes,
    }


FILES = {"kai/subgroup_validation*": check_validation, "kai/subgroup_tree*": check_tree}
