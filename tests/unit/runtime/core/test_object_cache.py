"""Objects as last seen: events always count, answers of writes if they are newer."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.runtime.core.object_cache import ObjectCache, is_newer

JOBS = Kind("batch", "v1", "Job", "jobs")
NODES = Kind("", "v1", "Node", "nodes", namespaced=False)


def object_named(name: str, version: int, uid: str = "1", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid, "resourceVersion": str(version)}, "spec": spec}


def test_an_event_replaces_the_object_and_returns_what_was_known() -> None:
    cache, first, second = ObjectCache(JOBS, NODES), object_named("a", 1), object_named("a", 2)
    key = ("default", "a")
    assert cache.note(Event(Happened.SEEN, JOBS, first)) == (key, None, first)
    assert cache.note(Event(Happened.SEEN, JOBS, second)) == (key, first, second)
    assert cache.note(Event(Happened.GONE, JOBS, second)) == (key, second, None)
    assert cache.of(JOBS) == {}
    assert cache.note(Event(Happened.SEEN, NODES, first))[0] == ("", "a"), "a node has no namespace"


def test_the_answer_of_an_update_counts_if_it_is_newer() -> None:
    cache = ObjectCache(JOBS)
    cache.note(Event(Happened.SEEN, JOBS, object_named("a", 9)))
    cache.take_answer(JOBS, object_named("a", 10, ours=True))
    assert cache.of(JOBS)["default", "a"]["spec"] == {"ours": True}, "10 is more than 9"
    for answer in (object_named("a", 10), object_named("a", 11, uid="2"), None, {"kind": "Status"}):
        cache.take_answer(JOBS, answer)
    cache.take_answer(JOBS, object_named("b", 12))
    assert list(cache.of(JOBS)) == [("default", "a")], "an object that is not known was deleted"
    assert cache.of(JOBS)["default", "a"]["spec"] == {"ours": True}


def test_the_answer_of_a_create_counts_unless_the_object_was_deleted_since() -> None:
    made = object_named("a", 1)
    assert is_newer(made, None, deleted=())
    assert not is_newer(made, None, deleted=["1"])
    assert not is_newer(made, made, deleted=()), "the watch was faster"
    assert not is_newer(made, None), "the answer of an update"
