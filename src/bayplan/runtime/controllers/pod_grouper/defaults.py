"""Watches the ConfigMap with grouping defaults by kind, and reports problems in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Event, Happened, Kind, Write
from bayplan.dialects.kai.grouper.kind_defaults import problems_of
from bayplan.dialects.kube.encode.binding import event_write
from bayplan.dialects.kube.fields.times import timestamp

# without permission to read it, the grouper works without it
CONFIG_MAPS = Kind("", "v1", "ConfigMap", "configmaps", optional=True)
REASON = "DefaultsIgnored"
_TOLD_MAX = 3  # problems listed in one warning


class WatchedDefaults:
    """The ConfigMap as last seen; without a name nothing is watched."""

    def __init__(self, where: tuple[str, str] | None, note: Callable[[str], None]) -> None:
        self.namespace, self.name = where or ("", "")
        # Only this object is watched, so that no permission for other ConfigMaps is needed.
        only = replace(
            CONFIG_MAPS, only_namespace=self.namespace, field_selector=f"metadata.name={self.name}"
        )
        self.kinds = (only,) if self.name else ()
        self.object: dict[str, Any] | None = None
        self._note = note
        self._seen = False
        self._reported = ""

    def take(self, event: Event) -> None:
        """The ConfigMap was added, changed or deleted."""
        self._seen = True
        if event.happened is not Happened.SYNCED:
            self.object = None if event.happened is Happened.GONE else event.object

    def find(self, kind: str, namespace: str, name: str) -> object:
        """The ConfigMap, if it is the object asked for."""
        asked = kind == CONFIG_MAPS.kind and (namespace, name) == (self.namespace, self.name)
        return self.object if asked else None

    def warnings(self, now: float) -> Iterator[Write]:
        """Log a problem and publish it as an event, once until it changes."""
        problem = self._wrong() if self._seen else ""
        if problem == self._reported:
            return
        self._reported = problem
        if not problem:
            return
        text = f"{CONFIG_MAPS.kind} {self.namespace}/{self.name}: {problem}"
        self._note(f"{text}; pods are grouped without these defaults")
        if self.object is not None:
            about = {"apiVersion": "v1", "kind": CONFIG_MAPS.kind, "uid": self.object["metadata"]["uid"]}
            about |= {"namespace": self.namespace, "name": self.name}
            yield event_write(about, REASON, text, "Warning", timestamp(now))

    def _wrong(self) -> str:
        if self.object is None:
            return "does not exist, or may not be read" if self.name else ""
        problems = problems_of(self.object)
        more = len(problems) - _TOLD_MAX
        return "; ".join(problems[:_TOLD_MAX]) + (f"; and {more} more" if more > 0 else "")
