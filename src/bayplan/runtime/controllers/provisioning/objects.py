"""The writes of the provisioning controller for a Workload, and the objects it owns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.provisioning.requests import NewProvisioningRequest
from bayplan.model.whole_numbers import whole_number

Key = tuple[str, str]
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ProvisioningWriteTag:
    """The tag of a write for a Workload."""

    key: Key
    status: Object | None = None  # status of the Workload, if that is written
    template: NewProvisioningRequest | None = None  # the request whose template is created
    request: NewProvisioningRequest | None = None  # the request that is created
    deleted: Object | None = None  # the object that is deleted


@dataclass(slots=True)
class ProvisioningWrites:
    """Writes in flight for one Workload; it is reconciled when all have ended."""

    before: Object
    unfinished: int
    templates: dict[str, int] = field(default_factory=dict)  # templates still to be created, by request
    failed: bool = False
    gone: set[str] = field(default_factory=set)  # uids that the watch reported as deleted


class Owned:
    """Objects by the Workload that owns them."""

    def __init__(self) -> None:
        self.by_owner: dict[Key, dict[str, Object]] = {}
        self.owners: dict[Key, Key] = {}  # by namespace and name of the object

    def put(self, key: Key | None, obj: Object) -> None:
        """An object was added or changed; without a key no Workload owns it."""
        self._forget(obj)
        if key is not None:
            self.by_owner.setdefault(key, {})[obj["metadata"]["name"]] = obj
            self.owners[_key_of(obj)] = key

    def drop(self, obj: Object) -> None:
        """An object was deleted; another one of its name may exist."""
        there = self.by_owner.get(self.owners.get(_key_of(obj), ("", "")), {})
        known = there.get(obj["metadata"]["name"])
        if known is not None and known["metadata"].get("uid") == obj["metadata"].get("uid"):
            self._forget(obj)

    def _forget(self, obj: Object) -> None:
        owner = self.owners.pop(_key_of(obj), None)
        if owner is not None:
            del self.by_owner[owner][obj["metadata"]["name"]]
            if not self.by_owner[owner]:
                del self.by_owner[owner]

    def of(self, key: Key) -> list[Object]:
        """The objects of one Workload."""
        return list(self.by_owner.get(key, {}).values())


def _key_of(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def version_of(workload: Object) -> int:
    """Its resourceVersion as a number, to compare two versions."""
    text = str(workload["metadata"].get("resourceVersion", ""))
    return whole_number(text) or 0


def status_write(workload: Object, status: Object, tag: ProvisioningWriteTag) -> Write:
    """A status update of a Workload, conditional on its resourceVersion."""
    namespace, name = tag.key
    body, version = {**workload, "status": status}, workload["metadata"].get("resourceVersion", "")
    return Write(
        Verb.UPDATE, api_kinds.WORKLOADS, namespace, name, body, "status", version=version, tag=tag
    )  # fmt: skip


def create_write(kind: Kind, body: Object, tag: ProvisioningWriteTag) -> Write:
    """Creation of a template or a request."""
    meta = body["metadata"]
    return Write(Verb.CREATE, kind, meta["namespace"], meta["name"], body, tag=tag)


def delete_write(kind: Kind, obj: Object, key: Key) -> Write:
    """Deletion of a template or a request, conditional on its uid."""
    meta = obj["metadata"]
    return Write(
        Verb.DELETE,
        kind,
        meta["namespace"],
        meta["name"],
        uid=meta["uid"],
        tag=ProvisioningWriteTag(key, deleted=obj),
    )
