"""The garbage collector: background, foreground and orphan deletion of dependents."""

from __future__ import annotations

from typing import Any

from bayplan.backends.embedded.api.options import Deletion, WriteTarget
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.owners import Place
from bayplan.backends.embedded.storage.watch_log import DELETED, StoreChange

Object = dict[str, Any]

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"


def react(store: ObjectStorage, storage: str, change: StoreChange) -> None:
    """Process the owners and dependents of one change."""
    metadata = change.object["metadata"]
    owners = metadata.get("ownerReferences")
    if change.type == DELETED:
        for place in list(store.owners.dependents.get(metadata["uid"], ())):
            _collect(store, place)
        for owner in owners or ():
            _advance(store, owner["uid"])
        return
    if metadata.get("deletionTimestamp"):
        _advance(store, metadata["uid"])
        for owner in owners or ():
            _advance(store, owner["uid"])
    elif owners and (change.previous is None or change.previous["metadata"].get("ownerReferences") != owners):
        _collect(store, (storage, change.key))


def _collect(store: ObjectStorage, place: Place) -> None:
    """Delete a dependent without any owner left; else remove its references to deleted owners."""
    item = _at(store, place)
    if item is None or item["metadata"].get("deletionTimestamp"):
        return
    owners = item["metadata"].get("ownerReferences") or []
    alive = [owner for owner in owners if owner["uid"] in store.owners.places]
    if owners and not alive:
        _delete(store, place, "Background")
    elif len(alive) < len(owners):
        _edit(store, place, {"ownerReferences": alive})


def _advance(store: ObjectStorage, uid: str) -> None:
    """Advance the foreground or orphan deletion of an owner."""
    place = store.owners.places.get(uid)
    owner = _at(store, place) if place else None
    if place is None or owner is None or not owner["metadata"].get("deletionTimestamp"):
        return
    finalizers = owner["metadata"].get("finalizers") or []
    if ORPHAN in finalizers:
        for dependent in list(store.owners.dependents.get(uid, ())):
            item = _at(store, dependent)
            assert item is not None
            rest = [one for one in item["metadata"]["ownerReferences"] if one["uid"] != uid]
            _edit(store, dependent, {"ownerReferences": rest})
        _edit(store, place, {"finalizers": [one for one in finalizers if one != ORPHAN]})
    elif FOREGROUND in finalizers:
        waiting = False
        for dependent in list(store.owners.dependents.get(uid, ())):
            item = _at(store, dependent)
            if item is None:
                continue
            blocks = any(
                one["uid"] == uid and one.get("blockOwnerDeletion")
                for one in item["metadata"]["ownerReferences"]
            )
            if not item["metadata"].get("deletionTimestamp"):
                _delete_in_foreground(store, dependent, item, uid)
                item = _at(store, dependent)
            waiting = waiting or (blocks and item is not None and _belongs(item, uid))
        place = store.owners.places.get(uid)
        if not waiting and place is not None:
            _edit(store, place, {"finalizers": [one for one in finalizers if one != FOREGROUND]})


def _delete_in_foreground(store: ObjectStorage, place: Place, item: Object, uid: str) -> None:
    others = [one for one in item["metadata"]["ownerReferences"] if one["uid"] != uid]
    if any(one["uid"] in store.owners.places for one in others):
        _edit(store, place, {"ownerReferences": others})
        return
    has_dependents = bool(store.owners.dependents.get(item["metadata"]["uid"]))
    _delete(store, place, "Foreground" if has_dependents else "Background")


def _belongs(item: Object, uid: str) -> bool:
    return any(one["uid"] == uid for one in item["metadata"].get("ownerReferences") or ())


def _at(store: ObjectStorage, place: Place) -> Object | None:
    collection_of = store.collection_at(place[0])
    return None if collection_of is None else collection_of.objects.get(place[1])


def _delete(store: ObjectStorage, place: Place, propagation: str) -> None:
    item = _at(store, place)
    assert item is not None
    metadata = item["metadata"]
    resource = store.resources.storage_of(place[0])
    target = WriteTarget(resource, metadata.get("namespace", ""), metadata["name"])
    store.delete_target(target, Deletion(propagation=propagation))


def _edit(store: ObjectStorage, place: Place, metadata: Object) -> None:
    """Change metadata without hooks and validation."""
    item = _at(store, place)
    if item is None:
        return
    merged = {key: value for key, value in {**item["metadata"], **metadata}.items() if value != []}
    resource = store.resources.storage_of(place[0])
    store.put_or_drop(resource, place[1], {**item, "metadata": merged})
