"""The target of a write, and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayplan.backends.embedded.api.resource import Resource, key_of


@dataclass(slots=True)
class Options:
    """Options of a write."""

    dry_run: bool = False
    validation: str = "Ignore"  # of unknown fields: Ignore, Warn or Strict
    warnings: list[str] = field(default_factory=list)  # filled by the store
    manager: str = ""  # who applies; for server-side apply


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """The object or subresource that is written."""

    resource: Resource
    namespace: str
    name: str = ""
    subresource: str = ""
    options: Options = field(default_factory=Options)

    @property
    def key(self) -> str:
        """The storage key of the object."""
        return key_of(self.resource, self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Options of a delete."""

    grace: int | None = None  # seconds
    propagation: str = ""  # Background, Foreground, Orphan; empty: the kind's own
    uid: str = ""
    version: str = ""

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Deletion:
        """From DeleteOptions."""
        same = body.get("preconditions") or {}
        propagation = body.get("propagationPolicy") or ("Orphan" if body.get("orphanDependents") else "")
        return cls(
            body.get("gracePeriodSeconds"),
            propagation,
            same.get("uid") or "",
            same.get("resourceVersion") or "",
        )
