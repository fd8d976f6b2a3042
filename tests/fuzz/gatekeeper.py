"""What a real API server lets through: built-in kinds by their types and rules, ours by their schemas.

Kinds of others are stored as they are: their schemas often keep unknown fields, and some have none.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from bayplan.backends.crds import define
from bayplan.backends.embedded.api.options import Options
from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.storage.write import read

Object = dict[str, Any]

START = 1_800_000_000.0


class Gatekeeper:
    """Knows the kinds of a cluster in memory, and stores nothing."""

    def __init__(self) -> None:
        numbers = count(1)
        self.store = new_store(lambda: START, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}")
        define(self.store)
        known = self.store.resources.by_place.values()
        self.resources: dict[tuple[str, str], Resource] = {(one.api_version, one.kind): one for one in known}

    def checks(self, obj: Object) -> bool:
        """Whether an API server looks at objects of this kind at all."""
        return (obj["apiVersion"], obj["kind"]) in self.resources

    def passed(self, obj: Object) -> Object | None:
        """The object as it would be stored; None if it is refused."""
        resource = self.resources.get((obj["apiVersion"], obj["kind"]))
        if resource is None:
            return obj
        behaviour = self.store.behaviours.of(resource)
        try:
            found = read(resource, obj, Options())
            behaviour.default(found)
            return None if behaviour.check(found, None) else found
        except (StatusError, RecursionError):
            return None
