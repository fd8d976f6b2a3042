"""Objects that a review depends on: read from the API server when needed, and cached for a while.

A review must not wait long for an API server that waits for the review. Each call has a short timeout, and
after a failure no call is made for a while: then nothing is known, and references are assumed valid.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import msgspec

from bayplan.dialects.api import Kind
from bayplan.dialects.errors import ApiError
from bayplan.dialects.jobs.kinds import BY_GROUP
from bayplan.dialects.kube.fields.name_rules import subdomain_problems
from bayplan.dialects.reviews import OwnerUnknown
from bayplan.runtime.controllers.jobs.cache import CLASSES
from bayplan.runtime.core.api_object import ApiCall
from bayplan.runtime.core.clock import Clock

Object = dict[str, Any]
Key = tuple[str, str, str, str]

CALL_SECONDS = 0.5
PAUSE_SECONDS = 10.0
"""How long the API server is not called again after a failure."""
CACHE_SECONDS = 60.0
CACHE_MAX = 10_000

CONTROLLERS = {
    key: kind.resource
    for key, kind in BY_GROUP.items()
    if kind.parts is not None or kind.between or kind.never_queued
}
"""Kinds that are looked up as owners, by group and name."""
LOOKED_UP = (*CONTROLLERS.values(), *CLASSES)


class LiveObjects:
    """Looks up objects. Found objects are cached for a minute; missing ones are not."""

    def __init__(self, request: ApiCall, clock: Clock) -> None:
        self._request, self._clock = request, clock
        self._cache: OrderedDict[Key, tuple[float, Object]] = OrderedDict()
        self._paused_until = 0.0

    def controller(self, group: str, kind: str, namespace: str, name: str) -> Object | None:
        """An owner; None if there is none. Raises OwnerUnknown if the API server does not answer."""
        known = CONTROLLERS.get((group, kind))
        return None if known is None else self._get(known, namespace, name)

    def has_class(self, kind: str, name: str) -> bool:
        """Whether a priority class exists; assumed if the API server does not answer."""
        known = next((one for one in CLASSES if one.kind == kind), None)
        try:
            return known is None or self._get(known, "", name) is not None
        except OwnerUnknown:
            return True

    def _get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        if subdomain_problems(name) or (kind.namespaced and subdomain_problems(namespace)):
            return None  # not a valid object name, and it must not become part of a path
        key = (kind.group, kind.kind, namespace, name)
        now = self._clock.monotonic()
        until, found = self._cache.get(key, (0.0, {}))
        if now < until:
            return found
        if now < self._paused_until:
            raise OwnerUnknown
        try:
            status, body = self._request("GET", kind.path(namespace, name), b"", CALL_SECONDS)
        except ApiError as error:
            self._paused_until = self._clock.monotonic() + PAUSE_SECONDS
            raise OwnerUnknown from error
        if status == 404:
            self._cache.pop(key, None)
            return None
        if status != 200:
            self._paused_until = now + PAUSE_SECONDS
            raise OwnerUnknown
        try:
            return self._store(key, _essence(body), now)
        except RecursionError:
            return None  # nested too deeply by its author: it must not count as valid for that

    def _store(self, key: Key, found: Object, now: float) -> Object:
        self._cache[key] = (now + CACHE_SECONDS, found)
        self._cache.move_to_end(key)
        while len(self._cache) > CACHE_MAX:
            self._cache.popitem(last=False)
        return found


def _essence(body: bytes) -> Object:
    """The relevant fields of an owner: its uid, its own owners, and its selector."""
    try:
        obj = msgspec.json.decode(body, type=dict[str, Any])
        metadata, spec = obj["metadata"], obj.get("spec")
        kept = {key: metadata[key] for key in ("uid", "ownerReferences", "labels") if key in metadata}
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError):
        raise OwnerUnknown from None
    selector = spec.get("selector") if isinstance(spec, dict) else None
    return {"metadata": kept, "spec": {"selector": selector} if selector is not None else {}}
