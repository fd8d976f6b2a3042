"""Kinds defined at run time: schemas, versions, rules, hooks."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import pytest

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.embedded.api.admission_hooks import DELETE, Hook, HookResponse, Review
from bayplan.backends.embedded.api.options import Options
from bayplan.backends.embedded.schema import cel
from bayplan.backends.embedded.schema.structural import Checker, walker
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.api import Kind
from tests.unit.backends.embedded.storage.test_store import CONFIGS, NODES, Object, config, refused, store_at

FOOS = Kind("example.dev", "v1", "Foo", "foos")
OLD_FOOS = Kind("example.dev", "v1alpha1", "Foo", "foos")
ANYTHING: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def definition(schema: Object | None = None, *, versions: tuple[str, ...] = ("v1",)) -> Object:
    """A definition of Foo; the last version is the one that is kept."""
    listed = [
        {
            "name": version,
            "served": True,
            "storage": version == versions[-1],
            "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema or ANYTHING},
        }
        for version in versions
    ]
    return {
        "metadata": {"name": "foos.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": "foos", "kind": "Foo"},
            "versions": listed,
        },
    }


@pytest.fixture
def store() -> Store:
    return store_at()


def test_a_schema_can_change(store: Store) -> None:
    store.create(DEFINITIONS, definition())
    store.create(FOOS, {"metadata": {"name": "f"}, "spec": {"size": "any"}}, "default")
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    strict = {"type": "object", "properties": {"spec": spec}}
    store.patch(DEFINITIONS, "", "foos.example.dev", {"spec": definition(strict)["spec"]})
    with refused(422):
        store.create(FOOS, {"metadata": {"name": "g"}, "spec": {"size": "any"}}, "default")
    store.patch(FOOS, "default", "f", {"metadata": {"labels": {"a": "b"}}})  # its size stays
    with refused(422):
        store.patch(FOOS, "default", "f", {"spec": {"size": "other"}})


def test_versions_are_converted_by_the_function_registered_for_them(store: Store) -> None:
    def convert(item: Object, version: str) -> Object:
        if version == "example.dev/v1":
            return {**item, "spec": {"gpus": item["spec"]["size"] * 8}}
        return {**item, "spec": {"size": item["spec"]["gpus"] // 8}}

    store.conversions["example.dev", "Foo"] = convert
    store.create(DEFINITIONS, definition(versions=("v1alpha1", "v1")))
    watch = store.watch(OLD_FOOS)
    made = store.create(OLD_FOOS, {"metadata": {"name": "f"}, "spec": {"size": 2}}, "default")
    assert made["spec"] == {"size": 2}
    assert store.get(FOOS, "default", "f")["spec"] == {"gpus": 16}
    store.patch(OLD_FOOS, "default", "f", {"spec": {"size": 3}})
    assert store.get(FOOS, "default", "f")["spec"] == {"gpus": 24}
    assert [item["spec"] for _, item in watch.take()] == [{"size": 2}, {"size": 3}]
    assert store.list(OLD_FOOS).items[0]["apiVersion"] == "example.dev/v1alpha1"


def test_a_definition_goes_with_its_objects_and_waits_for_their_finalizers(store: Store) -> None:
    store.create(DEFINITIONS, definition())
    store.create(FOOS, {"metadata": {"name": "f", "finalizers": ["x.dev/y"]}}, "default")
    store.delete(DEFINITIONS, "", "foos.example.dev")
    assert store.get(FOOS, "default", "f")["metadata"]["deletionTimestamp"]
    assert store.find(DEFINITIONS, "", "foos.example.dev") is not None
    store.patch(FOOS, "default", "f", {"metadata": {"finalizers": None}})
    assert store.find(DEFINITIONS, "", "foos.example.dev") is None
    with refused(404):
        store.list(FOOS)


def test_pruning_and_defaulting_walk_the_whole_value() -> None:
    schema = {
        "type": "object",
        "properties": {
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"default": 1}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"b": {}}}},
            "open": {**ANYTHING, "properties": {"c": {"default": {"d": []}}}},
            "pod": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {}}},
        },
    }
    unknown: list[str] = []
    value = {
        "list": [{}, {"x": 1}],
        "map": {"k": {"b": 2, "y": 3}},
        "open": {"z": 1},
        "pod": {"kind": "Pod", "spec": {}, "w": 1},
        "gone": 1,
    }
    assert walker(schema)(value, (), unknown) == {
        "list": [{"a": 1}, {"a": 1}],
        "map": {"k": {"b": 2}},
        "open": {"z": 1, "c": {"d": []}},
        "pod": {"kind": "Pod", "spec": {}},
    }
    assert unknown == ["list[1].x", "map.k.y", "pod.w", "gone"]


def test_defaults_are_not_shared_between_objects() -> None:
    walk = walker({"type": "object", "properties": {"a": {"default": {"b": []}}}})
    first, second = walk({}, (), []), walk({}, (), [])
    first["a"]["b"].append(1)
    assert second == {"a": {"b": []}}


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        ({"type": "integer", "maximum": 3}, 4, "should be less than or equal to 3"),
        ({"type": "string", "nullable": True}, None, ""),
        ({"type": "string", "nullable": True, "enum": ["a"]}, None, ""),
        ({"type": "string"}, None, "must be of type string"),
        ({"x-kubernetes-int-or-string": True}, 1.5, "must be of type integer,string"),
        ({"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}, "80%", ""),
        ({"type": "array", "minItems": 2, "items": {}}, [1], "should have at least 2 items"),
        ({"type": "object", "minProperties": 1}, {}, "should have at least 1 properties"),
        ({"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {}, "(anyOf)"),
        ({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1, "b": 1}, "oneOf"),
        ({"type": "object", "not": {"required": ["a"]}}, {"a": 1}, "body"),
        ({"type": "integer", "multipleOf": 5}, 7, "multiple of 5"),
        ({"type": "string", "pattern": "^(?i)[a-z]+$"}, "7", "should match '^(?i)[a-z]+$'"),
        ({"type": "string", "pattern": "^(?i)[a-z]+$"}, "ABC", ""),
        ({"type": "string", "pattern": "(?P<what>[[:alpha:]])"}, "7", ""),  # cannot be read: not checked
    ],
)
def test_what_a_schema_forbids(schema: Object, value: Any, told: str) -> None:
    checker = Checker({"type": "object", "properties": {"x": schema}})
    problems = checker.check({"x": value})
    assert bool(problems) is bool(told)
    assert not told or told in problems[0].message


def test_hooks_see_writes_change_them_and_refuse_them(store: Store) -> None:
    asked: list[Review] = []

    def label(review: Review) -> HookResponse:
        asked.append(review)
        assert review.object is not None
        metadata = {**review.object["metadata"], "labels": {"seen": "yes"}}
        return HookResponse(object={**review.object, "metadata": metadata}, warnings=("labelled",))

    def no_secrets(review: Review) -> HookResponse:
        data = (review.object or {}).get("data") or {}
        return HookResponse("secret" not in data, "secrets belong elsewhere", 422)

    def keep(review: Review) -> HookResponse:
        return HookResponse(review.name != "kept", "it is kept")

    configs = frozenset({("", "configmaps")})
    store.admission.register(Hook("v.dev", no_secrets, configs))
    store.admission.register(Hook("m.dev", label, configs, mutating=True))
    store.admission.register(Hook("d.dev", keep, configs, frozenset({DELETE})))
    options = Options()
    made = store.create(CONFIGS, config("kept"), "default", options)
    assert made["metadata"]["labels"] == {"seen": "yes"} and options.warnings == ["labelled"]
    assert (asked[0].operation, asked[0].plural, asked[0].namespace) == ("CREATE", "configmaps", "default")
    with refused(422):
        store.patch(CONFIGS, "default", "kept", {"data": {"secret": "x"}})
    with refused(403):
        store.delete(CONFIGS, "default", "kept")
    store.create(NODES, {"metadata": {"name": "kept"}})
    store.delete(NODES, "", "kept")
    assert asked[-1].old is not None and asked[-1].operation == "UPDATE"


def test_a_hook_names_itself_in_its_refusal(store: Store) -> None:
    hook = Hook("vfoo.bayplan.dev", lambda _: HookResponse(False, "no"), frozenset({("", "configmaps")}))
    store.admission.register(hook)
    with pytest.raises(Exception, match=r'^admission webhook "vfoo\.bayplan\.dev" denied the request: no$'):
        store.create(CONFIGS, config("a"), "default")


needs_cel = pytest.mark.skipif(not cel.available(), reason="the extra `cel` is not installed")


def ruled(*written: Object, **properties: Object) -> cel.SchemaRules:
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": list(written)}
    found = cel.compiled({"type": "object", "properties": {"spec": spec}})
    assert found is not None
    return found


@needs_cel
def test_rules_compare_with_the_old_value_only_when_there_is_one() -> None:
    fixed = ruled({"rule": "self.a == oldSelf.a", "message": "a is fixed"})
    assert fixed.check({"spec": {"a": 1}}, None) == []
    assert [problem.field for problem in fixed.check({"spec": {"a": 2}}, {"spec": {"a": 1}})] == ["spec"]


@needs_cel
def test_rules_do_not_hold_against_an_update_what_it_leaves_alone() -> None:
    small = ruled({"rule": "self.a < 5"})
    assert small.check({"spec": {"a": 9}}, {"spec": {"a": 9}}) == []
    assert len(small.check({"spec": {"a": 9}}, {"spec": {"a": 8}})) == 1


@needs_cel
def test_rules_with_an_optional_old_value() -> None:
    rule = {"rule": "oldSelf.hasValue() || self.a < 5", "message": "start small"}
    small = ruled({**rule, "optionalOldSelf": True})
    assert len(small.check({"spec": {"a": 9}}, None)) == 1
    assert small.check({"spec": {"a": 9}}, {"spec": {"a": 8}}) == []


@needs_cel
def test_rules_write_odd_names_in_their_own_way() -> None:
    odd = ruled({"rule": "self.a__dash__b == 1 && self.__namespace__ == 'x' && has(self.c__dot__d)"})
    assert odd.check({"spec": {"a-b": 1, "namespace": "x", "c.d": 0}}, None) == []
    [problem] = odd.check({"spec": {"a-b": 2, "namespace": "x"}}, None)
    assert problem.message.startswith("Invalid value: failed rule: self.a__dash__b == 1")


@needs_cel
def test_to_rules_null_is_absent() -> None:
    assert len(ruled({"rule": "has(self.a)"}).check({"spec": {"a": None}}, None)) == 1


@needs_cel
def test_rules_in_lists_know_their_old_item_by_its_key() -> None:
    item = {
        "type": "object",
        "properties": {"name": {}, "n": {}},
        "x-kubernetes-validations": [{"rule": "self.n >= oldSelf.n", "message": "only up"}],
    }
    parts = {"type": "array", "x-kubernetes-list-map-keys": ["name"], "items": item}
    found = cel.compiled({"type": "object", "properties": {"parts": parts}})
    assert found is not None
    old = {"parts": [{"name": "a", "n": 1}, {"name": "b", "n": 5}]}
    new = {"parts": [{"name": "b", "n": 4}, {"name": "c", "n": 0}, {"name": "a", "n": 1}]}
    assert [problem.field for problem in found.check(new, old)] == ["parts[0]"]


@needs_cel
def test_a_rule_that_cannot_be_compiled_is_left_out_with_a_note(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert cel.compiled({"x-kubernetes-validations": [{"rule": "quantity(self) > 3 +"}]}) is None
    assert "a CEL rule is not checked" in caplog.text


@needs_cel
def test_messages_can_be_computed() -> None:
    told = ruled({"rule": "self.a < 3", "messageExpression": "'a is ' + string(self.a)", "fieldPath": ".a"})
    [problem] = told.check({"spec": {"a": 7}}, None)
    assert (problem.field, problem.message) == ("spec.a", "Invalid value: a is 7")


def test_without_the_library_rules_are_skipped_with_a_note(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, store: Store
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    for name in ("_library", "environment"):  # nothing was looked for yet
        monkeypatch.setattr(cel, name, cache(getattr(cel, name).__wrapped__))
    monkeypatch.setattr("importlib.import_module", missing)
    schema = {"type": "object", "x-kubernetes-validations": [{"rule": "false"}]}
    with caplog.at_level(logging.WARNING):
        store.create(DEFINITIONS, definition(schema))
        store.create(FOOS, {"metadata": {"name": "f"}}, "default")
    assert caplog.text.count("pip install 'bayplan[cel]'") == 1


def test_a_schema_is_compiled_once_however_many_clusters_serve_it(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Object] = []

    def counted(schema: Object) -> Checker:
        compiled.append(schema)
        return Checker(schema)

    monkeypatch.setattr("bayplan.backends.embedded.storage.custom_resources.Checker", counted)
    schema = {"type": "object", "properties": {"spec": {"type": "object", "maxProperties": 4711}}}
    for _ in range(2):
        store_at(0.0).create(DEFINITIONS, definition(schema))
    assert len(compiled) == 1
