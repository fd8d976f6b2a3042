"""Accessors and writes of API objects that all simulated controllers share."""

from __future__ import annotations

import hashlib
from typing import Any

from bayplan.dialects.api import Kind, Verb, Write

Object = dict[str, Any]

NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
PODS = Kind("", "v1", "Pod", "pods")
JOBS = Kind("batch", "v1", "Job", "jobs")
JOB_SETS = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", optional=True)
LEADER_WORKER_SETS = Kind(
    "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets", optional=True
)
MPI_JOBS = Kind("kubeflow.org", "v2beta1", "MPIJob", "mpijobs", optional=True)
DEPLOYMENTS = Kind("apps", "v1", "Deployment", "deployments")
REPLICA_SETS = Kind("apps", "v1", "ReplicaSet", "replicasets")
STATEFUL_SETS = Kind("apps", "v1", "StatefulSet", "statefulsets")
OVER = ("Succeeded", "Failed")
HASH_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


def name_of(found: Object) -> tuple[str, str]:
    """Namespace and name."""
    meta = found.get("metadata", {})
    return meta.get("namespace", ""), meta.get("name", "")


def uid_of(found: Object) -> str:
    """The uid."""
    return str(found.get("metadata", {}).get("uid", ""))


def labels_of(found: Object) -> dict[str, str]:
    """Labels, if any."""
    return found.get("metadata", {}).get("labels") or {}


def annotations_of(found: Object) -> dict[str, str]:
    """Annotations, if any."""
    return found.get("metadata", {}).get("annotations") or {}


def phase_of(pod: Object) -> str:
    """The phase of a pod."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


def is_terminating(found: Object) -> bool:
    """Whether an object is terminating."""
    return bool(found.get("metadata", {}).get("deletionTimestamp"))


def is_owned_by(found: Object, owner: Object) -> bool:
    """Whether an object has a reference to the owner."""
    references = found.get("metadata", {}).get("ownerReferences") or []
    return any(reference.get("uid") == uid_of(owner) for reference in references)


def owner_reference(owner: Object, kind: Kind) -> Object:
    """The controller owner reference to an object."""
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": name_of(owner)[1],
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def suffix(*parts: object) -> str:
    """A deterministic name suffix of five letters."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return "".join(HASH_LETTERS[byte % len(HASH_LETTERS)] for byte in digest[:5])


def condition(kind: str, now: str, reason: str, message: str = "", status: str = "True") -> Object:
    """One condition as a status holds it."""
    return {
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
    }  # fmt: skip


def has_condition(found: Object, *kinds: str) -> bool:
    """Whether any of these conditions is true."""
    conditions = (found.get("status") or {}).get("conditions") or []
    return any(c.get("type") in kinds and c.get("status") == "True" for c in conditions)


def create(kind: Kind, body: Object) -> Write:
    """A write that creates an object."""
    namespace, name = name_of(body)
    return Write(Verb.CREATE, kind, namespace, name, body)


def patch(kind: Kind, found: Object, change: Object) -> Write:
    """A write that patches an object, with its uid as precondition."""
    namespace, name = name_of(found)
    return Write(Verb.MERGE_PATCH, kind, namespace, name, change, uid=uid_of(found))


def patch_status(kind: Kind, found: Object, status: Object) -> Write:
    """A write that patches the status."""
    namespace, name = name_of(found)
    return Write(Verb.MERGE_PATCH, kind, namespace, name, {"status": status}, "status", uid=uid_of(found))


def delete(kind: Kind, found: Object, grace: int | None = None) -> Write:
    """A write that deletes an object, with its uid as precondition."""
    namespace, name = name_of(found)
    return Write(Verb.DELETE, kind, namespace, name, uid=uid_of(found), grace_seconds=grace)
