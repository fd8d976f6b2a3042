"""CRDs: kinds that are defined at run time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from bayplan.backends.embedded.api import scalars
from bayplan.backends.embedded.api.decoding import reader
from bayplan.backends.embedded.api.options import Deletion, WriteTarget
from bayplan.backends.embedded.api.resource import Convert, ConvertTo, Resource
from bayplan.backends.embedded.api.resources import version_rank
from bayplan.backends.embedded.api.status import FieldProblem, required, unsupported, wrong
from bayplan.backends.embedded.schema import cel
from bayplan.backends.embedded.schema.structural import Checker, Walker, walker
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.kind_hooks import KindHooks
from bayplan.backends.embedded.storage.watch_log import DELETED, StoreChange
from bayplan.backends.embedded.tables.rendering import Column, custom_columns

Object = dict[str, Any]
Schema = Mapping[str, Any]

STORAGE = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
_BLOCKING = {
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
}
_UNCHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to "
    "complete validation"
)


@dataclass(slots=True)
class Definition:
    """One version of a CRD."""

    schema: Mapping[str, Any]
    table_columns: tuple[Column, ...]
    scale: Mapping[str, str] | None
    deprecation: str = ""
    behaviour: KindHooks = field(default_factory=KindHooks)


def default_definition(definition: Object) -> None:
    """Fill in the names and the conversion."""
    spec = definition["spec"]
    names = spec["names"]
    if names.get("kind"):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", f"{names['kind']}List")
    spec.setdefault("conversion", {"strategy": "None"})


def on_create(_: ObjectStorage, definition: Object) -> None:
    """The first status: nothing accepted yet."""
    stored = [one["name"] for one in definition["spec"].get("versions") or () if one.get("storage")]
    definition["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored,
    }


def check(definition: Object, old: Object | None) -> list[FieldProblem]:
    """Validate a CRD."""
    spec, name = definition["spec"], definition["metadata"].get("name", "")
    problems = []
    if name != f"{spec['names'].get('plural', '')}.{spec['group']}":
        problems.append(wrong("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    problems += [required(f"spec.{key}") for key in ("group",) if not spec.get(key)]
    problems += [required(f"spec.names.{key}") for key in ("plural", "kind") if not spec["names"].get(key)]
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        problems.append(
            unsupported("spec.scope", spec.get("scope", ""), ("Cluster", "Namespaced"))
            if spec.get("scope")
            else required("spec.scope")
        )
    versions = spec.get("versions") or []
    if sum(bool(one.get("storage")) for one in versions) != 1:
        message = "must have exactly one version marked as storage version"
        problems.append(wrong("spec.versions", [one["name"] for one in versions], message))
    for place, version in enumerate(versions):
        path = f"spec.versions[{place}].schema.openAPIV3Schema"
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            problems.append(required(path))
        elif why := _unusable(schema):
            problems.append(wrong(path, "schema", why))
    if old is not None:
        problems += [
            wrong(f"spec.{key}", spec.get(key), "field is immutable")
            for key in ("group", "scope")
            if spec.get(key) != old["spec"].get(key)
        ]
    return problems


BEHAVIOURS = {"CustomResourceDefinition": KindHooks(default_definition, on_create, check=check)}


def react(store: ObjectStorage, storage: str, change: StoreChange) -> None:
    """Serve the kind of a CRD while the CRD exists."""
    if storage == STORAGE:
        definition = change.object
        if change.type == DELETED:
            _withdraw(store, definition)
        elif definition["metadata"].get("deletionTimestamp"):
            _empty(store, change.key, definition)
        elif change.previous is None or change.previous["spec"] != definition["spec"]:
            _serve(store, change.key, definition)
    elif change.type == DELETED and change.object["apiVersion"].count("/"):
        group = change.object["apiVersion"].partition("/")[0]
        collection_of = store.collection_at(STORAGE)
        name = f"{storage.partition('.')[0]}.{group}"
        definition_now = collection_of.objects.get(name) if collection_of else None
        if definition_now is not None and definition_now["metadata"].get("deletionTimestamp"):
            _empty(store, name, definition_now)


def marked(store: ObjectStorage, definition: Object) -> Object:
    """The CRD marked for deletion; its objects are deleted first."""
    moment = scalars.at(store.now())
    finalizers = definition["metadata"].get("finalizers") or []
    metadata = {**definition["metadata"], "deletionTimestamp": moment}
    metadata["finalizers"] = [*(one for one in finalizers if one != CLEANUP), CLEANUP]
    message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    condition = _condition("Terminating", moment, "InstanceDeletionPending", message)
    conditions = [*(definition["status"].get("conditions") or ()), condition]
    return {**definition, "metadata": metadata, "status": {**definition["status"], "conditions": conditions}}


def resources(definition: Object, conversions: Mapping[tuple[str, str], ConvertTo]) -> list[Resource]:
    """Every served version of a defined kind.

    `conversions` has functions by group and kind; without one, only the apiVersion changes.
    """
    spec = definition["spec"]
    stored = next(one["name"] for one in spec["versions"] if one.get("storage"))
    return [_version(spec, one, stored, conversions) for one in spec["versions"] if one.get("served")]


def _version(
    spec: Object, version: Object, stored: str, conversions: Mapping[tuple[str, str], ConvertTo]
) -> Resource:
    group, names, name = spec["group"], spec["names"], version["name"]
    schema = version["schema"]["openAPIV3Schema"]
    subresources = version.get("subresources") or {}
    definition = Definition(
        schema,
        custom_columns(version.get("additionalPrinterColumns") or ()),
        subresources.get("scale"),
        _deprecation(spec, version),
    )
    known = _Schema.of(schema)
    definition.behaviour = _behaviour(known)
    convert = _converter(group, names["kind"], conversions)
    return Resource(
        group,
        name,
        names["kind"],
        names["plural"],
        names.get("singular", names["kind"].lower()),
        spec["scope"] == "Namespaced",
        f"{names['plural']}.{group}",
        _reader(group, name, names["kind"], known),
        frozenset(subresources),
        tuple(names.get("shortNames") or ()),
        tuple(names.get("categories") or ()),
        tuple(one["jsonPath"].removeprefix(".") for one in version.get("selectableFields") or ()),
        generation=True,
        to_storage=None if name == stored else convert(stored),
        from_storage=None if name == stored else convert(name),
        definition=definition,
    )


def _deprecation(spec: Object, version: Object) -> str:
    """The deprecation warning of a version."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    kind, group = spec["names"]["kind"], spec["group"]
    better = [one["name"] for one in spec["versions"] if one.get("served") and not one.get("deprecated")]
    best = max(better, key=version_rank, default="")
    known = best and version_rank(best) > version_rank(version["name"])
    instead = f"; use {group}/{best} {kind}" if known else ""
    return f"{group}/{version['name']} {kind} is deprecated{instead}"


def _reader(group: str, version: str, kind: str, schema: _Schema) -> Callable[[Any, list[str]], Object]:
    metadata, walk = reader("ObjectMeta"), _walker(schema)

    def read(body: Any, unknown: list[str]) -> Object:
        rest = {key: item for key, item in body.items() if key not in ("apiVersion", "kind", "metadata")}
        found = metadata(body.get("metadata") or {}, ((), "metadata"), unknown)
        below: list[str] = []
        walked = walk(rest, (), below)
        unknown += sorted(below, key=lambda field: "." in field)  # as upstream: the outermost first
        return {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": found, **walked}

    return read


@dataclass(frozen=True, slots=True)
class _Schema:
    """A schema that is equal to another of the same text, so that what is compiled from it is kept."""

    digest: bytes
    content: Mapping[str, Any] = field(compare=False)

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> _Schema:
        return cls(hashlib.sha256(msgspec.json.encode(schema)).digest(), schema)


# Compiling a schema takes longer than everything else that a definition needs. A schema is needed when the
# definition is checked and when it is served, and clusters in memory of one process serve the same kinds.
_SCHEMAS_KEPT = 128


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _checker(schema: _Schema) -> Checker:
    return Checker(schema.content)


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _expressions(schema: _Schema) -> cel.SchemaRules | None:
    return cel.compiled(schema.content) if cel.has_rules(schema.content) else None


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _walker(schema: _Schema) -> Walker:
    """The walker of all but the fields that every object has."""
    properties = schema.content.get("properties", {})
    kept = {key: value for key, value in properties.items() if key not in ("apiVersion", "kind", "metadata")}
    return walker({**schema.content, "properties": kept})


def _unusable(schema: Any) -> str:
    """Why a schema cannot be used; empty if it can."""
    try:
        known = _Schema.of(schema)
        _checker(known)
        _walker(known)
    except (AttributeError, TypeError, KeyError, ValueError, RecursionError) as error:
        return f"is not a structural schema: {str(error).partition(chr(10))[0][:200]}"
    return ""


def _behaviour(schema: _Schema) -> KindHooks:
    checker = _checker(schema)
    expressions = _expressions(schema) if cel.available() else None

    def check_object(item: Object, old: Object | None) -> list[FieldProblem]:
        problems = checker.check(item, old)
        if expressions is None:
            return problems
        if any(problem.reason in _BLOCKING for problem in problems):
            return [*problems, wrong("<nil>", None, _UNCHECKED)]
        return problems + expressions.check(item, old)

    return KindHooks(check=check_object, check_status=check_object)


def _converter(
    group: str, kind: str, conversions: Mapping[tuple[str, str], ConvertTo]
) -> Callable[[str], Convert]:
    function = conversions.get((group, kind))

    def to(version: str) -> Convert:
        target = f"{group}/{version}"

        def convert(item: Object) -> Object:
            converted = item if function is None else function(item, target)
            return {**converted, "apiVersion": target, "metadata": _kept(item, converted)}

        return convert

    return to


def _kept(item: Object, converted: Object) -> Object:
    """Of the metadata, a conversion may only touch labels and annotations."""
    old, new = item["metadata"], converted["metadata"]
    touched = ("labels", "annotations")
    kept = {key: value for key, value in old.items() if key not in touched}
    return kept | {key: new[key] for key in touched if key in new}


def _serve(store: ObjectStorage, key: str, definition: Object) -> None:
    spec = definition["spec"]
    store.resources.remove(spec["group"], spec["names"]["plural"])
    served = resources(definition, store.conversions)
    store.resources.add(served)
    if served:
        store.collection_of(served[0])  # watches can begin from this moment
    status = definition.get("status", {})
    if status.get("acceptedNames") == spec["names"]:
        return
    moment = scalars.at(store.now())
    conditions = [
        _condition("NamesAccepted", moment, "NoConflicts", "no conflicts found"),
        _condition("Established", moment, "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    accepted = {**status, "conditions": conditions, "acceptedNames": spec["names"]}
    kind = store.resources.storage_of(STORAGE)
    store.put(kind, key, {**definition, "metadata": {**definition["metadata"]}, "status": accepted})


def _condition(type_: str, moment: str, reason: str, message: str) -> Object:
    return {
        "type": type_,
        "status": "True",
        "lastTransitionTime": moment,
        "reason": reason,
        "message": message,
    }


def _empty(store: ObjectStorage, key: str, definition: Object) -> None:
    """Delete the objects of a terminating CRD, then remove the CRD."""
    if CLEANUP not in (definition["metadata"].get("finalizers") or ()):
        return
    spec = definition["spec"]
    storage = f"{spec['names']['plural']}.{spec['group']}"
    resource = store.resources.stored.get(storage)
    collection_of = store.collection_at(storage)
    if resource is not None and collection_of is not None:
        for item in list(collection_of.objects.values()):
            metadata = item["metadata"]
            if not metadata.get("deletionTimestamp"):
                target = WriteTarget(resource, metadata.get("namespace", ""), metadata["name"])
                store.delete_target(target, Deletion())
        if collection_of.objects:
            return
    kind = store.resources.storage_of(STORAGE)
    rest = [one for one in definition["metadata"]["finalizers"] if one != CLEANUP]
    metadata = {**definition["metadata"], "finalizers": rest}
    if not rest:
        del metadata["finalizers"]
    store.put_or_drop(kind, key, {**definition, "metadata": metadata})


def _withdraw(store: ObjectStorage, definition: Object) -> None:
    spec = definition["spec"]
    store.resources.remove(spec["group"], spec["names"]["plural"])
    store.forget_collection(f"{spec['names']['plural']}.{spec['group']}")
