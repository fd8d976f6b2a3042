"""AdmissionReview and ConversionReview: calls plain handler functions and encodes their answers.

The handlers know neither HTTP nor reviews. They are registered by group, resource and operation, and the
embedded backend calls the same ones in process. An exception in a handler is contained: logged and counted
with the object. Then either the handler is skipped, if no write depends on it (`fail_open`), or the one write
is refused with an error id; an optional review is allowed all the same.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar

import jsonpatch
import msgspec

from bayplan.dialects.kube.fields.bounded_json import UnreadableJSON, bounded_json
from bayplan.dialects.kube.fields.reader import FieldError, FieldErrorType
from bayplan.runtime.core.containment import Containment

Object = dict[str, Any]
Mutate = Callable[[Object, Object | None], Object]
"""The object with defaults applied, given the new and the old one. Must be idempotent."""
Validate = Callable[[Object | None, Object | None], Sequence[FieldError]]
"""All problems of a change, given the new object (None: deleted) and the old one (None: created)."""
Advise = Callable[[Object], Sequence[str]]
"""Warnings about an accepted object, shown to the user."""
Convert = Callable[[Object, str], Object]
"""The object in another version of its API, given the apiVersion wanted."""

Key = tuple[str, str, str]
"""Group, resource (or resource/subresource) and operation."""

OBJECT_BYTES = 8 * 1024 * 1024
"""Bytes decoded at once: an API server accepts objects of up to 3 MiB, and a review holds two of them."""
WHERE = "webhook"
T = TypeVar("T")
Failed = Callable[[Exception], object]
"""Called with the exception of an optional handler."""
_UNREPORTED = Containment()


def _unreported(error: Exception) -> None:
    """The default report: none."""


REASONS = {
    FieldErrorType.REQUIRED: "FieldValueRequired",
    FieldErrorType.FORBIDDEN: "FieldValueForbidden",
    FieldErrorType.DUPLICATE: "FieldValueDuplicate",
    FieldErrorType.UNSUPPORTED: "FieldValueNotSupported",
    FieldErrorType.NOT_FOUND: "FieldValueNotFound",
    FieldErrorType.TOO_LONG: "FieldValueTooLong",
    FieldErrorType.TOO_MANY: "FieldValueTooMany",
}
"""Reasons that clients get for a field error; any other error is `FieldValueInvalid`."""


class Late(Exception):
    """No time is left to answer a review."""


class Malformed(Exception):
    """This is not a review; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """The handlers for one kind of write."""

    mutate: tuple[Mutate, ...] = ()
    validate: tuple[Validate, ...] = ()
    advise: tuple[Advise, ...] = ()
    fail_open: bool = False  # an exception in a handler lets the write pass, instead of refusing it
    optional: frozenset[Callable[..., Any]] = frozenset()  # handlers that a write does not depend on


@dataclass(frozen=True, slots=True)
class Registry:
    """All handlers. Built once, before the first request."""

    admission: dict[Key, Handlers] = field(default_factory=dict)
    conversion: dict[tuple[str, str], Convert] = field(default_factory=dict)  # by group and kind

    def add(
        self,
        group: str,
        resource: str,
        handlers: Handlers,
        operations: Iterable[str] = ("CREATE", "UPDATE"),
    ) -> None:
        """Add handlers, after those already registered."""
        for operation in operations:
            known = self.admission.get((group, resource, operation), Handlers(fail_open=True))
            strict = frozenset((*known.mutate, *known.validate)) - known.optional
            added = frozenset((*handlers.mutate, *handlers.validate))
            optional, strict = (added, strict) if handlers.fail_open else (frozenset(), strict | added)
            self.admission[group, resource, operation] = Handlers(
                known.mutate + handlers.mutate,
                known.validate + handlers.validate,
                known.advise + handlers.advise,
                known.fail_open and handlers.fail_open,
                (known.optional | optional) - strict,
            )

    def mutated(self, key: Key, new: Object, old: Object | None, failed: Failed = _unreported) -> Object:
        """The object after all mutating handlers; the given object is not changed."""
        handlers = self.admission.get(key)
        if handlers is None or not handlers.mutate:
            return new
        found: Object = _copied(new)
        for mutate in handlers.mutate:
            if mutate in handlers.optional:
                changed = _optional(partial(mutate, _copied(found), old), failed)
                found = found if changed is None else changed
            else:
                found = mutate(found, old)
        return found

    def problems(
        self,
        key: Key,
        new: Object | None,
        old: Object | None,
        failed: Failed = _unreported,
    ) -> list[FieldError]:
        """All problems that the validating handlers report."""
        handlers = self.admission.get(key, Handlers())
        found: list[FieldError] = []
        for validate in handlers.validate:
            ask = partial(validate, new, old)
            optional = validate in handlers.optional
            found += (_optional(ask, failed) or ()) if optional else ask()
        return found

    def advice(self, key: Key, new: Object | None, failed: Failed = _unreported) -> list[str]:
        """Warnings about an object without problems."""
        found: list[str] = []
        if new is None:
            return found
        for advise in self.admission.get(key, Handlers()).advise:
            found += _optional(partial(advise, new), failed) or ()
        return found


def _copied(obj: Object) -> Object:
    found: Object = msgspec.json.decode(msgspec.json.encode(obj))
    return found


def _optional(ask: Callable[[], T], failed: Failed) -> T | None:
    """The result of the handler, or None if it raised: then it is skipped."""
    try:
        return ask()
    except Exception as error:
        failed(error)
        return None


def called(obj: object) -> str:
    """The namespace and name of an object, as far as it has them."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict):
        return ""
    parts = (metadata.get("namespace"), metadata.get("name") or metadata.get("generateName"))
    return "/".join(part for part in parts if isinstance(part, str) and part)


@dataclass(frozen=True, slots=True)
class ReviewResponse:
    """A review to send back, and two words about it for the metrics."""

    body: Object
    resource: str
    verdict: Literal["allowed", "patched", "denied", "failed", "converted"]
    failure: BaseException | None = None


def admit(
    body: bytes | bytearray,
    registry: Registry,
    *,
    mutating: bool,
    optional: bool = False,
    containment: Containment = _UNREPORTED,
) -> ReviewResponse:
    """Answer an AdmissionReview; an optional one is allowed whatever fails here."""
    asked = _decoded(body, _AdmissionReview).request
    resource = (
        f"{asked.resource.resource}/{asked.subResource}" if asked.subResource else asked.resource.resource
    )
    key = (asked.resource.group, resource, asked.operation)
    failures: list[tuple[str, Exception]] = []  # a sentence for users, and the exception

    def failed(error: Exception) -> None:
        failures.append((_failure(asked, resource, error, containment), error))

    try:
        answer = (_mutated if mutating else _validated)(asked, registry, key, failed)
    except Exception as bug:
        failed(bug)
        opens = optional or registry.admission.get(key, Handlers()).fail_open
        answer = _allowed(asked, key) if opens else _refused(asked, key, failures[-1][0])
    response = answer.body["response"]
    if failures and response["allowed"]:
        response["warnings"] = [*response.get("warnings", ()), *(text[:250] for text, _ in failures)]
        answer = replace(answer, verdict="failed")
    return replace(answer, failure=failures[-1][1]) if failures else answer


def convert(
    body: bytes | bytearray,
    registry: Registry,
    containment: Containment = _UNREPORTED,
    late: Callable[[], bool] = lambda: False,
) -> ReviewResponse:
    """Answer a ConversionReview: all objects, or an error. Only one object is decoded at a time.

    Raises Late as soon as the client no longer waits for the answer.
    """
    asked = _decoded(body, _ConversionReview).request
    found: list[msgspec.Raw] = []
    kind = "objects"
    for raw in asked.objects:
        if late():
            raise Late
        obj = _object(raw)
        kind = str(obj.get("kind", ""))
        try:
            found.append(msgspec.Raw(msgspec.json.encode(_converted(obj, asked.desiredAPIVersion, registry))))
        except Exception as bug:
            name = called(obj)
            identity = containment.failed(bug, WHERE, kind, name)
            why = str(bug) if isinstance(bug, ValueError) else f"internal error {type(bug).__name__}"
            message = (
                f"{kind} {name} to {asked.desiredAPIVersion}: {why} (id {identity} in the log of bayplan)"
            )
            result = {"status": "Failure", "message": message}
            return ReviewResponse(_converted_review(asked.uid, [], result), kind, "failed", bug)
    return ReviewResponse(_converted_review(asked.uid, found, {"status": "Success"}), kind, "converted")


def _mutated(asked: _Asked, registry: Registry, key: Key, failed: Failed) -> ReviewResponse:
    response: Object = {"allowed": True}
    if asked.object is not None:
        wanted = registry.mutated(key, asked.object, asked.oldObject, failed)
        if patch := jsonpatch.make_patch(asked.object, wanted).patch:
            encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
    return ReviewResponse(
        _reviewed(asked.uid, response), key[1], "patched" if "patch" in response else "allowed"
    )


def _validated(asked: _Asked, registry: Registry, key: Key, failed: Failed) -> ReviewResponse:
    problems = registry.problems(key, asked.object, asked.oldObject, failed)
    if not problems:
        advice = registry.advice(key, asked.object, failed)
        response: Object = {"allowed": True} | ({"warnings": advice} if advice else {})
        return ReviewResponse(_reviewed(asked.uid, response), key[1], "allowed")
    causes = [
        {"reason": REASONS.get(one.fault, "FieldValueInvalid"), "field": one.path, "message": one.why}
        for one in problems
    ]
    details = {"name": asked.name, "group": asked.kind.group, "kind": asked.kind.kind, "causes": causes}
    message = "; ".join(str(problem) for problem in problems)
    status = {"code": 422, "reason": "Invalid", "message": message, "details": details}
    return ReviewResponse(_reviewed(asked.uid, {"allowed": False, "status": status}), key[1], "denied")


def _failure(asked: _Asked, resource: str, error: Exception, containment: Containment) -> str:
    """A handler raised: a bug in Bayplan. The log has the details; users get its id."""
    name = "/".join(part for part in (asked.namespace, asked.name) if part) or called(asked.object)
    identity = containment.failed(error, WHERE, resource, name)
    return f'bayplan could not review {resource} "{name}": internal error {identity}, see the log of bayplan'


def _allowed(asked: _Asked, key: Key) -> ReviewResponse:
    return ReviewResponse(_reviewed(asked.uid, {"allowed": True}), key[1], "allowed")


def _refused(asked: _Asked, key: Key, why: str) -> ReviewResponse:
    response = {"allowed": False, "status": {"code": 500, "reason": "InternalError", "message": why}}
    return ReviewResponse(_reviewed(asked.uid, response), key[1], "failed")


def _converted(obj: Object, version: str, registry: Registry) -> Object:
    current, kind = str(obj["apiVersion"]), str(obj["kind"])
    if current == version:
        return obj
    change = registry.conversion.get((version.partition("/")[0], kind))
    if change is None or current.partition("/")[0] != version.partition("/")[0]:
        raise ValueError(f"there is no conversion from {current}")
    found = change(obj, version)
    assert found["apiVersion"] == version, found["apiVersion"]
    return found | {"metadata": _kept(obj["metadata"], found["metadata"])}


def _kept(old: Object, new: Object) -> Object:
    """A conversion may only change labels and annotations of the metadata."""
    touched = ("labels", "annotations")
    kept = {name: value for name, value in old.items() if name not in touched}
    return kept | {name: new[name] for name in touched if name in new}


def _reviewed(uid: str, response: Object) -> Object:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": uid, **response},
    }


def _converted_review(uid: str, objects: list[msgspec.Raw], result: Object) -> Object:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": {"uid": uid, "result": result, "convertedObjects": objects},
    }


# ── decoded parts of a review ──────────────────────────────────────────────────────────────────────


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
    objects: list[msgspec.Raw]


class _ConversionReview(msgspec.Struct):
    apiVersion: Literal["apiextensions.k8s.io/v1"]  # noqa: N815
    kind: Literal["ConversionReview"]
    request: _ToConvert


def _decoded(body: bytes | bytearray, shape: Any) -> Any:
    try:
        return bounded_json(body, shape)
    except UnreadableJSON as error:
        raise Malformed(f"this is no {shape.__name__.strip('_')}: it {error}") from None


def _object(raw: msgspec.Raw) -> Object:
    """One object of a ConversionReview; the nesting depth of the whole review was checked before."""
    size = len(memoryview(raw))
    if size > OBJECT_BYTES:
        raise Malformed(f"this is no ConversionReview: an object in it has {size} bytes, over {OBJECT_BYTES}")
    try:
        found: Object = msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Malformed(f"this is no ConversionReview: an object in it cannot be read: {error}") from None
    return found
