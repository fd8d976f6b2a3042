"""A cluster in memory whose pods are scheduled in virtual time: how it goes on, and what it shows."""

from __future__ import annotations

from typing import Any

from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.api import Kind
from bayplan.runtime.core.loop import Loop

Object = dict[str, Any]
START = 1_800_000_000.0
NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
PODS = Kind("", "v1", "Pod", "pods")
EVENTS = Kind("", "v1", "Event", "events")


class PodSite:
    """Those who inherit fill the store, and say which roles the loop has."""

    now: float
    store: Store
    loop: Loop

    def run(self, seconds: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.loop.step(self.now)
            self.now += 0.1

    def get(self, name: str) -> Object:
        return self.store.get(PODS, "default", name)

    def on(self, *names: str) -> list[str]:
        """The nodes of some pods."""
        return [self.get(name)["spec"].get("nodeName", "") for name in names]

    def events(self, name: str) -> list[tuple[str, str]]:
        """Reason and message of the events about an object."""
        items = self.store.list(EVENTS).items
        return [(one["reason"], one["message"]) for one in items if one["involvedObject"]["name"] == name]
