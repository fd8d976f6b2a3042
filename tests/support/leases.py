"""A Lease in memory, and replicas that compete for it, for tests of the election."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from bayplan.runtime.core.api_object import WriteConflict
from bayplan.runtime.process.election import Election, Timing

TIMING = Timing()


class Store:
    """A Lease under optimistic locking."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.calls: list[str] = []
        self.seconds: list[float] = []

    def get(self, seconds: float) -> dict[str, Any] | None:
        self._called("get", seconds)
        return copy.deepcopy(self.lease)

    def create(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        self._called("create", seconds)
        if self.lease is not None:
            raise WriteConflict
        return self._keep(body)

    def update(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        self._called("update", seconds)
        if self.lease is None or body["metadata"]["resourceVersion"] != str(self.version):
            raise WriteConflict
        return self._keep(body)

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def _keep(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = copy.deepcopy({**body, "metadata": {"resourceVersion": str(self.version)}})
        return copy.deepcopy(self.lease)

    def _called(self, name: str, seconds: float) -> None:
        assert 0 < seconds <= TIMING.call_seconds
        self.calls.append(name)
        self.seconds.append(seconds)


def replica(store: Any, name: str, clock: Any, notes: list[str] | None = None) -> Election:
    note: Callable[[str], None] = notes.append if notes is not None else lambda sentence: None
    return Election(store, name, clock, lambda: 0.0, TIMING, note)
