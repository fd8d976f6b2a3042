"""The CRDs that Bayplan installs: JSON files next to the dialects that read them."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from bayplan.backends.conversion import convert
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.api import Kind
from bayplan.dialects.kai.api.names import POD_GROUP, TOPOLOGY
from bayplan.dialects.kueue.conversion.versions import CONVERTED

Object = dict[str, Any]

DEFINITIONS = Kind(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)


def definitions() -> list[Object]:
    """All of them, by name."""
    found = [
        json.loads(file.read_text(encoding="utf-8"))
        for dialect in files("bayplan.dialects").iterdir()
        if dialect.is_dir() and (dialect / "crds").is_dir()
        for file in (dialect / "crds").iterdir()
        if file.name.endswith(".json")
    ]
    return sorted(found, key=lambda definition: str(definition["metadata"]["name"]))


def is_of_groups(definition: Object) -> bool:
    """Whether a definition is for pod groups, their queues or their topologies."""
    return definition["spec"]["group"] in (POD_GROUP.group, TOPOLOGY.group)


def define(store: Store, *, groups: bool = True) -> None:
    """Have a cluster in memory serve our kinds, in each of their versions.

    Those of the pod grouper share words with others, such as `queues`: without it they are left out.
    """
    store.conversions.update(dict.fromkeys(CONVERTED, convert))
    for definition in _known():
        if groups or not is_of_groups(definition):
            store.create(DEFINITIONS, definition)


@cache
def _known() -> tuple[Object, ...]:
    """The definitions, read once; they are never changed."""
    return tuple(definitions())
