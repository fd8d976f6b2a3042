"""Quarantine: objects that could not be decoded, with their newest event and the time of the next attempt.

An object leaves when it is decoded, changes or is deleted. Meanwhile its last known state still counts, and
the capacity that a pod uses on its node counts in any case. It must not count as deleted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kube.decode.wire import PodWire, pod_amounts
from bayplan.model.change import PodSeen
from bayplan.model.node import PODS
from bayplan.model.pod import Pod, PodKey
from bayplan.runtime.core.backoff import Backoff

QUARANTINE_MAX = 1000  # objects; beyond this the oldest is only tried again when it changes
RETRY_SECONDS = 60.0
RETRY_SECONDS_MAX = 3600.0

Key = tuple[Kind, str, str]


class Quarantine:
    """Empty while every object can be decoded."""

    def __init__(self) -> None:
        self._events: OrderedDict[Key, tuple[float, Event]] = OrderedDict()
        self._backoff: Backoff[Key] = Backoff(RETRY_SECONDS, RETRY_SECONDS_MAX)

    def __len__(self) -> int:
        return len(self._events)

    def __contains__(self, what: object) -> bool:
        """Whether the object of this kind, namespace and name is in quarantine."""
        return bool(self._events) and what in {(kind.kind, *key) for kind, *key in self._events}

    def objects(self, kind: Kind, namespace: str) -> Iterator[Any]:
        """The objects of a kind in a namespace that are in quarantine."""
        for (of, where, _), (_, event) in self._events.items():
            if of == kind and where == namespace:
                yield event.object

    def put(self, event: Event, now: float) -> None:
        """Add an event that could not be decoded; if the same one fails again, it waits longer."""
        key = _key(event)
        if key in self._events and self._events[key][1] is not event:
            self._backoff.succeeded(key)
        self._events[key] = self._backoff.failed(key, now), event
        while len(self._events) > QUARANTINE_MAX:
            self._backoff.succeeded(self._events.popitem(last=False)[0])

    def release(self, event: Event) -> None:
        """Remove an object: a newer event of it was decoded."""
        if self._events and self._events.pop(key := _key(event), None) is not None:
            self._backoff.succeeded(key)

    def due(self, now: float) -> list[Event]:
        """Events to decode again."""
        return [event for due, event in self._events.values() if due <= now]

    def next_due(self) -> float:
        return min((due for due, _ in self._events.values()), default=float("inf"))


def named(obj: Any) -> tuple[str, str]:
    """Namespace and name of an object, however malformed it is."""
    try:
        meta = obj["metadata"] if isinstance(obj, dict) else obj.metadata
        if isinstance(meta, dict):
            return str(meta.get("namespace") or ""), str(meta.get("name") or "")
        return str(meta.namespace or ""), str(meta.name or "")
    except Exception:
        return "", ""


def title(obj: Any) -> str:
    """The same as one string, for messages."""
    return "/".join(part for part in named(obj) if part)


def deletion_by_name(event: Event) -> Event:
    """A deletion event by name alone, so that no other field can make decoding fail."""
    obj = event.object
    namespace, name = named(obj)
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    if isinstance(obj, dict):
        uid = obj["metadata"].get("uid", "") if isinstance(obj.get("metadata"), dict) else ""
        whole = {"apiVersion": event.kind.api_version, "kind": event.kind.kind}
        return Event(Happened.GONE, event.kind, {**whole, "metadata": {**meta, "uid": uid}}, event.version)
    meta["uid"] = str(getattr(obj.metadata, "uid", "") or "")
    return Event(Happened.GONE, event.kind, msgspec.convert({"metadata": meta}, type(obj)), event.version)


def usage_change(event: Event, known: PodSeen | None) -> PodSeen | None:
    """A change for the capacity that a pod uses, if that is all that can be decoded."""
    wire = event.object
    if not isinstance(wire, PodWire):
        return None
    node, over = wire.spec.node_name or "", wire.status.phase in ("Succeeded", "Failed")
    if known is None:
        key = PodKey(*named(wire))
        amounts = pod_amounts(wire.spec) | {PODS: 1}
        return PodSeen(Pod(key, wire.metadata.uid, amounts, node)) if node and not over else None
    pod = known.pod
    if over and not pod.finished:
        return PodSeen(replace(pod, finished=True, succeeded=wire.status.phase == "Succeeded"))
    return PodSeen(replace(pod, node=node)) if node and not pod.node else None


def _key(event: Event) -> Key:
    return event.kind, *named(event.object)
