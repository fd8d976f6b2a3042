"""Conversations as data: YAML files of steps, each a request with what to remember, or a watch to read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent / "talks"
FORMS = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "yaml": "application/yaml",
}
ACCEPTED = {
    "table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "metadata": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "metadata-list": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
}
_BLANK = re.compile(r"<([a-z][a-z0-9_]*)>")


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a conversation."""

    method: str = ""
    path: str = ""
    body: Any = None
    text: str | None = None  # a body that is no JSON
    form: str = "application/json"
    accept: str = "application/json"
    keep: dict[str, str] = field(default_factory=dict)  # name → where it stands in the answer
    until: dict[str, Any] = field(default_factory=dict)  # ask again until this holds
    watch: str = ""  # begins a watch of this name
    read: str = ""  # reads from the watch of this name
    count: int = 0  # so many events

    @property
    def told(self) -> str:
        """How a difference names the step."""
        return f"read {self.read}" if self.read else f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation."""

    name: str
    steps: tuple[Step, ...]
    kinds: tuple[dict[str, Any], ...] = ()  # CustomResourceDefinitions that must exist first

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:40].strip("-")


def talks() -> Iterator[Talk]:
    """Every conversation."""
    for path in sorted(FOLDER.glob("*.yaml")):
        for entry in yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader):
            steps = tuple(_step(line) for line in entry["steps"])
            yield Talk(entry["name"], steps, tuple(entry.get("kinds", ())))


def filled(value: Any, known: dict[str, str]) -> Any:
    """A value with every <name> in its texts replaced by what is known of it."""
    if isinstance(value, str):
        return _BLANK.sub(lambda found: known[found[1]], value)
    if isinstance(value, dict):
        return {filled(key, known): filled(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, known) for item in value]
    return value


def _step(line: dict[str, Any]) -> Step:
    if "read" in line:
        return Step(read=line["read"], count=line["count"])
    method, _, path = line["do"].partition(" ")
    return Step(
        method,
        path,
        line.get("body"),
        line.get("text"),
        FORMS.get(line.get("as", ""), line.get("as", "application/json")),
        ACCEPTED.get(line.get("accept", ""), line.get("accept", "application/json")),
        line.get("keep", {}),
        line.get("until", {}),
        line.get("watch", ""),
    )
