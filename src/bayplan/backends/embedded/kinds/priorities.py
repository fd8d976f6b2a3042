"""The priority of a new pod or pod group, from its PriorityClass or the default one."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.backends.embedded.api.resource import Object, Resource
from bayplan.backends.embedded.api.status import forbidden
from bayplan.backends.embedded.storage.interface import ObjectStorage

_POLICY = "PreemptLowerPriority"


@dataclass(frozen=True, slots=True)
class Priority:
    """The values of a PriorityClass."""

    name: str = ""  # none
    value: int = 0
    policy: str = _POLICY


def set_priority(store: ObjectStorage, resource: Resource, item: Object, refusal: str) -> Priority:
    """Give a new object the number of its class, and return all that the class says.

    403 when there is no such class, or when the object brings another number: the refusal says so, with
    `given` and `found` put in.
    """
    spec, name = item["spec"], item["metadata"].get("name", "")
    found = _established(store, resource, name, spec.get("priorityClassName", ""))
    given = spec.get("priority", found.value)
    if given != found.value:
        raise forbidden(resource, name, refusal.format(given=given, found=found.value))
    if found.name:
        spec["priorityClassName"] = found.name
    spec["priority"] = found.value
    return found


def _established(store: ObjectStorage, resource: Resource, name: str, class_name: str) -> Priority:
    classes = store.collection_of(store.resources.find("scheduling.k8s.io", "v1", "priorityclasses")).objects
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
