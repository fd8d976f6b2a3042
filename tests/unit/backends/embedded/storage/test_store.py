"""The store: what holds for every object, whatever the client."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.backends.embedded.api.options import Deletion, Options
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.patching.apply import JSON, STRATEGIC
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.api import Kind
from tests.support.api_objects import pod

Object = dict[str, Any]

CONFIGS = Kind("", "v1", "ConfigMap", "configmaps")
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
PODS = Kind("", "v1", "Pod", "pods")
BUDGETS = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
EVENTS = Kind("events.k8s.io", "v1", "Event", "events")
CORE_EVENTS = Kind("", "v1", "Event", "events")


def store_at(now: float = 1_800_000_000.0, **settings: Any) -> Store:
    numbers = itertools.count(1)
    return new_store(lambda: now, lambda: f"uid-{next(numbers)}", lambda: f"{next(numbers):05d}", **settings)


@pytest.fixture
def store() -> Store:
    return store_at()


def config(name: str, **data: str) -> Object:
    return {"metadata": {"name": name}, "data": data}


def refused(code: int, reason: str = "") -> Any:
    """A context in which exactly this refusal must be raised."""

    def matches(error: BaseException) -> bool:
        return isinstance(error, StatusError) and error.code == code and reason in error.reason

    return pytest.RaisesExc(StatusError, check=matches)


def test_the_same_writes_make_the_same_store() -> None:
    def life() -> str:
        store = store_at()
        watch = store.watch(PODS)
        for _ in range(3):
            store.create(PODS, {"metadata": {"generateName": "p-"}, "spec": pod("x")["spec"]}, "default")
        store.delete(PODS, "default", store.list(PODS).items[1]["metadata"]["name"])
        return json.dumps(watch.take())

    assert life() == life()


def test_what_goes_in_is_copied(store: Store) -> None:
    body = config("a", k="v")
    store.create(CONFIGS, body, "default")
    body["data"]["k"] = "changed by its owner"
    assert store.get(CONFIGS, "default", "a")["data"] == {"k": "v"}
    patch = {"data": {"nested": "x"}}
    store.patch(CONFIGS, "default", "a", patch)
    patch["data"]["nested"] = "changed by its owner"
    assert store.get(CONFIGS, "default", "a")["data"]["nested"] == "x"


def test_old_versions_never_change(store: Store) -> None:
    """Watches and pages share objects with the store: a write must not reach into them."""
    store.create(PODS, pod("p"), "default")
    first = store.get(PODS, "default", "p")
    frozen = json.dumps(first)
    store.patch(PODS, "default", "p", {"status": {"phase": "Running"}}, subresource="status")
    store.connect(PODS, "default", "p", "binding", {"target": {"name": "n"}})
    store.patch(PODS, "default", "p", {"metadata": {"labels": {"a": "b"}}})
    store.delete(PODS, "default", "p")
    assert json.dumps(first) == frozen


def test_every_write_has_a_greater_version_and_a_write_that_changes_nothing_has_none(store: Store) -> None:
    before = store.version
    store.create(CONFIGS, config("a", k="v"), "default")
    store.patch(CONFIGS, "default", "a", {"data": {"k": "v"}})
    assert store.version == before + 1
    store.patch(CONFIGS, "default", "a", {"data": {"k": "w"}})
    assert store.get(CONFIGS, "default", "a")["metadata"]["resourceVersion"] == str(before + 2)


def test_everything_of_a_kind_is_the_same_until_one_of_them_changes(store: Store) -> None:
    store.create(CONFIGS, config("a"), "default")
    before = store.everything(CONFIGS)
    store.list(CONFIGS).items.clear()
    assert store.everything(CONFIGS) is before
    for name in ("b", "0"):
        store.create(CONFIGS, config(name), "default")
    store.delete(CONFIGS, "default", "a")
    assert [one["metadata"]["name"] for one in store.everything(CONFIGS)] == ["0", "b"]
    assert [one["metadata"]["name"] for one in before] == ["a"]


def test_a_dry_run_leaves_no_trace(store: Store) -> None:
    store.create(CONFIGS, config("a", k="v"), "default")
    before = store.version
    dry = Options(dry_run=True)
    assert "resourceVersion" not in store.create(CONFIGS, config("b"), "default", dry)["metadata"]
    assert store.patch(CONFIGS, "default", "a", {"data": {"k": "w"}}, options=dry)["data"] == {"k": "w"}
    store.delete(CONFIGS, "default", "a", options=dry)
    store.delete(NAMESPACES, "", "kube-node-lease", options=dry)
    assert store.version == before
    assert store.get(CONFIGS, "default", "a")["data"] == {"k": "v"}


def test_generated_names_avoid_those_taken() -> None:
    endings = iter(["aaaaa", "aaaaa", "bbbbb"])
    numbers = itertools.count()
    store = new_store(lambda: 0.0, lambda: str(next(numbers)), lambda: next(endings))
    made = [store.create(CONFIGS, {"metadata": {"generateName": "x-"}}, "default") for _ in range(2)]
    assert [one["metadata"]["name"] for one in made] == ["x-aaaaa", "x-bbbbb"]


def test_generated_names_give_up_at_last() -> None:
    numbers = itertools.count()
    store = new_store(lambda: 0.0, lambda: str(next(numbers)), lambda: "aaaaa")
    store.create(CONFIGS, {"metadata": {"generateName": "x-"}}, "default")
    with refused(409, "AlreadyExists"):
        store.create(CONFIGS, {"metadata": {"generateName": "x-"}}, "default")


def test_long_generated_names_fit(store: Store) -> None:
    made = store.create(CONFIGS, {"metadata": {"generateName": "x" * 100}}, "default")
    assert len(made["metadata"]["name"]) == 63


def test_a_conflict_changes_nothing(store: Store) -> None:
    made = store.create(CONFIGS, config("a", k="1"), "default")
    store.patch(CONFIGS, "default", "a", {"data": {"k": "2"}})
    with refused(409, "Conflict"):
        store.update(CONFIGS, "default", "a", {**made, "data": {"k": "3"}})
    with refused(409, "Conflict"):
        store.delete(CONFIGS, "default", "a", Deletion(version=made["metadata"]["resourceVersion"]))
    assert store.get(CONFIGS, "default", "a")["data"] == {"k": "2"}


def test_deleting_a_namespace_takes_everything_along(store: Store) -> None:
    store.create(NAMESPACES, {"metadata": {"name": "team"}})
    store.create(CONFIGS, config("a"), "team")
    store.create(PODS, pod("p"), "team")
    store.delete(NAMESPACES, "", "team")
    assert store.find(NAMESPACES, "", "team") is None
    assert store.list(CONFIGS, "team").items == store.list(PODS, "team").items == []


def test_a_namespace_waits_for_pods_that_end_with_grace(store: Store) -> None:
    store.create(NAMESPACES, {"metadata": {"name": "team"}})
    store.create(PODS, pod("p", nodeName="n"), "team")
    store.delete(NAMESPACES, "", "team")
    assert store.get(NAMESPACES, "", "team")["status"]["phase"] == "Terminating"
    with refused(403):
        store.create(CONFIGS, config("late"), "team")
    store.delete(PODS, "team", "p", Deletion(grace=0))
    assert store.find(NAMESPACES, "", "team") is None


def test_events_are_one_thing_in_two_groups(store: Store) -> None:
    body = {"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p"}, "note": "so", "reason": "R"}
    watch = store.watch(CORE_EVENTS)
    store.create(EVENTS, {**body, "eventTime": "2026-01-01T00:00:00.000000Z"}, "default")
    [(_, seen)] = watch.take()
    assert seen["apiVersion"] == "v1" and seen["involvedObject"]["name"] == "p" and seen["message"] == "so"
    assert store.get(EVENTS, "default", "e")["regarding"]["name"] == "p"
    assert len(store.list(EVENTS, fields="regarding.name=p").items) == 1
    assert len(store.list(CORE_EVENTS, fields="involvedObject.name=p").items) == 1
    store.patch(EVENTS, "default", "e", {"note": "then"})
    assert store.get(CORE_EVENTS, "default", "e")["message"] == "then"


def test_apply_creates_merges_and_withdraws(store: Store) -> None:
    ours, theirs = Options(manager="us"), Options(manager="them")
    store.apply(CONFIGS, "default", "a", {"data": {"k": "1", "l": "2"}}, options=ours)
    store.apply(CONFIGS, "default", "a", {"data": {"m": "3"}}, options=theirs)
    store.apply(CONFIGS, "default", "a", {"data": {"k": "9"}}, options=ours)
    assert store.get(CONFIGS, "default", "a")["data"] == {"k": "9", "m": "3"}


def test_apply_merges_lists_by_their_key(store: Store) -> None:
    store.create(NODES, {"metadata": {"name": "n"}})
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    full = {"status": {"conditions": [{"type": "Full", "status": "True"}]}}
    store.apply(NODES, "", "n", ready, "status", Options(manager="a"))
    store.apply(NODES, "", "n", full, "status", Options(manager="b"))
    store.apply(NODES, "", "n", {"status": {"conditions": []}}, "status", Options(manager="a"))
    kept = store.get(NODES, "", "n")["status"]["conditions"]
    assert [one["type"] for one in kept] == ["Full"]
    with refused(404):
        store.apply(NODES, "", "none", ready, "status")


def test_apply_leaves_what_another_applier_wants_too(store: Store) -> None:
    ours, theirs = Options(manager="us"), Options(manager="them")
    store.apply(CONFIGS, "default", "a", {"data": {"k": "1", "l": "2"}}, options=ours)
    store.apply(CONFIGS, "default", "a", {"data": {"k": "1"}}, options=theirs)
    store.apply(CONFIGS, "default", "a", {"data": {}}, options=ours)
    assert store.get(CONFIGS, "default", "a")["data"] == {"k": "1"}
    store.apply(CONFIGS, "default", "a", {}, options=theirs)
    assert "data" not in store.get(CONFIGS, "default", "a")


def test_apply_leaves_what_another_manager_changed_since(store: Store) -> None:
    ours = Options(manager="us")
    store.apply(CONFIGS, "default", "a", {"data": {"k": "1", "l": "2"}}, options=ours)
    store.patch(CONFIGS, "default", "a", {"data": {"k": "5"}})
    store.apply(CONFIGS, "default", "a", {"data": {}}, options=ours)
    assert store.get(CONFIGS, "default", "a")["data"] == {"k": "5"}


def test_apply_withdraws_values_that_were_read_or_defaulted(store: Store) -> None:
    ours = Options(manager="us")
    containers = [{"name": "c", "image": "i", "resources": {"limits": {"cpu": 1}}}]
    store.apply(PODS, "default", "p", {"spec": {"containers": containers}}, options=ours)
    labelled = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    store.apply(PODS, "default", "p", labelled, options=ours)
    store.apply(PODS, "default", "p", {"spec": {"containers": containers}}, options=ours)
    assert "labels" not in store.get(PODS, "default", "p")["metadata"]


def test_what_was_applied_to_another_object_of_that_name_is_forgotten(store: Store) -> None:
    ours = Options(manager="us")
    store.apply(CONFIGS, "default", "a", {"data": {"k": "1", "l": "2"}}, options=ours)
    store.delete(CONFIGS, "default", "a")
    assert store.applied == {}
    store.create(CONFIGS, config("a", l="2"), "default")
    store.apply(CONFIGS, "default", "a", {"data": {"k": "1"}}, options=ours)
    assert store.get(CONFIGS, "default", "a")["data"] == {"k": "1", "l": "2"}


def test_an_eviction_asks_the_budget(store: Store) -> None:
    labels = {"labels": {"app": "x"}}
    for name in ("p", "q"):
        store.create(PODS, {**pod(name, nodeName="n"), "metadata": {"name": name, **labels}}, "default")
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        store.patch(PODS, "default", name, ready, subresource="status")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}
    store.create(BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, "default")
    assert store.get(BUDGETS, "default", "b")["status"]["disruptionsAllowed"] == 1
    store.connect(PODS, "default", "p", "eviction", {})
    assert store.get(PODS, "default", "p")["metadata"]["deletionTimestamp"]
    with refused(429):
        store.connect(PODS, "default", "q", "eviction", {})
    assert "deletionTimestamp" not in store.get(PODS, "default", "q")["metadata"]


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        ({"maxUnavailable": 1}, 1),
        ({"maxUnavailable": "50%"}, 2),
        ({"minAvailable": "75%"}, 1),
        ({"minAvailable": 9}, 0),
    ],
)
def test_budgets_in_numbers_and_shares(store: Store, rule: Object, allowed: int) -> None:
    for number in range(4):
        body = pod(f"p{number}", nodeName="n")
        store.create(PODS, {**body, "metadata": {"name": f"p{number}", "labels": {"a": "b"}}}, "default")
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        store.patch(PODS, "default", f"p{number}", ready, subresource="status")
    spec = {**rule, "selector": {"matchLabels": {"a": "b"}}}
    store.create(BUDGETS, {"metadata": {"name": "b"}, "spec": spec}, "default")
    assert store.get(BUDGETS, "default", "b")["status"]["disruptionsAllowed"] == allowed


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)
names = st.sampled_from(["p", "q", "r"])
actions = st.lists(
    st.tuples(st.sampled_from(["create", "label", "delete", "json", "strategic"]), names, labels)
)


@given(actions, st.sampled_from(["", "a=x", "a!=x", "b in (x,y)", "!c", "a,b notin (z)"]))
def test_a_list_followed_by_its_watch_is_always_the_present(done: list[Any], selector: str) -> None:
    """Whatever happens, folding a watch over an earlier list gives what a list gives now."""
    store = store_at()
    middle = len(done) // 2
    for action in done[:middle]:
        act(store, *action)
    page = store.list(CONFIGS, labels=selector)
    watch = store.watch(CONFIGS, labels=selector, since=page.version)
    for action in done[middle:]:
        act(store, *action)
    known = {item["metadata"]["name"]: item for item in page.items}
    for kind, item in watch.take():
        name = item["metadata"]["name"]
        assert (kind == "ADDED") is (name not in known)
        if kind == "DELETED":
            del known[name]
        else:
            known[name] = item
    assert [known[name] for name in sorted(known)] == store.list(CONFIGS, labels=selector).items
    assert store.list(CONFIGS, labels=selector, version=page.version).items == page.items


def act(store: Store, what: str, name: str, labels: dict[str, str]) -> None:
    try:
        match what:
            case "create":
                store.create(CONFIGS, {"metadata": {"name": name, "labels": labels}}, "default")
            case "label":
                store.patch(CONFIGS, "default", name, {"metadata": {"labels": labels or None}})
            case "json":
                patch = [{"op": "add", "path": "/metadata/labels", "value": labels}]
                store.patch(CONFIGS, "default", name, patch, JSON)
            case "strategic":
                store.patch(CONFIGS, "default", name, {"metadata": {"labels": labels}}, STRATEGIC)
            case "delete":
                store.delete(CONFIGS, "default", name)
    except StatusError as refusal:
        if refusal.code not in (404, 409):  # of a name that is not there, or there already
            raise


def test_a_patch_of_the_status_is_judged_as_a_whole_and_changes_the_status_alone(store: Store) -> None:
    store.create(PODS, pod("p"), "default")
    before = store.get(PODS, "default", "p")
    both = {"spec": {"priority": 7}, "status": {"phase": "Running"}}
    after = store.patch(PODS, "default", "p", both, subresource="status")
    assert after["spec"] == before["spec"] and after["status"]["phase"] == "Running"
    unreadable = {"spec": {"containers": "many"}, "status": {"phase": "Failed"}}
    with refused(422):
        store.patch(PODS, "default", "p", unreadable, subresource="status")
    strict = Options(validation="Strict")
    with refused(422):
        store.patch(PODS, "default", "p", {"spec": {"no": 1}}, subresource="status", options=strict)
    with refused(422):
        store.patch(PODS, "default", "p", {"no": 1}, subresource="status", options=strict)
