"""Watches, pages and the past: what is kept, and what is said when it is no longer."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.embedded.storage.watch_log import Watch
from tests.support.api_objects import pod
from tests.unit.backends.embedded.storage.test_store import (
    CONFIGS,
    NAMESPACES,
    PODS,
    config,
    refused,
    store_at,
)


def types(watch: Watch) -> list[str]:
    return [kind for kind, _ in watch.take()]


@pytest.fixture
def store() -> Store:
    return store_at()


def test_a_watch_reads_each_change_once(store: Store) -> None:
    watch = store.watch(CONFIGS)
    store.create(CONFIGS, config("a"), "default")
    assert types(watch) == ["ADDED"]
    assert not watch.waiting()
    assert types(watch) == []


def test_a_watch_of_one_namespace_sees_nothing_of_others(store: Store) -> None:
    store.create(NAMESPACES, {"metadata": {"name": "default-two"}})
    watch = store.watch(CONFIGS, "default")
    store.create(CONFIGS, config("a"), "default-two")
    store.create(CONFIGS, config("b"), "default")
    assert [item["metadata"]["name"] for _, item in watch.take()] == ["b"]
    assert [item["metadata"]["name"] for item in store.list(CONFIGS, "default").items] == ["b"]


def test_a_deleted_object_is_told_with_the_version_of_its_end(store: Store) -> None:
    store.create(CONFIGS, config("a"), "default")
    watch = store.watch(CONFIGS, since=str(store.version))
    store.delete(CONFIGS, "default", "a")
    [(kind, item)] = watch.take()
    assert (kind, item["metadata"]["resourceVersion"]) == ("DELETED", str(store.version))


def test_a_watch_that_falls_behind_is_told_so() -> None:
    store = store_at(window=4)
    watch = store.watch(CONFIGS)
    for number in range(20):
        store.create(CONFIGS, config(f"c{number}"), "default")
    with refused(410, "Expired"):
        watch.take()


def test_a_watch_that_keeps_up_never_is() -> None:
    store = store_at(window=4)
    watch = store.watch(CONFIGS)
    for number in range(50):
        store.create(CONFIGS, config(f"c{number}"), "default")
        assert types(watch) == ["ADDED"]


def test_what_was_compacted_cannot_be_resumed_from(store: Store) -> None:
    made = store.create(CONFIGS, config("a"), "default")
    store.create(CONFIGS, config("b"), "default")
    page = store.list(CONFIGS, limit=1)
    store.delete(CONFIGS, "default", "b")
    store.compact()
    for ask in (
        lambda: store.watch(CONFIGS, since=made["metadata"]["resourceVersion"]),
        lambda: store.list(CONFIGS, token=page.token),
        lambda: store.list(CONFIGS, version=page.version),
    ):
        with refused(410, "Expired"):
            ask()
    store.watch(CONFIGS, since=str(store.version))  # the present is always kept


def test_compacting_keeps_as_much_as_asked_for(store: Store) -> None:
    versions = [
        store.create(CONFIGS, config(f"c{number}"), "default")["metadata"]["resourceVersion"]
        for number in range(5)
    ]
    store.compact(keep=2)
    with refused(410):
        store.watch(CONFIGS, since=versions[1])
    assert types(store.watch(CONFIGS, since=versions[2])) == ["ADDED", "ADDED"]


def test_pages_show_one_moment(store: Store) -> None:
    for name in "abcde":
        store.create(CONFIGS, config(name, k="old"), "default")
    page = store.list(CONFIGS, limit=2)
    store.delete(CONFIGS, "default", "c")
    store.create(CONFIGS, config("ba"), "default")
    store.patch(CONFIGS, "default", "d", {"data": {"k": "new"}})
    seen = list(page.items)
    while page.token:
        page = store.list(CONFIGS, limit=2, token=page.token)
        seen += page.items
    assert [item["metadata"]["name"] for item in seen] == list("abcde")
    assert {item["data"]["k"] for item in seen} == {"old"}


def test_a_negative_limit_is_none(store: Store) -> None:
    for name in "abc":
        store.create(CONFIGS, config(name), "default")
    page = store.list(CONFIGS, limit=-(2**63))
    assert [item["metadata"]["name"] for item in page.items] == list("abc") and not page.token


def test_a_selection_by_node_follows_the_binding(store: Store) -> None:
    store.create(PODS, pod("p"), "default")
    free = store.watch(PODS, fields="spec.nodeName=", since=str(store.version))
    bound = store.watch(PODS, fields="spec.nodeName=n", since=str(store.version))
    store.connect(PODS, "default", "p", "binding", {"target": {"name": "n"}})
    assert (types(free), types(bound)) == (["DELETED"], ["ADDED"])


def test_a_closed_watch_is_forgotten(store: Store) -> None:
    watch = store.watch(CONFIGS)
    watch.close()
    watch.close()
    assert watch.closed


def test_listeners_hear_of_every_batch_until_they_leave(store: Store) -> None:
    heard: list[int] = []
    leave = store.listen(lambda: heard.append(store.version))
    store.create(CONFIGS, config("a"), "default")
    with pytest.raises(StatusError):
        store.create(CONFIGS, config("a"), "default")
    leave()
    leave()
    store.create(CONFIGS, config("b"), "default")
    assert len(heard) == 1


@pytest.mark.parametrize("text", ["a in", "a=b=c", "in (x)", "a b", "=x", "a in (b", "a>b", "!"])
def test_label_selectors_that_mean_nothing_are_refused(store: Store, text: str) -> None:
    with refused(400):
        store.list(CONFIGS, labels=text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "abc"),
        ("t", "abc"),
        ("env = dev", "a"),
        ("env==dev", "a"),
        ("env!=dev", "bc"),
        ("env in (dev, prod)", "ab"),
        ("env notin (dev)", "bc"),
        ("!env,t", "c"),
        ("n > 5", "b"),
        ("n < 6,t", "a"),
        ("x.dev/y=z", "c"),
        ("env in (dev,)", "a"),
    ],
)
def test_label_selectors(store: Store, text: str, names: str) -> None:
    given: dict[str, dict[str, Any]] = {
        "a": {"t": "1", "env": "dev", "n": "3"},
        "b": {"t": "1", "env": "prod", "n": "7"},
        "c": {"t": "1", "x.dev/y": "z", "n": "many"},
    }
    for name, labels in given.items():
        store.create(CONFIGS, {"metadata": {"name": name, "labels": labels}}, "default")
    found = store.list(CONFIGS, labels=text).items
    assert "".join(item["metadata"]["name"] for item in found) == names
