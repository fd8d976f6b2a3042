"""HTTP requests as values: API path, options, body, and the accepted response forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayplan.backends.embedded.api.json_values import NotPlain, plain
from bayplan.backends.embedded.api.options import Options
from bayplan.backends.embedded.api.status import StatusError, bad_request, unsupported, wrong_options
from bayplan.backends.embedded.http import protobuf
from bayplan.dialects.kube.fields.bounded_json import UnreadableJSON, bounded_json
from bayplan.dialects.kube.fields.bounded_yaml import UnreadableYAML, bounded_yaml

Object = dict[str, Any]

JSON = "application/json"
_OPTIONS = {
    "POST": "CreateOptions",
    "PUT": "UpdateOptions",
    "PATCH": "PatchOptions",
    "DELETE": "DeleteOptions",
}
_SHOWN_MAX = 30
_WHOLE = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX = 20  # more do not fit into 64 bits
_INT64 = range(-(2**63), 2**63)
_TRUE = ("1", "true", "True", "TRUE", "t", "T")


@dataclass(frozen=True, slots=True)
class RequestPath:
    """A place in the API: a collection, an object, or a part of one."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    accept: str = JSON
    content_type: str = JSON
    body: bytes = b""

    def flag(self, name: str) -> bool:
        """A parameter that is true or false."""
        return self.query.get(name, "") in _TRUE

    def number(self, name: str) -> int | None:
        """A parameter that is a whole number."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not _WHOLE.fullmatch(text):
            raise bad_request(f'strconv.ParseInt: parsing "{text[:_SHOWN_MAX]}": invalid syntax')
        if len(text) > _DIGITS_MAX or int(text) not in _INT64:
            raise bad_request(f'strconv.ParseInt: parsing "{text[:_SHOWN_MAX]}": value out of range')
        return int(text)

    def options(self) -> Options:
        """How a write is to be made."""
        dry, validation = self.query.get("dryRun", ""), self.query.get("fieldValidation") or "Warn"
        problems = []
        if dry not in ("", "All"):
            problems.append(unsupported("dryRun", [dry], ("All",)))
        if validation not in ("Ignore", "Warn", "Strict"):
            problems.append(unsupported("fieldValidation", validation, ("", "Ignore", "Strict", "Warn")))
        if problems:
            raise wrong_options(_OPTIONS.get(self.method, "ListOptions"), problems)
        return Options(dry == "All", validation, [], self.query.get("fieldManager", ""))

    def decoded(self, kind: str) -> Any:
        """The body as values; 400 or 415 when it cannot be read."""
        form = self.content_type.partition(";")[0].strip()
        if form == protobuf.FORM:
            return protobuf.decoded(self.body)
        if form.endswith("yaml"):
            try:
                return plain(bounded_yaml(self.body))
            except UnreadableYAML as error:
                where = f" ({error.where})" if error.where else ""
                raise bad_request(f"error decoding YAML: the body {error.why}{where}") from None
            except NotPlain as error:
                raise bad_request(f"error decoding YAML: the body {error}") from None
        if form not in ("", "*/*") and not form.endswith("json"):
            raise StatusError(
                415,
                "the body of the request was in an unknown format - accepted media types include: "
                f"{JSON}, application/yaml, {protobuf.FORM}",
            )
        try:
            return plain(bounded_json(self.body))
        except (UnreadableJSON, NotPlain) as error:
            shown = shortened(self.body)
            raise bad_request(
                f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
                f"json parse error: {error} ({shown})"
            ) from None


def shortened(body: bytes) -> str:
    """The beginning of a body, for a message."""
    text = body.decode(errors="replace")
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]} ..."


def place_of(path: str) -> RequestPath | None:
    """Where in the API a path points; None when it is no resource's path."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    match rest:
        case ["namespaces", name, ("status" | "finalize") as own] if not group:
            return RequestPath(group, version, "namespaces", "", name, own)
        case ["namespaces", namespace, plural, *more] if len(more) <= 2:
            name, part = [*more, "", ""][:2]
            return RequestPath(group, version, plural, namespace, name, part)
        case [plural, *more] if len(more) <= 2:
            name, part = [*more, "", ""][:2]
            return RequestPath(group, version, plural, "", name, part)
    return None


def wants_table(accept: str) -> bool:
    """Whether a client asks for a table first."""
    first = accept.partition(",")[0].replace(" ", "")
    return "as=Table" in first and "g=meta.k8s.io" in first


def wants_metadata(accept: str) -> bool:
    """Whether a client asks for metadata only."""
    return "as=PartialObjectMetadata" in accept.partition(",")[0]


def acceptable(accept: str) -> str:
    """JSON or YAML, whichever the client names first; 406 when it takes neither."""
    for part in accept.split(","):
        form = part.partition(";")[0].strip()
        if form in ("", "*/*", "application/*", JSON):
            return JSON
        if form == "application/yaml":
            return form
    raise StatusError(
        406,
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml",
        None,
        {},
    )
