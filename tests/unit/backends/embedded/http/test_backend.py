"""The embedded backend as the loop sees it: events in order, and how each write ended."""

from __future__ import annotations

import threading
import time

import pytest
from msgspec import Struct

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write
from bayplan.dialects.errors import NotServed
from tests.support.api_objects import pod
from tests.unit.backends.embedded.storage.test_custom_resources import definition
from tests.unit.backends.embedded.storage.test_store import (
    CONFIGS,
    NODES,
    PODS,
    Object,
    config,
    store_at,
)


class Meta(Struct):
    name: str
    uid: str


class Config(Struct):
    metadata: Meta
    data: dict[str, str] = {}


WIRED = Kind("", "v1", "ConfigMap", "configmaps", wire=Config)
FOOS = Kind("example.dev", "v1", "Foo", "foos", optional=True)


@pytest.fixture
def store() -> Store:
    return store_at()


@pytest.fixture
def backend(store: Store) -> EmbeddedBackend:
    return EmbeddedBackend(store)


def event_names(events: object) -> list[tuple[str, str]]:
    assert isinstance(events, list)
    return [(event.happened.value, name(event)) for event in events]


def name(event: Event) -> str:
    return "" if event.object is None else str(event.object["metadata"]["name"])


def ends(backend: EmbeddedBackend, *writes: Write) -> list[Ended]:
    backend.submit(writes)
    return [outcome.ended for outcome in backend.outcomes()]


def test_everything_that_exists_comes_first(store: Store, backend: EmbeddedBackend) -> None:
    store.create(CONFIGS, config("a"), "default")
    backend.watch([CONFIGS])
    store.create(CONFIGS, config("b"), "default")
    assert event_names(backend.events()) == [("seen", "a"), ("synced", ""), ("seen", "b")]
    store.delete(CONFIGS, "default", "a")
    assert event_names(backend.events()) == [("gone", "a")]
    assert event_names(backend.events()) == []


def test_events_of_different_kinds_come_in_the_order_they_happened(
    store: Store, backend: EmbeddedBackend
) -> None:
    backend.watch([PODS, NODES, CONFIGS])
    backend.events()
    for number in range(3):
        store.create(CONFIGS, config(f"c{number}"), "default")
        store.create(NODES, {"metadata": {"name": f"n{number}"}})
        store.create(PODS, pod(f"p{number}"), "default")
    assert [name(event) for event in backend.events()] == "c0 n0 p0 c1 n1 p1 c2 n2 p2".split()  # noqa: SIM905


def test_objects_are_decoded_into_what_the_kind_wants(store: Store, backend: EmbeddedBackend) -> None:
    store.create(CONFIGS, config("a", k="v"), "default")
    backend.watch([WIRED])
    [seen, _] = backend.events()
    assert isinstance(seen.object, Config)
    assert (seen.object.metadata.name, seen.object.data) == ("a", {"k": "v"})
    backend.submit([Write(Verb.CREATE, WIRED, "default", "b", {"data": {"x": "y"}})])
    [outcome] = backend.outcomes()
    assert isinstance(outcome.object, Config) and outcome.status == 201


def test_selectors_of_a_kind_are_honoured(store: Store, backend: EmbeddedBackend) -> None:
    kind = Kind("", "v1", "Pod", "pods", field_selector="spec.nodeName=", label_selector="mine=yes")
    backend.watch([kind])
    backend.events()
    store.create(PODS, pod("other"), "default")
    body = pod("p")
    store.create(PODS, {**body, "metadata": {"name": "p", "labels": {"mine": "yes"}}}, "default")
    assert event_names(backend.events()) == [("seen", "p")]
    store.connect(PODS, "default", "p", "binding", {"target": {"name": "n"}})
    assert event_names(backend.events()) == [("gone", "p")]


def test_a_kind_may_come_go_and_come_back(store: Store, backend: EmbeddedBackend) -> None:
    backend.watch([FOOS])
    assert event_names(backend.events()) == [
        ("synced", "")
    ]  # there is nothing of it, and that is all there is
    store.create(DEFINITIONS, definition())
    assert event_names(backend.events()) == [("synced", "")]
    store.create(FOOS, {"metadata": {"name": "f"}}, "default")
    assert event_names(backend.events()) == [("seen", "f")]
    store.delete(DEFINITIONS, "", "foos.example.dev")
    assert event_names(backend.events()) == [("gone", "f"), ("synced", "")]
    store.create(DEFINITIONS, definition())
    assert event_names(backend.events()) == [("synced", "")]


def test_a_kind_that_must_be_there_is_missed(backend: EmbeddedBackend) -> None:
    with pytest.raises(NotServed, match=r"bars of example\.dev/v1 were asked for"):
        backend.watch([Kind("example.dev", "v1", "Bar", "bars")])


def test_when_the_past_is_gone_it_lists_again_and_misses_nothing() -> None:
    store = store_at(window=2)
    backend = EmbeddedBackend(store)
    store.create(CONFIGS, config("dies"), "default")
    store.create(CONFIGS, config("stays"), "default")
    backend.watch([CONFIGS])
    backend.events()
    store.delete(CONFIGS, "default", "dies")
    for number in range(9):
        store.create(CONFIGS, config(f"c{number}"), "default")
    seen = event_names(backend.events())
    assert seen[0] == ("gone", "dies") and seen[-1] == ("synced", "")
    assert [subject for _, subject in seen[1:-1]] == [f"c{number}" for number in range(9)]
    assert ("seen", "stays") not in seen  # it did not change


def test_what_is_gone_is_told_once() -> None:
    store = store_at(window=2)
    backend = EmbeddedBackend(store)
    store.create(CONFIGS, config("dies"), "default")
    backend.watch([CONFIGS])
    backend.events()
    store.delete(CONFIGS, "default", "dies")
    assert event_names(backend.events()) == [("gone", "dies")]
    for number in range(9):
        store.create(CONFIGS, config(f"c{number}"), "default")
    assert ("gone", "dies") not in event_names(backend.events())


def test_how_writes_end(store: Store, backend: EmbeddedBackend) -> None:
    made = store.create(CONFIGS, config("a"), "default")["metadata"]
    version, uid = made["resourceVersion"], made["uid"]
    new: Object = {"data": {"k": "v"}}
    assert ends(
        backend,
        Write(Verb.CREATE, CONFIGS, "default", "b", {}),
        Write(Verb.CREATE, CONFIGS, "default", "b", {}),
        Write(Verb.MERGE_PATCH, CONFIGS, "default", "a", new, version=version),
        Write(Verb.MERGE_PATCH, CONFIGS, "default", "a", new, version=version),
        Write(Verb.MERGE_PATCH, CONFIGS, "default", "a", new, uid=uid),
        Write(Verb.MERGE_PATCH, CONFIGS, "default", "a", new, uid="another"),
        Write(Verb.UPDATE, CONFIGS, "default", "a", new, uid="another"),
        Write(Verb.UPDATE, CONFIGS, "default", "none", new),
        Write(Verb.MERGE_PATCH, CONFIGS, "default", "a", {"data": 5}),
        Write(Verb.CREATE, CONFIGS, "nowhere", "c", {}),
        Write(Verb.APPLY, CONFIGS, "default", "a", new, uid="another"),
        Write(Verb.APPLY, CONFIGS, "default", "a", new, version=version),
        Write(Verb.APPLY, CONFIGS, "default", "d", new),
        Write(Verb.DELETE, CONFIGS, "default", "a", uid="another"),
        Write(Verb.DELETE, CONFIGS, "default", "a", uid=uid),
        Write(Verb.DELETE, CONFIGS, "default", "a"),
        Write(Verb.CREATE, FOOS, "default", "x", {}),
    ) == [
        Ended.DONE,
        Ended.CONFLICT,
        Ended.DONE,
        Ended.CONFLICT,
        Ended.DONE,
        Ended.GONE,
        Ended.GONE,
        Ended.GONE,
        Ended.REFUSED,
        Ended.GONE,
        Ended.GONE,
        Ended.CONFLICT,
        Ended.DONE,
        Ended.GONE,
        Ended.DONE,
        Ended.GONE,
        Ended.REFUSED,
    ]


def test_binding_and_evicting(store: Store, backend: EmbeddedBackend) -> None:
    uid = store.create(PODS, pod("p"), "default")["metadata"]["uid"]
    bind = Write(Verb.CREATE, PODS, "default", "p", {"target": {"name": "n"}}, "binding", uid=uid)
    evict = Write(Verb.CREATE, PODS, "default", "p", {}, "eviction", uid=uid, grace_seconds=7)
    other = Write(Verb.CREATE, PODS, "default", "p", {}, "eviction", uid="another")
    assert ends(backend, bind, bind, other, evict) == [Ended.DONE, Ended.CONFLICT, Ended.GONE, Ended.DONE]
    found = store.get(PODS, "default", "p")
    assert found["spec"]["nodeName"] == "n"
    assert found["metadata"]["deletionGracePeriodSeconds"] == 7


def test_a_tag_comes_back_and_a_status_is_no_object(store: Store, backend: EmbeddedBackend) -> None:
    store.create(CONFIGS, config("a"), "default")
    backend.submit([Write(Verb.DELETE, CONFIGS, "default", "a", tag="mine")])
    [outcome] = backend.outcomes()
    assert (outcome.write.tag, outcome.object, outcome.status) == ("mine", None, 200)


def test_wait_ends_with_a_write(store: Store, backend: EmbeddedBackend) -> None:
    backend.watch([CONFIGS])
    backend.events()
    began = time.monotonic()
    threading.Timer(0.05, lambda: store.create(CONFIGS, config("a"), "default")).start()
    backend.wait(10)
    assert time.monotonic() - began < 5
    assert event_names(backend.events()) == [("seen", "a")]


def test_a_closed_backend_has_no_events(store: Store, backend: EmbeddedBackend) -> None:
    backend.watch([CONFIGS])
    backend.events()
    backend.close()
    store.create(CONFIGS, config("a"), "default")
    assert event_names(backend.events()) == []


def test_happened_words_are_those_of_the_contract() -> None:
    assert {word.value for word in Happened} == {"seen", "gone", "synced"}


def test_an_apply_that_drops_a_field_removes_it(store: Store, backend: EmbeddedBackend) -> None:
    def apply(**data: str) -> Write:
        return Write(Verb.APPLY, CONFIGS, "default", "a", {"data": data})

    assert ends(backend, apply(k="1", l="2")) == [Ended.DONE]
    store.patch(CONFIGS, "default", "a", {"data": {"m": "3"}})
    assert ends(backend, apply(k="1")) == [Ended.DONE]
    assert store.get(CONFIGS, "default", "a")["data"] == {"k": "1", "m": "3"}
