"""An index of objects by uid and of dependents by owner, updated with every change."""

from __future__ import annotations

from bayplan.backends.embedded.storage.watch_log import DELETED, StoreChange

Place = tuple[str, str]  # storage, key


class Owners:
    """Objects by uid, and dependents by the uid of their owner."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self.dependents: dict[str, dict[Place, None]] = {}  # owner's uid → places, in the order they came

    def note(self, storage: str, change: StoreChange) -> None:
        """Update the index with one change."""
        metadata = change.object["metadata"]
        before = change.previous["metadata"].get("ownerReferences") if change.previous else None
        place = (storage, change.key)
        if change.type == DELETED:
            self.places.pop(metadata["uid"], None)
            owners = None
        else:
            if change.previous is None:
                self.places[metadata["uid"]] = place
            owners = metadata.get("ownerReferences")
        if owners == before:
            return
        for owner in before or ():
            known = self.dependents.get(owner["uid"])
            if known is not None:
                known.pop(place, None)
                if not known:
                    del self.dependents[owner["uid"]]
        for owner in owners or ():
            self.dependents.setdefault(owner["uid"], {})[place] = None
