"""Error responses: Kubernetes Status objects with the reasons and messages of upstream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.backends.embedded.api.resource import Resource
from bayplan.dialects.kube.fields.reader import FieldError, FieldErrorType

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    501: "NotImplemented",
}
_FAULTS = {
    FieldErrorType.INVALID: "Invalid",
    FieldErrorType.REQUIRED: "Required",
    FieldErrorType.FORBIDDEN: "Forbidden",
    FieldErrorType.DUPLICATE: "Duplicate",
    FieldErrorType.UNSUPPORTED: "NotSupported",
    FieldErrorType.NOT_FOUND: "NotFound",
    FieldErrorType.TOO_LONG: "TooLong",
    FieldErrorType.TOO_MANY: "TooMany",
}
_VALUELESS = (FieldErrorType.REQUIRED, FieldErrorType.FORBIDDEN, FieldErrorType.TOO_LONG)
_PLAIN_METHOD = "the server does not allow this method on the requested resource"
_MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class StatusError(Exception):
    """A rejected request; `body` is the Status of the response."""

    def __init__(
        self, code: int, message: str, reason: str | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = _REASONS.get(code, "") if reason is None else reason
        self.details = details

    @property
    def body(self) -> dict[str, Any]:
        """The Status object."""
        status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def success(details: dict[str, Any] | None = None, code: int = 0) -> dict[str, Any]:
    """The Status of a successful request without an object."""
    status: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return status | ({"details": details} if details else {}) | ({"code": code} if code else {})


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One thing wrong with an object, as Kubernetes words it."""

    field: str
    reason: str
    message: str


def required(field: str, why: str = "") -> FieldProblem:
    """A required field is missing."""
    return FieldProblem(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def wrong(field: str, value: object, why: str) -> FieldProblem:
    """A field has an invalid value."""
    return FieldProblem(field, "FieldValueInvalid", f"Invalid value: {spell(value)}: {why}")


def unsupported(field: str, value: object, allowed: Sequence[str]) -> FieldProblem:
    """A field's value is none of those allowed."""
    known = ", ".join(json.dumps(item) for item in allowed)
    message = f"Unsupported value: {spell(value)}: supported values: {known}"
    return FieldProblem(field, "FieldValueNotSupported", message)


def unwanted(field: str, why: str) -> FieldProblem:
    """A field may not be set or changed."""
    return FieldProblem(field, "FieldValueForbidden", f"Forbidden: {why}")


def duplicate(field: str, value: object) -> FieldProblem:
    """A value that must be unique is repeated."""
    return FieldProblem(field, "FieldValueDuplicate", f"Duplicate value: {spell(value)}")


def too_long(field: str, limit: int) -> FieldProblem:
    """A text is longer than allowed."""
    return FieldProblem(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def from_field(error: FieldError) -> FieldProblem:
    """What a dialect found wrong with a field."""
    reason = _FAULTS[error.fault]
    value = "" if error.fault in _VALUELESS else spell(error.value)
    parts = (str(error.fault), value, error.why)
    return FieldProblem(error.path, f"FieldValue{reason}", ": ".join(part for part in parts if part))


def spell(value: object) -> str:
    """A value as upstream shows it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)


def invalid(resource: Resource, name: str, problems: Sequence[FieldProblem], kind: str = "") -> StatusError:
    """An object that breaks rules; every broken rule is named."""
    sentences = list(dict.fromkeys(_sentence(problem) for problem in problems))
    message = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    causes = [
        {"reason": problem.reason, "message": problem.message, "field": problem.field} for problem in problems
    ]
    kind = kind or resource.kind
    details = _details(resource.group, kind, name) | {"causes": causes}
    return StatusError(
        422, f"{_qualified(kind, resource.group)} {quote(name)} is invalid: {message}", None, details
    )


def wrong_options(kind: str, problems: Sequence[FieldProblem]) -> StatusError:
    """Parameters of a request that break rules."""
    sentences = [_sentence(problem) for problem in problems]
    message = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    causes = [
        {"reason": problem.reason, "message": problem.message, "field": problem.field} for problem in problems
    ]
    details = {"group": "meta.k8s.io", "kind": kind, "causes": causes}
    return StatusError(422, f'{kind}.meta.k8s.io "" is invalid: {message}', None, details)


def not_found(resource: Resource, name: str) -> StatusError:
    """No object of that name."""
    return StatusError(404, f"{resource.qualified} {quote(name)} not found", None, _of(resource, name))


def already_exists(resource: Resource, name: str) -> StatusError:
    """The name is taken."""
    message = f"{resource.qualified} {quote(name)} already exists"
    return StatusError(409, message, "AlreadyExists", _of(resource, name))


def conflict(resource: Resource, name: str, why: str = _MODIFIED, subresource: str = "") -> StatusError:
    """The object was changed in the meantime, or a precondition does not hold."""
    plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
    message = f"Operation cannot be fulfilled on {_qualified(plural, resource.group)} {quote(name)}: {why}"
    return StatusError(409, message, None, _details(resource.group, plural, name))


def failed_precondition(resource: Resource, name: str, why: str) -> StatusError:
    """A delete whose precondition does not hold; upstream names the kind here, not the resource."""
    kind = _qualified(resource.kind, resource.group)
    message = f"Operation cannot be fulfilled on {kind} {quote(name)}: {why}"
    return StatusError(409, message, None, _details(resource.group, resource.kind, name))


def forbidden(resource: Resource, name: str, why: str) -> StatusError:
    """The request is forbidden."""
    shown = f" {quote(name)}" if name else ""
    return StatusError(403, f"{resource.qualified}{shown} is forbidden: {why}", None, _of(resource, name))


def terminating(resource: Resource, name: str, namespace: str) -> StatusError:
    """No object can be created in a terminating namespace."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    refusal = forbidden(resource, name, why)
    cause = {
        "reason": "NamespaceTerminating",
        "message": f"namespace {namespace} is being terminated",
        "field": "metadata.namespace",
    }
    refusal.details = {**(refusal.details or {}), "causes": [cause]}
    return refusal


def bad_request(why: str) -> StatusError:
    """A request that cannot be understood."""
    return StatusError(400, why)


def expired(why: str) -> StatusError:
    """The requested resourceVersion has expired."""
    return StatusError(410, why, "Expired")


def unknown_resource() -> StatusError:
    """No resource is served at that path."""
    return StatusError(404, "the server could not find the requested resource", None, {})


def method_not_allowed(why: str = _PLAIN_METHOD) -> StatusError:
    """The resource does not support the verb."""
    return StatusError(405, why, None, {})


def quote(text: str) -> str:
    """A name in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _sentence(problem: FieldProblem) -> str:
    return f"{problem.field}: {problem.message}"


def _qualified(name: str, group: str) -> str:
    return f"{name}.{group}" if group else name


def _of(resource: Resource, name: str) -> dict[str, Any]:
    return _details(resource.group, resource.plural, name)


def _details(group: str, kind: str, name: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in details.items() if value}
