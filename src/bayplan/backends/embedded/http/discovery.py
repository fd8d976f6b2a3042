"""What is served, for clients that ask first: groups, versions and resources, plain or all in one answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.resources import ResourceRegistry, version_rank

Object = dict[str, Any]

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
VERSION = {"major": "1", "minor": "35", "gitVersion": "v1.35.4+bayplan", "platform": "linux/amd64"}

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_CREATED = {"binding": ("", "v1", "Binding"), "eviction": ("policy", "v1", "Eviction")}
_SCALE = ("autoscaling", "v1", "Scale")


def versions(address: str) -> Object:
    """The answer to /api."""
    listed = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": listed}


def groups(resources: ResourceRegistry) -> Object:
    """The answer to /apis."""
    listed = [_group(name, found) for name, found in _by_group(resources) if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}


def group(resources: ResourceRegistry, name: str) -> Object | None:
    """The answer to /apis/GROUP."""
    found = dict(_by_group(resources)).get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, found)} if found else None


def resource_list(resources: ResourceRegistry, name: str, version: str) -> Object | None:
    """The answer to /api/v1 and /apis/GROUP/VERSION."""
    found = [one for one in resources.by_place.values() if (one.group, one.version) == (name, version)]
    if not found:
        return None
    listed = [entry for one in _sorted(found) for entry in _plain(one)]
    api_version = f"{name}/{version}" if name else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": listed,
    }


def aggregated(resources: ResourceRegistry, core: bool, version: str) -> Object:
    """The answer to /api or /apis for clients that want everything at once."""
    listed = []
    for name, found in _by_group(resources):
        if bool(name) is core:
            continue
        listed.append(
            {
                "metadata": {"name": name} if name else {},
                "versions": [
                    {
                        "version": one,
                        "resources": [_entry(item) for item in _sorted(found) if item.version == one],
                        "freshness": "Current",
                    }
                    for one in _versions(found)
                ],
            }
        )
    kind = {"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{version}"}
    return {**kind, "metadata": {}, "items": listed}


def verbs(resource: Resource) -> list[str]:
    """What can be done with a kind."""
    listed = _CUSTOM_VERBS if resource.custom else _VERBS
    return [verb for verb in listed if verb != "deletecollection" or resource.deletes_collection]


def _by_group(resources: ResourceRegistry) -> list[tuple[str, list[Resource]]]:
    found: dict[str, list[Resource]] = {}
    for resource in resources.by_place.values():
        found.setdefault(resource.group, []).append(resource)
    return list(found.items())


def _sorted(found: Iterable[Resource]) -> list[Resource]:
    return sorted(found, key=lambda one: one.plural)


def _versions(found: Iterable[Resource]) -> list[str]:
    """Versions, the best first: v2 before v1, v1 before v1beta2, that before v1alpha1."""
    return sorted({one.version for one in found}, key=version_rank, reverse=True)


def _group(name: str, found: list[Resource]) -> Object:
    listed = [{"groupVersion": f"{name}/{one}", "version": one} for one in _versions(found)]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _subresources(resource: Resource) -> list[tuple[str, tuple[str, str, str], list[str]]]:
    """(name, kind it is sent as, verbs)."""
    own = (resource.group, resource.version, resource.kind)
    found = []
    for name in sorted(resource.subresources, reverse=resource.custom):
        if name in _CREATED:
            found.append((name, _CREATED[name], ["create"]))
        elif name == "finalize":
            found.append((name, own, ["update"]))
        else:
            found.append((name, _SCALE if name == "scale" else own, ["get", "patch", "update"]))
    return found


def _plain(resource: Resource) -> list[Object]:
    entry: Object = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(resource),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    below = []
    for name, (group_, version, kind), can in _subresources(resource):
        part: Object = {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
        }
        if (group_, version) != (resource.group, resource.version):
            part |= {"group": group_, "version": version}
        below.append({**part, "kind": kind, "verbs": can})
    return [entry, *below]


def _entry(resource: Resource) -> Object:
    entry: Object = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    below = [
        {
            "subresource": name,
            "responseKind": dict(zip(("group", "version", "kind"), kind, strict=True)),
            "verbs": can,
        }
        for name, kind, can in _subresources(resource)
    ]
    return {**entry, "subresources": below} if below else entry
