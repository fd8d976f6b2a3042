"""What the provisioning role writes for a Workload, and what it knows of the objects made for it."""

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
    """The tag of a write that is done for a Workload."""

    key: Key
    status: Object | None = None  # of the Workload, if that is written
    template: NewProvisioningRequest | None = None  # whose template is made
    request: NewProvisioningRequest | None = None  # which is made
    spent: Object | None = None  # what is deleted


@dataclass(slots=True)
class ProvisioningWrites:
    """Writes under way for one Workload; it is looked at again when all have ended."""

    before: Object
    open: int
    templates: dict[str, int] = field(default_factory=dict)  # still to be made, by request
    failed: bool = False
    gone: set[str] = field(default_factory=set)  # uids that the watch says are deleted already


class Owned:
    """Objects by the Workload that they were made for."""

    def __init__(self) -> None:
        self.by_owner: dict[Key, dict[str, Object]] = {}

    def put(self, key: Key, obj: Object) -> None:
        """It is there, or changed."""
        self.by_owner.setdefault(key, {})[obj["metadata"]["name"]] = obj

    def drop(self, key: Key, obj: Object) -> None:
        """It is gone; another of its name may be there."""
        there, name = self.by_owner.get(key, {}), obj["metadata"]["name"]
        if name in there and there[name]["metadata"].get("uid") == obj["metadata"].get("uid"):
            del there[name]
        if not there:
            self.by_owner.pop(key, None)

    def of(self, key: Key) -> list[Object]:
        """Those of one Workload."""
        return list(self.by_owner.get(key, {}).values())


def version_of(workload: Object) -> int:
    """Its resourceVersion, to tell which of two is newer."""
    text = str(workload["metadata"].get("resourceVersion", ""))
    return whole_number(text) or 0


def status_write(workload: Object, status: Object, tag: ProvisioningWriteTag) -> Write:
    """The status of a Workload, if nobody changed it since."""
    namespace, name = tag.key
    body, version = {**workload, "status": status}, workload["metadata"].get("resourceVersion", "")
    return Write(
        Verb.UPDATE, api_kinds.WORKLOADS, namespace, name, body, "status", version=version, tag=tag
    )  # fmt: skip


def create_write(kind: Kind, body: Object, tag: ProvisioningWriteTag) -> Write:
    """A template or a request is made."""
    meta = body["metadata"]
    return Write(Verb.CREATE, kind, meta["namespace"], meta["name"], body, tag=tag)


def delete_write(kind: Kind, obj: Object, key: Key) -> Write:
    """A template or a request goes, if it is still this one."""
    meta = obj["metadata"]
    return Write(
        Verb.DELETE, kind, meta["namespace"], meta["name"], uid=meta["uid"], tag=ProvisioningWriteTag(key, spent=obj)
    )  # fmt: skip
