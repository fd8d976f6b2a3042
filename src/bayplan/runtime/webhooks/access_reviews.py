"""Authorizes readers: asks the cluster who a token belongs to, and whether that user may read a path.

As Kubernetes controllers do, with a TokenReview and a SubjectAccessReview. Answers are cached for a while, so
that neither scrapes nor wrong tokens load the API server.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum
from typing import Any

import msgspec

from bayplan.dialects.errors import ApiError
from bayplan.runtime.core.api_object import ApiCall
from bayplan.runtime.core.clock import Clock

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CALL_SECONDS = 5.0
ALLOWED_SECONDS = 60.0  # how long an answer is cached
REFUSED_SECONDS = 10.0
CACHE_MAX = 1000
TOKEN_MAX = 16 * 1024


class PathPermission(Enum):
    """The permission of a user for a path."""

    ALLOWED = 200
    UNKNOWN = 401  # the token is not valid
    FORBIDDEN = 403
    UNDECIDED = 503  # the cluster did not answer


class AccessReviews:
    """Asks the cluster about tokens. May be called from any thread."""

    def __init__(self, request: ApiCall, clock: Clock) -> None:
        self._request, self._clock = request, clock
        self._cache: OrderedDict[bytes, tuple[PathPermission, float]] = OrderedDict()
        self._lock = threading.Lock()

    def cached(self, token: str, path: str) -> PathPermission | None:
        """The cached answer, if there is one."""
        with self._lock:
            found, until = self._cache.get(_key(token, path), (None, 0.0))
        return found if found is not None and self._clock.monotonic() < until else None

    def ask(self, token: str, path: str, verb: str = "get") -> PathPermission:
        """Whether the owner of the token may read the path. Blocks until the cluster has answered."""
        known = self.cached(token, path)
        if known is not None:
            return known
        try:
            found = self._reviewed(token, path, verb)
        except ApiError:
            return PathPermission.UNDECIDED  # not cached: it may end at any time
        seconds = ALLOWED_SECONDS if found is PathPermission.ALLOWED else REFUSED_SECONDS
        if found is not PathPermission.UNDECIDED:
            with self._lock:
                self._cache[_key(token, path)] = (found, self._clock.monotonic() + seconds)
                while len(self._cache) > CACHE_MAX:
                    self._cache.popitem(last=False)
        return found

    def _reviewed(self, token: str, path: str, verb: str) -> PathPermission:
        subject = review_token(self._request, token)
        if isinstance(subject, PathPermission):
            return subject
        return review_path(self._request, subject, path, verb)


def review_token(request: ApiCall, token: str) -> dict[str, Any] | PathPermission:
    """The owner of a token, as the subject of access reviews; or why there is none. Raises ApiError."""
    if not token or len(token) > TOKEN_MAX:
        return PathPermission.UNKNOWN
    whose = _post(request, TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
    if whose is None:
        return PathPermission.UNDECIDED
    user = whose.get("user")
    if whose.get("authenticated") is not True or not isinstance(user, dict):
        return PathPermission.UNKNOWN
    return {
        "user": user.get("username", ""),
        "uid": user.get("uid", ""),
        "groups": user.get("groups") or [],
        "extra": user.get("extra") or {},
    }


def review_path(request: ApiCall, subject: Mapping[str, Any], path: str, verb: str) -> PathPermission:
    """Whether a subject may read a path. Raises ApiError."""
    allowed = review_access(request, subject, {"nonResourceAttributes": {"path": path, "verb": verb}})
    if allowed is None:
        return PathPermission.UNDECIDED
    return PathPermission.ALLOWED if allowed else PathPermission.FORBIDDEN


def review_access(request: ApiCall, subject: Mapping[str, Any], asked: Mapping[str, Any]) -> bool | None:
    """Whether the cluster allows it; None if it did not answer. Raises ApiError."""
    spec = {**subject, **asked}
    found = _post(request, ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
    return None if found is None else found.get("allowed") is True


def _post(
    request: ApiCall, path: str, version: str, kind: str, spec: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The status of a review; None if the cluster refused it, for instance for lack of permission."""
    body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
    status, answer = request("POST", path, body, CALL_SECONDS)
    if not 200 <= status < 300:
        return None
    try:
        found = msgspec.json.decode(answer, type=dict[str, Any]).get("status")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def _key(token: str, path: str) -> bytes:
    """Cache key: a hash, as tokens are not stored."""
    return hashlib.sha256(f"{path}\0{token}".encode(errors="replace")).digest()
