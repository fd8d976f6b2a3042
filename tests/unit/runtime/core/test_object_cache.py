"""Objects as last seen: events always count, answers of writes if they are newer."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.runtime.core.object_cache import DELETED_MAX, ObjectCache

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


def test_the_answer_of_a_write_counts_if_it_is_newer() -> None:
    cache = ObjectCache(JOBS)
    cache.note(Event(Happened.SEEN, JOBS, object_named("a", 9)))
    assert cache.take_answer(JOBS, object_named("a", 10, ours=True)), "10 is more than 9"
    assert cache.of(JOBS)["default", "a"]["spec"] == {"ours": True}
    assert not cache.take_answer(JOBS, object_named("a", 10)), "the watch was faster"
    assert not cache.take_answer(JOBS, object_named("a", 11, uid="2")), "another object of the name"
    assert not cache.take_answer(JOBS, None)
    assert not cache.take_answer(JOBS, {"kind": "Status"})


def test_the_answer_of_a_create_counts_unless_the_object_was_deleted_since() -> None:
    cache, made = ObjectCache(JOBS), object_named("a", 1)
    assert not cache.take_answer(JOBS, made), "an object that is not known was deleted"
    assert cache.take_answer(JOBS, made, created=True)
    cache.note(Event(Happened.GONE, JOBS, made))
    assert not cache.take_answer(JOBS, made, created=True)
    assert cache.of(JOBS) == {}


def test_the_memory_of_deleted_objects_is_bounded() -> None:
    cache = ObjectCache(JOBS)
    cache.note(Event(Happened.GONE, JOBS, object_named("a", 1, uid="first")))
    for number in range(DELETED_MAX):
        cache.note(Event(Happened.GONE, JOBS, object_named("b", 1, uid=f"b{number}")))
    assert cache.take_answer(JOBS, object_named("a", 1, uid="first"), created=True)
