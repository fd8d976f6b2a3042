"""One object of the API, read and written whole under its resourceVersion, over any function that can ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from bayplan.dialects.api import Kind
from bayplan.dialects.errors import ApiError, Forbidden, NotServed, Unauthorised, Unreachable

LEASE = Kind("coordination.k8s.io", "v1", "Lease", "leases")
SECRET = Kind("", "v1", "Secret", "secrets")


class ApiCall(Protocol):
    """Asks the API server and gives status and body; raises Trouble if there is no answer in time."""

    def __call__(self, method: str, path: str, body: bytes, seconds: float, /) -> tuple[int, bytes]: ...


class WriteConflict(Exception):
    """Somebody else wrote the object first, created it, or removed it."""


class NamedObject(Protocol):
    """An object that several replicas share. Every call ends within its seconds."""

    def get(self, seconds: float) -> dict[str, Any] | None:
        """The object as it is, or None if there is none."""

    def create(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Make it; Taken if it is there."""

    def update(self, body: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Replace it; Taken if it is not of the resourceVersion in the body."""


class ApiObject:
    """A named object behind an API server."""

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
        assert body["metadata"]["resourceVersion"], "an update without a precondition overwrites others"
        data = msgspec.json.encode({**self._identity, **body})
        status, answer = self._request("PUT", self._path, data, seconds)
        if status == 409 or (status == 404 and not _path_unknown(answer)):
            raise WriteConflict(_message(answer))
        return self._read(status, answer)

    def _read(self, status: int, body: bytes) -> dict[str, Any]:
        if 200 <= status < 300:
            try:
                return msgspec.json.decode(body, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError):  # somebody on the way answered, not the server
                raise Unreachable(f"{self._path}: {status}, but no object: {_message(body)}") from None
        kinds: dict[int, type[ApiError]] = {401: Unauthorised, 403: Forbidden, 404: NotServed}
        raise kinds.get(status, Unreachable)(f"{self._path}: {status} {_message(body)}")


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body)["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


def _path_unknown(body: bytes) -> bool:
    """Whether the resource does not exist at all, rather than just this object of it."""
    try:
        return not msgspec.json.decode(body).get("details", {}).get("name")
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):
        return True
