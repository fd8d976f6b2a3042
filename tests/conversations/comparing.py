"""Making two conversations comparable: what must differ is named, everything else must be the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tests.conversations.holding import Exchange

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_DROPPED = ("managedFields",)
_AGE = re.compile(r"\d+[smhdy](\d+[smhd])?")
_SHOWN_CHANGE = re.compile(r"\n@@ -.*", re.DOTALL)  # upstream shows how a pod changed, in Go's field names
_TOO_OLD = re.compile(r"too old resource version: \d+ \(\d+\)")
_LIST_VERSION = "a version of the list"


class Names:
    """Stable names for what is random: the first uid seen is uid-1, the second uid-2."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.uids: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.generated: dict[str, str] = {}

    def plain(self, exchange: Exchange) -> dict[str, Any]:
        """An answer in which nothing is left to chance."""
        body = exchange.body
        self._learn(body)
        shown: dict[str, Any] = {"step": exchange.told, "code": exchange.code, "body": self._value(body)}
        if exchange.warnings:
            shown["warnings"] = sorted(self._text(warning) for warning in exchange.warnings)
        return shown

    def _learn(self, value: Any) -> None:
        """Take note of the versions and generated names in an answer, in the order they stand there."""
        if isinstance(value, list):
            for item in value:
                self._learn(item)
        if not isinstance(value, dict):
            return
        metadata = value.get("metadata")
        if isinstance(metadata, dict) and "items" not in value and value.get("kind") != "Table":
            if metadata.get("uid") and metadata.get("resourceVersion"):
                self.versions.setdefault(metadata["resourceVersion"], f"version-{len(self.versions) + 1}")
            if metadata.get("generateName") and metadata.get("name"):
                name = metadata["name"]
                number = len(self.generated) + 1
                self.generated.setdefault(name, f"{metadata['generateName']}GENERATED-{number}")
        for item in value.values():
            self._learn(item)

    def _value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            kept = sorted(name for name in value if name not in _DROPPED)
            found = {name: self._value(value[name], name) for name in kept}
            metadata = value.get("metadata")
            if isinstance(metadata, dict) and not metadata.get("uid") and "resourceVersion" in metadata:
                found["metadata"]["resourceVersion"] = _LIST_VERSION
            if isinstance(metadata, dict) and metadata.get("continue"):
                found["metadata"]["continue"] = "a token"
            if "causes" in value and isinstance(value["causes"], list):
                found["causes"] = sorted(_distinct(found["causes"]), key=str)
            if "cells" in value:
                found["cells"] = [_age(cell) for cell in found["cells"]]
            if "columnDefinitions" in value and found["columnDefinitions"]:
                found["columnDefinitions"] = [dict(one, description="") for one in found["columnDefinitions"]]
            return found
        if isinstance(value, list):
            return [self._value(item, key) for item in value]
        if isinstance(value, str):
            if key == "resourceVersion":
                return self.versions.get(value, value)
            return self._message(value) if key == "message" else self._text(value)
        return value

    def _text(self, text: str) -> str:
        text = _TIME.sub("TIME", text)
        text = _UID.sub(lambda found: self.uids.setdefault(found[0], f"uid-{len(self.uids) + 1}"), text)
        for name, plain in self.generated.items():
            text = text.replace(name, plain)
        return text.replace(self.namespace, "NS")

    def _message(self, text: str) -> str:
        """A sentence; the problems listed in it come in any order."""
        for version, plain in self.versions.items():
            text = re.sub(rf"\b{version}\b", plain, text)
        text = _TOO_OLD.sub("too old resource version", _SHOWN_CHANGE.sub("", self._text(text)))
        listed = re.fullmatch(r"(.* is invalid: )\[(.*)\]", text, re.DOTALL)
        if listed is None:
            return text
        parts = re.split(r", (?=(?:<nil>|[a-z][\w.\[\]/-]*): )", listed[2])
        return f"{listed[1]}[{', '.join(sorted(parts))}]"


def _distinct(causes: list[Any]) -> list[Any]:
    """Upstream tells some things twice or four times, as often as it looks at them."""
    return [cause for place, cause in enumerate(causes) if cause not in causes[:place]]


def _age(cell: Any) -> Any:
    return "AGE" if isinstance(cell, str) and _AGE.fullmatch(cell) else cell


def plain(exchanges: list[Exchange], namespace: str) -> list[dict[str, Any]]:
    """A conversation in which nothing is left to chance."""
    names = Names(namespace)
    return [names.plain(exchange) for exchange in exchanges]


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where two plain values differ: path, then ours, then theirs."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            below = f"{path}.{key}" if path else key
            yield from differences(ours.get(key, "(absent)"), theirs.get(key, "(absent)"), below)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for place, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(mine, other, f"{path}[{place}]")
    elif ours != theirs or type(ours) is not type(theirs):
        yield f"{path}: ours {ours!r}, theirs {theirs!r}"
