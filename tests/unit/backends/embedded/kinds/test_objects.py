"""Reading, patching, owning, deleting: the parts of the cluster in memory, each by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bayplan.backends.embedded.api import scalars
from bayplan.backends.embedded.api.decoding import UnreadableBody, field, reader, types
from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.embedded.api.resources import builtin
from bayplan.backends.embedded.kinds.pod_defaults import qos_class
from bayplan.backends.embedded.patching import strategic
from bayplan.backends.embedded.patching.apply import merge
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.embedded.storage.subresources import with_condition
from bayplan.backends.embedded.tables import durations, rendering
from bayplan.backends.embedded.tables.cells import pod_reason, selector_text
from bayplan.dialects.kube.fields.quantity import parse_quantity
from tests.support.api_objects import pod
from tests.unit.backends.embedded.storage.test_store import CONFIGS, PODS, Object, refused, store_at


@pytest.fixture
def store() -> Store:
    return store_at()


# ── reading ──


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("1000", "1k"),
        ("1500m", "1500m"),
        ("2000m", "2"),
        ("0.5", "500m"),
        ("1.5Gi", "1536Mi"),
        ("2048Mi", "2Gi"),
        ("1024", "1024"),
        ("0.1Ki", "102400m"),
        ("1e3", "1e3"),
        ("0", "0"),
        ("-500m", "-500m"),
        (4, "4"),
        ("1.0001m", "1000100n"),
    ],
)
def test_quantities_have_one_spelling(given: str | int, canonical: str) -> None:
    assert scalars.quantity(given) == canonical


@given(
    st.integers(-(10**15), 10**15),
    st.sampled_from(["n", "u", "m", "", "k", "M", "G", "Ki", "Mi", "Gi", "e3", "E-3"]),
)
def test_a_spelling_means_the_same_and_stays(number: int, suffix: str) -> None:
    spelled = scalars.quantity(f"{number}{suffix}")
    assert parse_quantity(spelled) == parse_quantity(f"{number}{suffix}")
    assert scalars.quantity(spelled) == spelled


def test_times_are_told_in_utc() -> None:
    assert scalars.time("2026-01-02T03:04:05+01:00") == "2026-01-02T02:04:05Z"
    assert scalars.time("2026-01-02T03:04:05.9Z") == "2026-01-02T03:04:05Z"
    assert scalars.microtime("2026-01-02T03:04:05.678901+01:00") == "2026-01-02T02:04:05.678901Z"
    for wrong in ("yesterday", "2026-01-02", "2026-01-02 03:04:05"):
        with pytest.raises(ValueError, match="cannot parse"):
            scalars.time(wrong)
    with pytest.raises(ValueError, match=r'cannot parse "Z" as "\.000000"'):
        scalars.microtime("2026-01-02T03:04:05Z")


def test_reading_drops_what_is_empty_and_shows_what_always_is() -> None:
    unknown: list[str] = []
    container = {"name": "c", "command": [], "stdin": False, "x": 1}
    body: Object = {"spec": {"containers": [container], "hostname": ""}}
    body["spec"] |= {"volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": None, "priority": 0}
    found = reader("Pod")(body, (), unknown)
    assert found == {
        "metadata": {},
        "spec": {
            "containers": [{"name": "c", "resources": {}}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "priority": 0,
        },
        "status": {},
    }
    assert unknown == ["spec.containers[0].x"]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            {"spec": {"containers": [{"ports": [{"containerPort": "80"}]}]}},
            "field ContainerPort.spec",
        ),
        ({"spec": {"priority": 2**31}}, "cannot unmarshal number 2147483648 into Go struct field PodSpec"),
        ({"spec": {"hostNetwork": "yes"}}, "cannot unmarshal string into Go struct field PodSpec.spec.hostN"),
        ({"metadata": {"labels": ["a"]}}, "cannot unmarshal array into Go struct field ObjectMeta.metadata"),
        ({"spec": {"overhead": {"cpu": True}}}, "of type resource.Quantity"),
        ({"spec": 1}, "cannot unmarshal number into Go struct field Pod.spec of type v1.PodSpec"),
    ],
)
def test_what_cannot_be_decoded_is_reported_with_its_path(body: Object, told: str) -> None:
    with pytest.raises(UnreadableBody) as trouble:
        reader("Pod")(body, (), [])
    assert told in str(trouble.value)


def test_every_type_named_is_known() -> None:
    scalar = {"any", "string", "bytes", "bool", "number", "int32", "int64", "intOrString"}
    scalar |= {"quantity", "time", "microtime"}
    for name, fields in types().items():
        for key, one in fields.items():
            inner = one.type.strip("[]{}")
            assert inner in scalar or inner in types(), f"{name}.{key}: {one.type}"
            assert not one.merge_key or one.merge_key in types()[inner], f"{name}.{key}: {one.merge_key}"
    for resource in builtin():
        reader(resource.type)({}, (), [])
        assert rendering.columns_of(resource)


def test_the_notation_of_fields() -> None:
    assert field("[Container]! merge=name").merge_key == "name"
    assert (field("string").mark, field("string?").mark, field("{string}").item) == ("", "?", "string")
    both = field("[Volume] merge,retainKeys=name")
    assert both.merge and both.retain_keys and both.merge_key == "name"


# ── patching ──


def test_a_merge_patch_follows_its_rfc() -> None:
    """The examples of RFC 7386."""
    for target, patch, result in (
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ):
        assert merge(target, patch) == result


@pytest.mark.parametrize(
    ("old", "patch", "new"),
    [
        ("abc", "b", "abc"),  # in place
        ("ab", "c", "cab"),  # upstream puts what it did not know first
        ("", "ab", "ab"),
        ("abc", "ca", "bca"),  # in the patch's order, the others where they fit
        ("abcd", "dx", "abcdx"),
    ],
)
def test_lists_merged_by_key_keep_an_order(old: str, patch: str, new: str) -> None:
    def conditions(names: str) -> Object:
        return {"status": {"conditions": [{"type": name} for name in names]}}

    merged = strategic.merge(conditions(old), conditions(patch), "Pod")
    assert "".join(one["type"] for one in merged["status"]["conditions"]) == new


def test_a_strategic_patch_changes_neither_of_its_arguments() -> None:
    old = {"spec": {"containers": [{"name": "a", "env": [{"name": "E", "value": "1"}]}]}}
    patch = {"spec": {"containers": [{"name": "a", "env": [{"name": "F", "value": "2"}]}]}}
    before = (str(old), str(patch))
    merged = strategic.merge(old, patch, "Pod")
    assert (str(old), str(patch)) == before
    assert [one["name"] for one in merged["spec"]["containers"][0]["env"]] == ["F", "E"]


def test_retained_keys_replace_a_choice() -> None:
    old = {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    assert strategic.merge(old, patch, "Deployment") == {"spec": {"strategy": {"type": "Recreate"}}}
    with refused(400):
        strategic.merge(
            old, {"spec": {"strategy": {"$retainKeys": ["type"], "rollingUpdate": {}}}}, "Deployment"
        )


# ── owning ──


def owned(name: str, *owners: Object, **metadata: Any) -> Object:
    references = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
        }
        for owner in owners
    ]
    return {"metadata": {"name": name, "ownerReferences": references, **metadata}}


def test_a_whole_family_goes(store: Store) -> None:
    family = [store.create(CONFIGS, {"metadata": {"name": "g0"}}, "default")]
    for generation in range(1, 50):
        family.append(store.create(CONFIGS, owned(f"g{generation}", family[-1]), "default"))
    store.delete(CONFIGS, "default", "g0")
    assert store.list(CONFIGS).items == []
    assert store.owners.dependents == {}


def test_a_child_that_loses_its_only_owner_by_a_patch_stays(store: Store) -> None:
    owner = store.create(CONFIGS, {"metadata": {"name": "owner"}}, "default")
    store.create(CONFIGS, owned("child", owner), "default")
    store.patch(CONFIGS, "default", "child", {"metadata": {"ownerReferences": None}})
    store.delete(CONFIGS, "default", "owner")
    assert store.find(CONFIGS, "default", "child") is not None


def test_foreground_deletion_waits_only_for_what_blocks(store: Store) -> None:
    owner = store.create(CONFIGS, {"metadata": {"name": "owner"}}, "default")
    free = owned("free", owner, finalizers=["x.dev/y"])
    store.create(CONFIGS, free, "default")
    store.delete(CONFIGS, "default", "owner", Deletion(propagation="Foreground"))
    assert store.find(CONFIGS, "default", "owner") is None
    assert store.get(CONFIGS, "default", "free")["metadata"]["deletionTimestamp"]


def test_foreground_deletion_waits_for_pods_to_end(store: Store) -> None:
    owner = store.create(CONFIGS, {"metadata": {"name": "owner"}}, "default")
    body = {**pod("p", nodeName="n"), **owned("p", owner)}
    body["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = True
    store.create(PODS, body, "default")
    store.delete(CONFIGS, "default", "owner", Deletion(propagation="Foreground"))
    assert store.get(CONFIGS, "default", "owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    store.delete(PODS, "default", "p", Deletion(grace=0))
    assert store.find(CONFIGS, "default", "owner") is None


# ── pods ──


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ([{}], "BestEffort"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        (
            [{"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}],
            "Burstable",
        ),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}, {}], "Burstable"),
        ([{"requests": {"cpu": "1"}}], "Burstable"),
        ([{"limits": {"nvidia.com/gpu": "1"}}], "BestEffort"),
    ],
)
def test_classes_of_service(resources: list[Object], expected: str) -> None:
    assert qos_class({"containers": [{"resources": one} for one in resources]}) == expected


@pytest.mark.parametrize(
    ("status", "metadata", "told"),
    [
        ({"phase": "Pending"}, {}, "Pending"),
        ({"phase": "Running"}, {"deletionTimestamp": "x"}, "Terminating"),
        ({"phase": "Succeeded"}, {"deletionTimestamp": "x"}, "Succeeded"),
        ({"phase": "Failed", "reason": "Evicted"}, {}, "Evicted"),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
            },
            {},
            "SchedulingGated",
        ),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"exitCode": 3}}}]},
            {},
            "ExitCode:3",
        ),
        (
            {"phase": "Succeeded", "containerStatuses": [{"state": {"terminated": {"reason": "Completed"}}}]},
            {},
            "Completed",
        ),
        (
            {
                "phase": "Pending",
                "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            },
            {},
            "ImagePullBackOff",
        ),
        ({"phase": "Pending", "initContainerStatuses": [{"state": {"running": {}}}]}, {}, "Init:0/1"),
    ],
)
def test_the_status_column_of_a_pod(status: Object, metadata: Object, told: str) -> None:
    assert pod_reason({"metadata": metadata, "spec": {"initContainers": [{}]}, "status": status}) == told


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    old = [{"type": "A", "status": "True", "lastTransitionTime": "then"}, {"type": "B", "status": "True"}]
    same = with_condition(old, {"type": "A", "status": "True", "lastTransitionTime": "now", "reason": "R"})
    assert same[0] == {"type": "A", "status": "True", "lastTransitionTime": "then", "reason": "R"}
    other = with_condition(old, {"type": "A", "status": "False", "lastTransitionTime": "now"})
    assert other[0]["lastTransitionTime"] == "now"
    assert with_condition(old, {"type": "C", "status": "True"})[2]["type"] == "C"


# ── tables ──


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (3000, "50m"),
        (10800, "3h"),
        (14700, "4h5m"),
        (100000, "27h"),
        (200000, "2d7h"),
        (8 * 86400, "8d"),
        (800 * 86400, "2y70d"),
        (10 * 365 * 86400, "10y"),
        (-5, "<invalid>"),
    ],
)
def test_spans_of_time(seconds: int, told: str) -> None:
    assert durations.shown(seconds) == told


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        (".a['x.y/z']", [2]),
        (".list[0].n", ["p"]),
        (".list[*].n", ["p", "q"]),
        ('.list[?(@.n=="q")].v', [4]),
        (".none.b", []),
        (".a.b.c", []),
        ("not a path", []),
    ],
)
def test_paths_of_columns(path: str, found: list[Any]) -> None:
    item = {"a": {"b": 1, "x.y/z": 2}, "list": [{"n": "p", "v": 3}, {"n": "q", "v": 4}]}
    assert rendering.find(item, path) == found


def test_selectors_are_shown_as_they_are_written() -> None:
    expressions = [
        {"key": "a", "operator": "In", "values": ["y", "x"]},
        {"key": "b", "operator": "DoesNotExist"},
        {"key": "c", "operator": "Exists"},
    ]
    shown = selector_text({"matchLabels": {"k": "v"}, "matchExpressions": expressions})
    assert shown == "k=v,a in (x,y),!b,c"
    assert selector_text({}) == "<none>"
