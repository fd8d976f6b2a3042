"""Starting and stopping: what is added to the pods of an admitted job, and how it is taken back."""

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
    """What is to be added contradicts what is there; trying again cannot help."""


@dataclass(frozen=True, slots=True)
class Injected:
    """Additions to the pods of one pod set, and how many of them start."""

    name: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Object, ...] = ()
    gates: tuple[str, ...] = ()

    def and_also(self, other: Injected) -> Injected:
        """Both together; Clash if they contradict each other."""
        return replace(
            self,
            labels=_joined("labels", self.labels, other.labels),
            annotations=_joined("annotations", self.annotations, other.annotations),
            node_selector=_joined("nodeSelector", self.node_selector, other.node_selector),
            tolerations=_each_once(self.tolerations, other.tolerations),
            gates=tuple(dict.fromkeys((*self.gates, *other.gates))),
        )


def add(template: Object, extra: Injected) -> None:
    """Change a pod template, or a pod, in place; what is there stays. Clash if it says otherwise."""
    texts = (("labels", extra.labels), ("annotations", extra.annotations))
    for (part, key), (name, more) in zip(_MAPS, (*texts, ("nodeSelector", extra.node_selector)), strict=True):
        if more:
            below = _within(template, part)
            below[key] = dict(_joined(name, below.get(key) or {}, more))
    if extra.tolerations:
        spec = _within(template, "spec")
        spec["tolerations"] = list(_each_once(tuple(spec.get("tolerations") or ()), extra.tolerations))
    if extra.gates:
        spec = _within(template, "spec")
        gates: list[Object] = list(spec.get("schedulingGates") or ())
        spec["schedulingGates"] = gates + [{"name": one} for one in extra.gates if {"name": one} not in gates]


def restore(template: Object, original: Object, kept_labels: Sequence[str] = ()) -> None:
    """Take back in place all that `add` may have added; labels that are kept are somebody else's."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    kept = {name: labels[name] for name in kept_labels if name in labels}
    for part, key in _RESTORED:
        before = (original.get(part) or {}).get(key)
        if key == "labels" and kept:
            before = (before or {}) | kept
        if before is not None:
            _within(template, part)[key] = copy.deepcopy(before)
        elif isinstance(template.get(part), dict):
            template[part].pop(key, None)
    for part in ("metadata", "spec"):
        if template.get(part) == {} and part not in original:
            del template[part]


def _joined(what: str, here: Mapping[str, str], more: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in here.items():
        if key in more and more[key] != value:
            raise InjectionConflict(
                f"invalid admission check PodSetUpdate: conflict for {what}: "
                f"conflict for key={key}, value1={value}, value2={more[key]}"
            )
    return {**here, **more}


def _each_once(here: tuple[Object, ...], more: tuple[Object, ...]) -> tuple[Object, ...]:
    found = list(here)
    known = [_toleration(one) for one in here]
    for one in more:
        if _toleration(one) not in known:
            known.append(_toleration(one))
            found.append(one)
    return tuple(found)


def _toleration(one: Object) -> tuple[object, ...]:
    """Which taints are tolerated; for how long does not count, and no operator means Equal."""
    return (
        one.get("key") or "",
        one.get("operator") or "Equal",
        one.get("value") or "",
        one.get("effect") or "",
    )


def _within(template: Object, part: str) -> Object:
    if not isinstance(template.get(part), dict):
        template[part] = {}
    found: Object = template[part]
    return found
