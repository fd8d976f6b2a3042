"""Objects of the provisioning controller by their owner: added, handed over, deleted."""

from __future__ import annotations

from typing import Any

from bayplan.runtime.controllers.provisioning.objects import Owned

ONE, OTHER = ("ml", "one"), ("ml", "other")


def request(uid: str = "u1") -> dict[str, Any]:
    return {"metadata": {"namespace": "ml", "name": "request", "uid": uid}}


def test_an_object_that_changes_its_owner_leaves_the_former_one() -> None:
    owned = Owned()
    owned.put(ONE, request())
    owned.put(OTHER, request())
    assert (owned.of(ONE), owned.of(OTHER)) == ([], [request()])
    assert ONE not in owned.by_owner
    owned.put(None, request())
    assert not owned.by_owner
    assert not owned.owners


def test_the_deletion_of_an_object_that_was_replaced_keeps_the_new_one() -> None:
    owned = Owned()
    owned.put(ONE, request("u2"))
    owned.drop(request("u1"))
    assert owned.of(ONE) == [request("u2")]
    owned.drop(request("u2"))
    assert not owned.by_owner
    owned.drop(request("u2"))
