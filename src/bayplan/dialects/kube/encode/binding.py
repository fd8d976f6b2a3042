"""Bindings of pods to nodes, and Events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.name_rules import digest
from bayplan.model.plan import Bind

EVENTS = Kind("", "v1", "Event", "events", low_priority=True)
_NAME_LENGTH, _HASH_LENGTH = 200, 16


def bind_write(action: Bind, annotations: Mapping[str, str] | None = None) -> Write:
    """The Binding of a pod to its node, if the uid still matches; annotations are added to the pod."""
    key = action.pod.key
    extra = {"annotations": dict(annotations)} if annotations else {}
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": key.name, "namespace": key.namespace, "uid": action.pod.uid, **extra},
        "target": {"apiVersion": "v1", "kind": "Node", "name": action.node},
    }
    return Write(Verb.CREATE, PODS_KIND, key.namespace, key.name, body, "binding", action.pod.uid, tag=action)


def event_write(about: dict[str, Any], reason: str, message: str, kind: str, when: str) -> Write:
    """An Event about an object; the server generates its name."""
    namespace = about.get("namespace") or "default"
    body = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about['name']}-", "namespace": namespace},
        "involvedObject": about,
        "reason": reason,
        "message": message[:1024],
        "type": kind,
        "source": {"component": "bayplan"},
        "reportingComponent": "bayplan",
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }
    return Write(Verb.CREATE, EVENTS, namespace, "", body)


def event_once(about: dict[str, Any], reason: str, message: str, kind: str, when: str) -> Write:
    """An Event whose name is derived from its content, so that a repeated one already exists."""
    write = event_write(about, reason, message, kind, when)
    content = "\n".join((about.get("uid", ""), reason, message))
    name = f"{about['name'][:_NAME_LENGTH].rstrip('-.')}.{digest(content, _HASH_LENGTH)}"
    meta = {"name": name, "namespace": write.namespace}
    return replace(write, name=name, body={**write.body, "metadata": meta})
