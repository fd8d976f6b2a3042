"""Injection of pod set infos into the pod templates of an admitted job, and the reverse."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Object = dict[str, Any]

_MAPS = (("metadata", "labels"), ("metadata", "annotations"), ("spec", "nodeSelector"))
_LISTS = (("spec", "tolerations"), ("spec", "schedulingGates"))
_RESTORED = (*_MAPS, *_LISTS)


class InjectionConflict(ValueError):
    """An injected value contradicts the pod template; retrying cannot succeed."""


@dataclass(frozen=True, slots=True)
class Injected:
    """Pod set info: what is injected into the pods of one pod set, and the number of pods that start."""

    name: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Object, ...] = ()
    gates: tuple[str, ...] = ()

    def merged_with(self, other: Injected) -> Injected:
        """This info merged with another. Raises InjectionConflict if they contradict each other."""
        return replace(
            self,
            labels=_joined("labels", self.labels, other.labels),
            annotations=_joined("annotations", self.annotations, other.annotations),
            node_selector=_joined("nodeSelector", self.node_selector, other.node_selector),
            tolerations=_each_once(self.tolerations, other.tolerations),
            gates=tuple(dict.fromkeys((*self.gates, *other.gates))),
        )


def add(template: Object, info: Injected) -> None:
    """Inject into a pod template, or a pod, in place. Raises InjectionConflict if it has another value."""
    texts = (("labels", info.labels), ("annotations", info.annotations))
    for (part, key), (name, more) in zip(_MAPS, (*texts, ("nodeSelector", info.node_selector)), strict=True):
        if more:
            parent = section(template, part)
            parent[key] = dict(_joined(name, parent.get(key) or {}, more))
    if info.tolerations:
        spec = section(template, "spec")
        spec["tolerations"] = list(_each_once(tuple(spec.get("tolerations") or ()), info.tolerations))
    if info.gates:
        spec = section(template, "spec")
        gates: list[Object] = list(spec.get("schedulingGates") or ())
        spec["schedulingGates"] = gates + [{"name": one} for one in info.gates if {"name": one} not in gates]


def restore(template: Object, original: Object, controller_labels: Sequence[str] = ()) -> None:
    """Undo `add` in place. The labels in `controller_labels` stay: another controller wrote them."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    owned = {name: labels[name] for name in controller_labels if name in labels}
    for part, key in _RESTORED:
        before = (original.get(part) or {}).get(key)
        if key == "labels" and owned:
            before = (before or {}) | owned
        if before is not None:
            section(template, part)[key] = copy.deepcopy(before)
        elif isinstance(template.get(part), dict):
            template[part].pop(key, None)
    for part in ("metadata", "spec"):
        if template.get(part) == {} and part not in original:
            del template[part]


def _joined(field: str, present: Mapping[str, str], more: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in present.items():
        if key in more and more[key] != value:
            raise InjectionConflict(
                f"invalid admission check PodSetUpdate: conflict for {field}: "
                f"conflict for key={key}, value1={value}, value2={more[key]}"
            )
    return {**present, **more}


def _each_once(present: tuple[Object, ...], more: tuple[Object, ...]) -> tuple[Object, ...]:
    """Tolerations without duplicates."""
    merged = list(present)
    keys = [_toleration(one) for one in present]
    for one in more:
        if _toleration(one) not in keys:
            keys.append(_toleration(one))
            merged.append(one)
    return tuple(merged)


def _toleration(one: Object) -> tuple[object, ...]:
    """The identity of a toleration: no operator means Equal, and tolerationSeconds is ignored."""
    return (
        one.get("key") or "",
        one.get("operator") or "Equal",
        one.get("value") or "",
        one.get("effect") or "",
    )


def section(template: Object, part: str) -> Object:
    """A mapping inside an object, such as the metadata of a template; created if it is missing or null."""
    if not isinstance(template.get(part), dict):
        template[part] = {}
    section: Object = template[part]
    return section
