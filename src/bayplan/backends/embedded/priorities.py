"""The priority of a new pod or group of pods, from the class that it names or from the default one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bayplan.backends.embedded.resources import Resource
from bayplan.backends.embedded.status import forbidden

if TYPE_CHECKING:
    from bayplan.backends.embedded.store import Store


_POLICY = "PreemptLowerPriority"


@dataclass(frozen=True, slots=True)
class Priority:
    """What a priority class says."""

    name: str = ""  # none
    value: int = 0
    policy: str = _POLICY


def established_priority(store: Store, resource: Resource, name: str, class_name: str) -> Priority:
    """What an object of this kind and name has by its class; 403 when there is no such class."""
    classes = store.shelf(store.resources.find("scheduling.k8s.io", "v1", "priorityclasses")).objects
    if class_name:
        found = classes.get(class_name)
        if found is None:
            raise forbidden(resource, name, f"no PriorityClass with name {class_name} was found")
    else:
        defaults = [one for one in classes.values() if one.get("globalDefault")]
        found = min(defaults, key=lambda one: (one["value"], one["metadata"]["name"]), default=None)
    if found is None:
        return Priority()
    return Priority(found["metadata"]["name"], found["value"], found.get("preemptionPolicy", _POLICY))
