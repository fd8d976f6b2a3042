"""What an API server asks a webhook, and what it is answered: plain functions in, AdmissionReview and back.

The functions know neither HTTP nor reviews. They are registered by group, resource and operation, and the
embedded backend calls the same ones in process.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import jsonpatch
import msgspec

from bayplan.dialects.kube.fields import Fault, FieldError

Object = dict[str, Any]
Mutate = Callable[[Object, Object | None], Object]
"""The object as it should be, given the new and the old one. Doing it twice is doing it once."""
Validate = Callable[[Object | None, Object | None], Sequence[FieldError]]
"""Everything wrong with a change, given the new object (None: deleted) and the old one (None: created)."""
Advise = Callable[[Object], Sequence[str]]
"""What is odd about an object, though it is accepted; the user is warned."""
Convert = Callable[[Object, str], Object]
"""The object in another version of its API, given the apiVersion wanted."""

Key = tuple[str, str, str]
"""Group, resource (or resource/subresource) and operation."""


REASONS = {
    Fault.REQUIRED: "FieldValueRequired",
    Fault.FORBIDDEN: "FieldValueForbidden",
    Fault.DUPLICATE: "FieldValueDuplicate",
    Fault.UNSUPPORTED: "FieldValueNotSupported",
    Fault.NOT_FOUND: "FieldValueNotFound",
    Fault.TOO_LONG: "FieldValueTooLong",
    Fault.TOO_MANY: "FieldValueTooMany",
}
"""What clients are told about a field; anything else about it is just invalid."""


class Malformed(Exception):
    """This is no review; the message says where it went wrong."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """Who is asked about one sort of write."""

    mutate: tuple[Mutate, ...] = ()
    validate: tuple[Validate, ...] = ()
    advise: tuple[Advise, ...] = ()
    fail_open: bool = False  # a bug in a handler lets the write pass, instead of refusing it


@dataclass(frozen=True, slots=True)
class Registry:
    """All handlers. Made once, before anybody asks."""

    admission: dict[Key, Handlers] = field(default_factory=dict)
    conversion: dict[tuple[str, str], Convert] = field(default_factory=dict)  # by group and kind

    def add(
        self,
        group: str,
        resource: str,
        handlers: Handlers,
        operations: Iterable[str] = ("CREATE", "UPDATE"),
    ) -> None:
        """Ask these handlers too, after those that are already asked."""
        for operation in operations:
            known = self.admission.get((group, resource, operation), Handlers(fail_open=True))
            self.admission[group, resource, operation] = Handlers(
                known.mutate + handlers.mutate,
                known.validate + handlers.validate,
                known.advise + handlers.advise,
                known.fail_open and handlers.fail_open,
            )

    def mutated(self, key: Key, new: Object, old: Object | None) -> Object:
        """The object as all mutating handlers together want it; the one given is not changed."""
        handlers = self.admission.get(key)
        if handlers is None or not handlers.mutate:
            return new
        found: Object = msgspec.json.decode(msgspec.json.encode(new))
        for mutate in handlers.mutate:
            found = mutate(found, old)
        return found

    def problems(self, key: Key, new: Object | None, old: Object | None) -> list[FieldError]:
        """Everything that any validating handler complains about."""
        handlers = self.admission.get(key, Handlers())
        return [problem for validate in handlers.validate for problem in validate(new, old)]

    def advice(self, key: Key, new: Object | None) -> list[str]:
        """What is odd about an object that nobody complains about."""
        handlers = self.admission.get(key, Handlers())
        return [] if new is None else [words for advise in handlers.advise for words in advise(new)]


@dataclass(frozen=True, slots=True)
class Answer:
    """A review to send back, and two words about it for the metrics."""

    body: Object
    resource: str
    said: Literal["allowed", "patched", "denied", "failed", "converted"]
    failure: BaseException | None = None


def admit(body: bytes, registry: Registry, *, mutating: bool) -> Answer:
    """Answer an AdmissionReview."""
    asked = _decoded(body, _AdmissionReview).request
    resource = (
        f"{asked.resource.resource}/{asked.subResource}" if asked.subResource else asked.resource.resource
    )
    key = (asked.resource.group, resource, asked.operation)
    try:
        if mutating:
            return _mutated(asked, registry, key)
        return _validated(asked, registry, key)
    except Exception as bug:
        return _failed(asked, registry, key, bug)


def convert(body: bytes, registry: Registry) -> Answer:
    """Answer a ConversionReview: all objects, or none and why."""
    asked = _decoded(body, _ConversionReview).request
    kind = "objects"
    try:
        found = []
        for obj in asked.objects:
            kind = str(obj.get("kind", ""))
            found.append(_converted(obj, asked.desiredAPIVersion, registry))
    except Exception as bug:
        result = {"status": "Failure", "message": f"{kind} to {asked.desiredAPIVersion}: {bug}"}
        return Answer(_converted_review(asked.uid, [], result), kind, "failed", bug)
    return Answer(_converted_review(asked.uid, found, {"status": "Success"}), kind, "converted")


def _mutated(asked: _Asked, registry: Registry, key: Key) -> Answer:
    response: Object = {"allowed": True}
    if asked.object is not None:
        wanted = registry.mutated(key, asked.object, asked.oldObject)
        if patch := jsonpatch.make_patch(asked.object, wanted).patch:
            encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
    return Answer(_reviewed(asked.uid, response), key[1], "patched" if "patch" in response else "allowed")


def _validated(asked: _Asked, registry: Registry, key: Key) -> Answer:
    problems = registry.problems(key, asked.object, asked.oldObject)
    if not problems:
        advice = registry.advice(key, asked.object)
        response: Object = {"allowed": True} | ({"warnings": advice} if advice else {})
        return Answer(_reviewed(asked.uid, response), key[1], "allowed")
    causes = [
        {"reason": REASONS.get(one.fault, "FieldValueInvalid"), "field": one.path, "message": one.why}
        for one in problems
    ]
    details = {"name": asked.name, "group": asked.kind.group, "kind": asked.kind.kind, "causes": causes}
    message = "; ".join(str(problem) for problem in problems)
    status = {"code": 422, "reason": "Invalid", "message": message, "details": details}
    return Answer(_reviewed(asked.uid, {"allowed": False, "status": status}), key[1], "denied")


def _failed(asked: _Asked, registry: Registry, key: Key, bug: Exception) -> Answer:
    """A handler raised: a bug of ours. The configuration says whether the write passes all the same."""
    what = f'bayplan could not look at {key[1]} "{asked.name}": {type(bug).__name__}: {bug}'
    if registry.admission.get(key, Handlers()).fail_open:
        response: Object = {"allowed": True, "warnings": [what[:250]]}
    else:
        response = {"allowed": False, "status": {"code": 500, "reason": "InternalError", "message": what}}
    return Answer(_reviewed(asked.uid, response), key[1], "failed", bug)


def _converted(obj: Object, version: str, registry: Registry) -> Object:
    current, kind = str(obj["apiVersion"]), str(obj["kind"])
    if current == version:
        return obj
    change = registry.conversion.get((version.partition("/")[0], kind))
    if change is None or current.partition("/")[0] != version.partition("/")[0]:
        raise ValueError(f"there is no way from {current}")
    found = change(obj, version)
    assert found["apiVersion"] == version, found["apiVersion"]
    return found | {"metadata": _kept(obj["metadata"], found["metadata"])}


def _kept(old: Object, new: Object) -> Object:
    """Of the metadata, a conversion may only touch labels and annotations."""
    touched = ("labels", "annotations")
    kept = {name: value for name, value in old.items() if name not in touched}
    return kept | {name: new[name] for name in touched if name in new}


def _reviewed(uid: str, response: Object) -> Object:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": uid, **response},
    }


def _converted_review(uid: str, objects: list[Object], result: Object) -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": {"uid": uid, "result": result, "convertedObjects": objects},
    }


# ── what is read of a review ───────────────────────────────────────────────────────────────────────


class _Kind(msgspec.Struct):
    kind: str
    group: str = ""
    version: str = ""


class _Resource(msgspec.Struct):
    resource: str
    group: str = ""
    version: str = ""


class _Asked(msgspec.Struct):
    uid: str
    kind: _Kind
    resource: _Resource
    operation: Literal["CREATE", "UPDATE", "DELETE", "CONNECT"]
    subResource: str = ""  # noqa: N815 - spelt as on the wire
    name: str = ""
    namespace: str = ""
    object: dict[str, Any] | None = None
    oldObject: dict[str, Any] | None = None  # noqa: N815


class _AdmissionReview(msgspec.Struct):
    apiVersion: Literal["admission.k8s.io/v1"]  # noqa: N815
    kind: Literal["AdmissionReview"]
    request: _Asked


class _ToConvert(msgspec.Struct):
    uid: str
    desiredAPIVersion: str  # noqa: N815
    objects: list[dict[str, Any]]


class _ConversionReview(msgspec.Struct):
    apiVersion: Literal["apiextensions.k8s.io/v1"]  # noqa: N815
    kind: Literal["ConversionReview"]
    request: _ToConvert


def _decoded(body: bytes, shape: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as trouble:
        raise Malformed(f"this is no {shape.__name__.strip('_')}: {trouble}") from None
