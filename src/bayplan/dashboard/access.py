"""Who gets in: on loopback everyone on this machine, elsewhere users with a token that the cluster knows.

The cluster is asked whose a token is (TokenReview) and what that user may list (SubjectAccessReview), once a
minute for each user. A namespace is shown only to users who may list its pods, its events and every kind of
gang in it: a user sees nothing here that kubectl would not show.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Set
from typing import Any

from bayplan.dashboard.snapshot import DashboardSnapshot
from bayplan.dashboard.views import UserView
from bayplan.dialects.errors import ApiError
from bayplan.dialects.jobs.kinds import KINDS as JOB_KINDS
from bayplan.dialects.jobs.serving_jobs import REPLICA_SET
from bayplan.runtime.core.api_object import ApiCall
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.webhooks.access_reviews import (
    PathPermission,
    review_access,
    review_path,
    review_token,
)

FRONT_DOOR = "/bayplan/dashboard"
"""The path that a user must be allowed to get before anything else is reviewed."""
SECONDS = 60.0  # how long an answer counts
REFUSED_SECONDS = 5.0
USERS_MAX = 256
NAMESPACES_MAX = 200
"""Namespaces reviewed for one user who may not list all of them; further ones are not shown."""

Resource = tuple[str, str]  # group and plural
PODS, EVENTS, NODES = ("", "pods"), ("", "events"), ("", "nodes")
CLUSTER_QUEUES: tuple[Resource, ...] = (("kueue.x-k8s.io", "clusterqueues"), ("scheduling.run.ai", "queues"))
RESOURCES: dict[str, tuple[Resource, ...]] = {
    "Workload": (("kueue.x-k8s.io", "workloads"),),
    "PodGroup": (("scheduling.run.ai", "podgroups"), ("scheduling.k8s.io", "podgroups")),
    "CompositePodGroup": (("scheduling.k8s.io", "compositepodgroups"),),
    REPLICA_SET.kind: ((REPLICA_SET.group, REPLICA_SET.plural),),
}
"""Kind of a gang → the resources one must be allowed to list; kinds of jobs are in their own table."""


class TokenAccess:
    """Reviews tokens. May be called from any thread; blocks until the cluster has answered."""

    def __init__(
        self, request: ApiCall, clock: Clock, current: Callable[[], DashboardSnapshot | None]
    ) -> None:
        self._request, self._clock, self._current = request, clock, current
        self._cache: OrderedDict[bytes, tuple[UserView | PathPermission, float]] = OrderedDict()
        self._lock = threading.Lock()

    def cached(self, token: str) -> UserView | PathPermission | None:
        """The answer of the last minute, if there is one."""
        with self._lock:
            found, until = self._cache.get(_key(token), (None, 0.0))
        return found if found is not None and self._clock.monotonic() < until else None

    def view(self, token: str) -> UserView | PathPermission:
        """What the owner of the token may see, or why nothing."""
        known = self.cached(token)
        if known is not None:
            return known
        try:
            found = self._reviewed(token)
        except ApiError:
            return PathPermission.UNDECIDED  # not cached: it may end at any time
        if found is not PathPermission.UNDECIDED:
            seconds = SECONDS if isinstance(found, UserView) else REFUSED_SECONDS
            with self._lock:
                self._cache[_key(token)] = found, self._clock.monotonic() + seconds
                while len(self._cache) > USERS_MAX:
                    self._cache.popitem(last=False)
        return found

    def _reviewed(self, token: str) -> UserView | PathPermission:
        subject = review_token(self._request, token)
        if isinstance(subject, PathPermission):
            return subject
        door = review_path(self._request, subject, FRONT_DOOR, "get")
        return self._permissions(subject) if door is PathPermission.ALLOWED else door

    def _permissions(self, subject: Mapping[str, Any]) -> UserView | PathPermission:
        def may(resource: Resource, namespace: str = "") -> bool:
            asked = {"verb": "list", "group": resource[0], "resource": resource[1], "namespace": namespace}
            return review_access(self._request, subject, {"resourceAttributes": asked}) is True

        needed = resources_by_namespace(self._current())
        everywhere = {PODS, EVENTS} | {one for found in needed.values() for one in found}
        nodes, queues = may(NODES), all(map(may, CLUSTER_QUEUES))
        if all(map(may, sorted(everywhere))):
            return UserView(True, frozenset(), nodes, queues)
        seen = frozenset(
            namespace
            for namespace in sorted(needed)[:NAMESPACES_MAX]
            if all(may(resource, namespace) for resource in sorted({PODS, EVENTS} | needed[namespace]))
        )
        return UserView(False, seen, nodes, queues)


def resources_by_namespace(snapshot: DashboardSnapshot | None) -> dict[str, Set[Resource]]:
    """The kinds of gangs in every namespace that has any, as resources."""
    found: dict[str, set[Resource]] = {}
    for entry in snapshot.gangs.values() if snapshot is not None else ():
        kind = entry.key.kind
        resources = found.setdefault(entry.key.namespace, set())
        resources.update(RESOURCES.get(kind, ()))
        if kind in JOB_KINDS:
            resources.add((JOB_KINDS[kind].group, JOB_KINDS[kind].plural))
    return dict(found)


def _key(token: str) -> bytes:
    """Cache key: a hash, as tokens are not stored."""
    return hashlib.sha256(token.encode(errors="replace")).digest()
