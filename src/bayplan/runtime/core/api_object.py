"""One named API object, read and replaced whole under its resourceVersion, over any request function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from bayplan.dialects.api import Kind
from bayplan.dialects.errors import ApiError, Forbidden, NotServed, Unauthorised, Unreachable

LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
SECRET = Kind("", "v1", "Secret", "secrets")


class ApiCall(Protocol):
    """Sends a request to the API server; returns status and body, or raises ApiError on a timeout."""

    def __call__(self, method: str, path: str, body: bytes, seconds: float, /) -> tuple[int, bytes]: ...


class WriteConflict(Exception):
    """Another client wrote, created or deleted the object first."""


class NamedObject(Protocol):
    """An object shared by several replicas. Every call ends within its seconds."""

    def get(self, seconds: float) -> dict[str, Any] | None:
        """The object as it is, or None if there is none."""

    def create(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Create it; WriteConflict if it exists."""

    def update(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Replace it; WriteConflict if its resourceVersion is not the one in the body."""


class ApiObject:
    """A named object on an API server."""

    def __init__(self, request: ApiCall, kind: Kind, namespace: str, name: str) -> None:
        self._request = request
        self._collection = kind.path(namespace)
        self._path = kind.path(namespace, name)
        self._identity = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        }

    def get(self, seconds: float) -> dict[str, Any] | None:
        status, body = self._request("GET", self._path, b"", seconds)
        return None if status == 404 and not _path_unknown(body) else self._read(status, body)

    def create(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        data = msgspec.json.encode({**self._identity, **body})
        status, answer = self._request("POST", self._collection, data, seconds)
        if status == 409:
            raise WriteConflict(_message(answer))
        return self._read(status, answer)

    def update(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        assert body["metadata"]["resourceVersion"], (
            "an update without a resourceVersion overwrites concurrent changes"
        )
        data = msgspec.json.encode({**self._identity, **body})
        status, answer = self._request("PUT", self._path, data, seconds)
        if status == 409 or (status == 404 and not _path_unknown(answer)):
            raise WriteConflict(_message(answer))
        return self._read(status, answer)

    def _read(self, status: int, body: bytes) -> dict[str, Any]:
        if 200 <= status < 300:
            try:
                return msgspec.json.decode(body, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError):  # a proxy answered, not the API server
                raise Unreachable(f"{self._path}: {status}, but no object: {_message(body)}") from None
        kinds: dict[int, type[ApiError]] = {401: Unauthorised, 403: Forbidden, 404: NotServed}
        raise kinds.get(status, Unreachable)(f"{self._path}: {status} {_message(body)}")


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


def _path_unknown(body: bytes) -> bool:
    """Whether the resource type does not exist, rather than just this object of it."""
    try:
        return not msgspec.json.decode(body).get("details", {}).get("name")
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        return True
