"""The Kueue API on the cluster in memory: schemas, rules, defaults, and both versions of everything."""

from __future__ import annotations

import json

import pytest

from bayplan.assembly.in_process_webhooks import hooks
from bayplan.assembly.webhooks import registry
from bayplan.backends.crds import define, definitions
from bayplan.backends.embedded.api.options import Options
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.schema import cel
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.embedded.tables.rendering import table
from bayplan.dialects.api import Kind
from bayplan.runtime.webhooks.admission_review import Handlers
from tests.support.kueue_api import (
    BAD,
    CHANGES,
    GROUP,
    NAMESPACED,
    PLURALS,
    Bad,
    Change,
    contains,
    good,
    made,
    pod_set,
)
from tests.unit.backends.embedded.storage.test_store import Object, store_at

VERSIONS = ("v1beta1", "v1beta2")
OTHER = {"v1beta1": "v1beta2", "v1beta2": "v1beta1"}


def of(kind: str, version: str = "v1beta2") -> Kind:
    return Kind(GROUP, version, kind, PLURALS[kind], namespaced=kind in NAMESPACED)


def place(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def put(store: Store, obj: Object) -> Object:
    kind = of(obj["kind"], obj["apiVersion"].partition("/")[2])
    copy = json.loads(json.dumps(obj))
    return store.create(kind, copy, place(obj)[0], Options(validation="Strict"))


@pytest.fixture
def store() -> Store:
    found = store_at()
    for hook in hooks(registry()):
        if hook.mutating:
            found.admission.register(hook)
    define(found)
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_what_was_written_in_one_version_is_read_in_both(store: Store, version: str) -> None:
    for obj in good(version):
        assert contains(put(store, obj), obj)
        there = store.get(of(obj["kind"], OTHER[version]), *place(obj))
        assert there["apiVersion"] == f"{GROUP}/{OTHER[version]}"
        back = store.update(of(obj["kind"], OTHER[version]), *place(obj), there)
        assert back["spec" if "spec" in back else "value"] == there.get("spec", there.get("value"))
        assert contains(store.get(of(obj["kind"], version), *place(obj)), obj), obj["kind"]


@pytest.mark.skipif(not cel.available(), reason="the extra cel is not installed")
@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.what)
def test_a_mistake_is_refused(store: Store, bad: Bad) -> None:
    with pytest.raises(StatusError) as refusal:
        put(store, bad.object)
    assert refusal.value.code == 422 and bad.said in refusal.value.message


@pytest.mark.skipif(not cel.available(), reason="the extra cel is not installed")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change.kind} {json.dumps(change.patch)}")
def test_what_may_change_and_what_may_not(store: Store, change: Change) -> None:
    (obj,) = [one for one in good("v1beta2") if (one["kind"], one["metadata"]["name"]) == change[:2]]
    put(store, obj)
    if not change.said:
        store.patch(of(change.kind), *place(obj), change.patch)
        return
    with pytest.raises(StatusError, match=change.said):
        store.patch(of(change.kind), *place(obj), change.patch)


def test_a_queue_with_nothing_said_has_every_default(store: Store) -> None:
    spec = put(store, made("ClusterQueue", "empty", {}))["spec"]
    assert spec == {
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
            "borrowWithinCohort": {"policy": "Never"},
        },
    }


def test_pods_of_a_workload_are_kept_as_written_and_their_ports_get_a_protocol(store: Store) -> None:
    alone = {key: value for key, value in pod_set().items() if key != "count"}
    spec = put(store, made("Workload", "w", {"podSets": [alone]}))["spec"]
    assert (
        spec["active"] is True and spec["podSets"][0]["name"] == "main" and spec["podSets"][0]["count"] == 1
    )
    container = spec["podSets"][0]["template"]["spec"]["containers"][0]
    assert container["resources"] == {"requests": {"cpu": 1, "memory": "200Mi"}}
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]


def test_functions_of_webhooks_see_the_new_version_only() -> None:
    seen: list[str] = []

    def look(new: Object, _: Object | None) -> Object:
        seen.append(new["apiVersion"])
        return {**new, "metadata": {**new["metadata"], "labels": {"seen": "yes"}}}

    found, asked = store_at(), registry()
    for kind in ("ClusterQueue", "Topology"):
        asked.admission[GROUP, PLURALS[kind], "CREATE"] = Handlers(mutate=(look,))
    for hook in hooks(asked):
        found.admission.register(hook)
    define(found)
    queue = put(found, made("ClusterQueue", "q", {"cohort": "all"}, "v1beta1"))
    assert queue["apiVersion"] == f"{GROUP}/v1beta1"
    assert queue["spec"]["cohort"] == "all" and queue["metadata"]["labels"] == {"seen": "yes"}
    put(found, made("Topology", "t", {"levels": [{"nodeLabel": "rack"}]}, "v1beta1"))
    assert seen == [f"{GROUP}/v1beta2"] * 2


def test_a_status_written_in_the_old_version_keeps_the_spec_and_what_both_can_say(
    store: Store,
) -> None:
    policy = {"migration": {"mode": "RetainFirstAdmission"}}
    put(store, made("ClusterQueue", "q", {"concurrentAdmissionPolicy": policy}))
    old = store.get(of("ClusterQueue", "v1beta1"), "", "q")
    assert "concurrentAdmissionPolicy" not in old["spec"]
    pending = {"lastChangeTime": "2026-01-01T00:00:00Z"}
    status = {"status": {"pendingWorkloads": 3, "pendingWorkloadsStatus": pending}}
    store.patch(of("ClusterQueue", "v1beta1"), "", "q", status, subresource="status")
    new = store.get(of("ClusterQueue"), "", "q")
    assert new["spec"]["concurrentAdmissionPolicy"] == policy and new["status"] == {"pendingWorkloads": 3}
    old = store.get(of("ClusterQueue", "v1beta1"), "", "q")
    assert old["status"] == {"pendingWorkloads": 3}, "users can write annotations: no status comes out of one"


def test_columns_tell_what_people_look_for(store: Store) -> None:
    for obj in good("v1beta2"):
        put(store, obj)
    for version in VERSIONS:
        resource = store.resources.of(of("ClusterQueue", version))
        shown = table(resource, store.list(of("ClusterQueue", version)).items, store.now(), "None", True)
        assert [one["name"] for one in shown["columnDefinitions"]][1] == "Cohort"
        assert shown["rows"][0]["cells"][:2] == ["team-queue", "all"]


def described(schema: Object, path: str = "") -> list[str]:
    """The fields that nobody described."""
    found = [] if "description" in schema or path.endswith(("{}", "[]")) or path == ".metadata" else [path]
    for key, below in schema.get("properties", {}).items():
        found += described(below, f"{path}.{key}")
    for key, sign in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(schema.get(key), dict):
            found += described(schema[key], path + sign)
    return found


OURS = [one for one in definitions() if one["spec"]["group"] == GROUP]


@pytest.mark.parametrize("one", OURS, ids=lambda one: one["metadata"]["name"])
def test_every_field_is_explained_and_v1beta2_is_kept(one: Object) -> None:
    versions = {version["name"]: version for version in one["spec"]["versions"]}
    assert [name for name, version in versions.items() if version["storage"]] == ["v1beta2"]
    assert versions["v1beta1"]["served"] and versions["v1beta1"]["deprecated"]
    for version in versions.values():
        assert described(version["schema"]["openAPIV3Schema"]) == []


def test_the_api_is_complete() -> None:
    assert {one["spec"]["names"]["kind"]: one["spec"]["names"]["plural"] for one in OURS} == PLURALS
