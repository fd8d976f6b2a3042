"""Interpretation of API responses: an ApiError for a read, a WriteOutcome for a write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.client import ApiResponse
from bayplan.dialects.api import Ended, Kind, Write, WriteOutcome
from bayplan.dialects.errors import (
    ApiError,
    Forbidden,
    Misconfigured,
    NotServed,
    Stale,
    Unauthorised,
    Unreachable,
)

OTHER_OBJECT = (
    "UID in precondition",
    "UID in the precondition",
    "uid mismatch",
    "metadata.uid: Invalid value",
)
NOT_BOUND = (
    "is already assigned to node",
    "is being deleted",
    "schedulingGates",
    "Precondition failed",
    "has been modified",
)
"""Conflicts of a binding that was not made; other errors of its store the API server calls conflicts, too."""
QUOTED_MAX = 500


class Status(msgspec.Struct):
    """The fields of a Kubernetes Status that are used."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0


class _Kind(msgspec.Struct):
    kind: str = ""


_status = msgspec.json.Decoder(Status)
_kind = msgspec.json.Decoder(_Kind)


def status_of(body: bytes) -> Status:
    """The Status in a body; another body is quoted as its message."""
    try:
        found = _status.decode(body)
        if found.kind == "Status":
            return found
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    return Status(message=body[:QUOTED_MAX].decode(errors="replace").strip())


def refused_credentials(access: Access) -> str:
    """The message for 401."""
    return (
        f"{access.origin}: {access.server} does not accept the credentials (401); log in again or renew them"
    )


def not_served(kinds: Sequence[Kind], server: str) -> str:
    """The message for kinds that a server does not serve, grouped by API version."""
    by_version: dict[str, list[str]] = {}
    for kind in sorted(kinds, key=lambda kind: (kind.group, kind.version, kind.plural)):
        by_version.setdefault(kind.api_version, []).append(kind.plural)
    what = "; ".join(f"{', '.join(plurals)} of {version}" for version, plurals in by_version.items())
    todo = (
        "install its CRD or turn its API on"
        if len(kinds) == 1
        else "of those you need, install the CRD or turn the API on"
    )
    return f"{server} does not serve {what}; {todo}"


def api_error_of(code: int, body: bytes, kind: Kind, access: Access) -> ApiError:
    """The error for a failed list or watch."""
    detail = status_of(body).message
    server, what = access.server, _what(kind)
    match code:
        case 401:
            return Unauthorised(refused_credentials(access))
        case 403:
            return Forbidden(f"{server} refuses {what}: {detail}; grant the user that permission (RBAC)")
        case 404:
            return NotServed(not_served([kind], server))
        case 410:
            return Stale(f"{server} no longer has the history of {what} asked for: {detail}")
        case 408 | 429:
            return Unreachable(f"{server} is too busy for {what} ({code}): {detail}")
        case _ if code >= 500:
            return Unreachable(f"{server} failed at {what} ({code}): {detail}")
        case _ if 300 <= code < 400:
            return Misconfigured(
                f"{access.origin}: {server} sends us elsewhere ({code}); give the API server's own address"
            )
    return Misconfigured(f"{server} does not understand what is asked of {what} ({code}): {detail}")


def outcome_of(
    write: Write, answer: ApiResponse, decode: Callable[[bytes], Any], access: Access
) -> WriteOutcome:
    """The outcome of a write."""
    code = answer.status
    if 200 <= code < 300:
        return WriteOutcome(write, Ended.DONE, code, object=_object(answer.body, decode))
    status = status_of(answer.body)
    detail = status.message or f"{access.server} answered {code}"
    match code:
        case 401:
            return WriteOutcome(write, Ended.REFUSED, code, refused_credentials(access))
        case 404 if not status.reason:
            return WriteOutcome(write, Ended.REFUSED, code, str(api_error_of(code, b"", write.kind, access)))
        case 404 | 410:
            return WriteOutcome(write, Ended.GONE, code, detail)
        case 409 | 422 if write.uid and any(words in detail for words in OTHER_OBJECT):
            return WriteOutcome(write, Ended.GONE, code, detail)  # of that name there is another object now
        case 409 if write.subresource == "binding" and not any(words in detail for words in NOT_BOUND):
            return WriteOutcome(write, Ended.TIMED_OUT, code, detail)  # the store may have written it
        case 409:
            return WriteOutcome(write, Ended.CONFLICT, code, detail)
        case 429 if write.subresource == "eviction":  # a disruption budget, not a busy server
            return WriteOutcome(write, Ended.REFUSED, code, detail)
        case 408 | 429:
            return WriteOutcome(write, Ended.TIMED_OUT, code, detail)
    return WriteOutcome(write, Ended.TIMED_OUT if code >= 500 else Ended.REFUSED, code, detail)


def _object(body: bytes, decode: Callable[[bytes], Any]) -> Any:
    """The object answered; a bind, an eviction and some deletes answer a Status, which is none."""
    try:
        return None if _kind.decode(body).kind == "Status" else decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # done all the same


def _what(kind: Kind) -> str:
    return f"{kind.plural} of {kind.api_version}"
