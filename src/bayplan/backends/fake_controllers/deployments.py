"""A simulated Deployment controller: a ReplicaSet for each template, and rollouts between them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

from bayplan.backends.fake_controllers.objects import (
    DEPLOYMENTS,
    REPLICA_SETS,
    Object,
    annotations_of,
    condition,
    create,
    delete,
    is_terminating,
    labels_of,
    name_of,
    owner_reference,
    patch,
    patch_status,
    suffix,
)  # fmt: skip
from bayplan.backends.fake_controllers.replica_sets import changed_status, replicas_of
from bayplan.dialects.api import Write

HASH = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
HISTORY_DEFAULT = 10


def reconcile_deployment(found: Object, replica_sets: Sequence[Object], now: str) -> Iterator[Write]:
    """The writes that bring the ReplicaSets and the status of a Deployment a step further."""
    if is_terminating(found):
        return
    sets = [one for one in replica_sets if not is_terminating(one)]
    wanted = template_hash(found["spec"]["template"])
    new = next((one for one in sets if labels_of(one).get(HASH) == wanted), None)
    old = [one for one in sets if one is not new]
    yield from _status(found, sets, new, now)
    paused = bool(found["spec"].get("paused"))
    if new is None:
        if not paused and not (_recreates(found) and any(_now(one) for one in old)):
            revision = 1 + max((_revision(one) for one in old), default=0)
            size = replicas_of(found) if not old or _recreates(found) else _size_of_new(found, old, None)
            yield create(REPLICA_SETS, _replica_set(found, wanted, revision, size))
            yield _with_revision(DEPLOYMENTS, found, revision)
        elif not paused:
            yield from (_sized(one, 0) for one in old if replicas_of(one))
        return
    newest = max((_revision(one) for one in old), default=0)
    if _revision(new) <= newest:  # an older template is wanted again
        yield _with_revision(REPLICA_SETS, new, newest + 1)
        yield _with_revision(DEPLOYMENTS, found, newest + 1)
    if not paused or not any(replicas_of(one) for one in old):
        yield from _rolled(found, new, old)
    yield from _pruned(found, old)


def template_hash(template: Object) -> str:
    """The pod-template-hash of a template."""
    text = json.dumps(template, sort_keys=True)
    return suffix(text, "first") + suffix(text, "second")


def _rolled(found: Object, new: Object, old: Sequence[Object]) -> Iterator[Write]:
    """Scale the new ReplicaSet up, then the old ones down as far as maxUnavailable allows."""
    if _recreates(found):
        yield from (_sized(one, 0) for one in old if replicas_of(one))
        size = replicas_of(found)
    else:
        size = _size_of_new(found, old, new)
    if size != replicas_of(new):
        yield _sized(new, size)
        return
    if _recreates(found):
        return
    total = replicas_of(new) + sum(map(replicas_of, old))
    unavailable = max(replicas_of(new) - _available(new), 0)
    surplus = total - (replicas_of(found) - _share(found, "maxUnavailable")) - unavailable
    for one in sorted(old, key=_revision):
        fewer = min(replicas_of(one), surplus)
        if fewer > 0:
            surplus -= fewer
            yield _sized(one, replicas_of(one) - fewer)


def _size_of_new(found: Object, old: Sequence[Object], new: Object | None) -> int:
    """The size of the new ReplicaSet, limited by maxSurge."""
    wanted = replicas_of(found)
    had = replicas_of(new) if new is not None else 0
    others = sum(map(replicas_of, old))
    if not others:
        return wanted
    free = wanted + _share(found, "maxSurge") - others - had
    return min(wanted, had + max(free, 0))


def _share(found: Object, key: str) -> int:
    """maxSurge or maxUnavailable in pods; one of the two is at least 1."""
    rolling = (found["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    wanted = replicas_of(found)
    surge = _number(rolling.get("maxSurge", "25%"), wanted, up=True)
    missing = _number(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    if not surge and not missing:
        missing = 1
    return surge if key == "maxSurge" else missing


def _number(amount: Any, wanted: int, up: bool) -> int:
    if isinstance(amount, int):
        return max(amount, 0)
    digits = str(amount).removesuffix("%")
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 10):
        return 0
    share = wanted * int(digits) / 100
    return math.ceil(share) if up else math.floor(share)


def _pruned(found: Object, old: Sequence[Object]) -> Iterator[Write]:
    """Delete empty ReplicaSets beyond the revision history limit."""
    limit = found["spec"].get("revisionHistoryLimit")
    kept = HISTORY_DEFAULT if limit is None else int(limit)
    empty = sorted((one for one in old if not replicas_of(one) and not _now(one)), key=_revision)
    yield from (delete(REPLICA_SETS, one) for one in empty[: max(len(empty) - kept, 0)])


def _status(found: Object, sets: Sequence[Object], new: Object | None, now: str) -> Iterator[Write]:
    total, available = sum(map(_now, sets)), sum(map(_available, sets))
    updated, wanted = _now(new) if new is not None else 0, replicas_of(found)
    status: Object = {
        "replicas": total,
        "updatedReplicas": updated,
        "readyReplicas": available,
        "availableReplicas": available,
        "unavailableReplicas": max(max(total, wanted) - available, 0),
        "observedGeneration": found["metadata"].get("generation", 1),
    }
    enough = available >= wanted - _share(found, "maxUnavailable")
    done = new is not None and updated == total == wanted and _available(new) == wanted
    conditions = [
        ("Available", enough, "MinimumReplicasAvailable" if enough else "MinimumReplicasUnavailable"),
        ("Progressing", True, "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"),
    ]
    known = {one["type"]: one for one in (found.get("status") or {}).get("conditions") or ()}
    fresh = []
    for kind, holds, reason in conditions:
        text = "True" if holds else "False"
        before = known.get(kind, {})
        same = before.get("status") == text and before.get("reason") == reason
        fresh.append(before if same else {**condition(kind, now, reason, status=text), "lastUpdateTime": now})
    changed = changed_status(found, status)
    if fresh != list(known.values()):
        changed["conditions"] = fresh
    if changed:
        yield patch_status(DEPLOYMENTS, found, changed)


def _replica_set(found: Object, wanted: str, revision: int, size: int) -> Object:
    namespace, name = name_of(found)
    spec = found["spec"]
    template = deepcopy(spec["template"])
    own = {HASH: wanted}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": labels_of(template) | own}
    selector = deepcopy(spec["selector"])
    selector["matchLabels"] = (selector.get("matchLabels") or {}) | own
    return {
        "apiVersion": REPLICA_SETS.api_version,
        "kind": REPLICA_SETS.kind,
        "metadata": {
            "name": f"{name}-{wanted}",
            "namespace": namespace,
            "labels": labels_of(template),
            "annotations": {REVISION: str(revision)},
            "ownerReferences": [owner_reference(found, DEPLOYMENTS)],
        },
        "spec": {"replicas": size, "selector": selector, "template": template},
    }


def _with_revision(kind: Any, found: Object, revision: int) -> Write:
    return patch(kind, found, {"metadata": {"annotations": {REVISION: str(revision)}}})


def _sized(one: Object, size: int) -> Write:
    return patch(REPLICA_SETS, one, {"spec": {"replicas": size}})


def _recreates(found: Object) -> bool:
    return (found["spec"].get("strategy") or {}).get("type") == "Recreate"


def _revision(one: Object) -> int:
    text = annotations_of(one).get(REVISION, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _now(one: Object) -> int:
    return int((one.get("status") or {}).get("replicas") or 0)


def _available(one: Object) -> int:
    return int((one.get("status") or {}).get("availableReplicas") or 0)
