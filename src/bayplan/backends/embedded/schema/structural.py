"""Structural schemas of custom resources: pruning, defaulting and validation."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jsonschema_rs

from bayplan.backends.embedded.api.decoding import Path, copied, spelled
from bayplan.backends.embedded.api.status import FieldProblem, duplicate, required, spell, unsupported, wrong

Schema = Mapping[str, Any]
Walker = Callable[[Any, Path, list[str]], Any]

_LOG = logging.getLogger(__name__)
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_EMBEDDED = "x-kubernetes-embedded-resource"
_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", list: "array", dict: "object"}
_COPIED_KEYWORDS = [
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "required",
]
_WRITTEN: dict[str, str] = {}  # patterns as they were written, by what was made of them
_FORMATS = {"date-time", "date", "uuid", "ipv4", "ipv6", "email", "uri"}


def walker(schema: Schema) -> Walker:
    """A function that copies a value, drops and notes what the schema does not name, and defaults."""
    if schema.get("type") == "array" and "items" in schema:
        return _array_walker(walker(schema["items"]))
    if schema.get(_INT_OR_STRING) or schema.get("type") not in ("object", None):
        return _copy_walker
    properties = schema.get("properties", {})
    additional = schema.get("additionalProperties")
    open_ended = schema.get(_PRESERVE) or additional is True or "type" not in schema
    if open_ended and not properties and not isinstance(additional, Mapping):
        return _copy_walker
    return _object_walker(schema, properties)


def _copy_walker(value: Any, _: Path, __: list[str]) -> Any:
    return copied(value)


def _array_walker(inner: Walker) -> Walker:
    def walk(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not list:
            return copied(value)
        return [inner(item, (path, place), unknown) for place, item in enumerate(value)]

    return walk


def _object_walker(schema: Schema, properties: Mapping[str, Schema]) -> Walker:
    inner = {key: walker(below) for key, below in properties.items()}
    nullable = {key for key, below in properties.items() if below.get("nullable")}
    defaults = {key: below["default"] for key, below in properties.items() if "default" in below}
    additional = schema.get("additionalProperties")
    rest = walker(additional) if isinstance(additional, Mapping) else None
    keep = bool(schema.get(_PRESERVE)) or additional is True
    always = {"apiVersion", "kind", "metadata"} if schema.get(_EMBEDDED) else set()

    def walk(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            return copied(value)
        found = {}
        for key, item in value.items():
            below = inner.get(key)
            if below is not None:
                if item is not None or key in nullable:
                    found[key] = below(item, (path, key), unknown)
            elif rest is not None:
                found[key] = rest(item, (path, key), unknown)
            elif keep or key in always:
                found[key] = copied(item)
            else:
                unknown.append(spelled((path, key)))
        for key, default in defaults.items():
            if key not in found:
                found[key] = inner[key](default, (path, key), [])
        return found

    return walk


class Checker:
    """Validates objects, with the messages of the API."""

    def __init__(self, schema: Schema) -> None:
        self._unique = _uniqueness(schema)
        self._validator = jsonschema_rs.Draft4Validator(converted(schema), validate_formats=True)

    def check(self, item: Any, old: Any | None = None) -> list[FieldProblem]:
        """Every violation of the schema; values that an update does not change are not checked."""
        problems: list[FieldProblem] = []
        if not self._validator.is_valid(item):
            message: dict[str, int] = {}
            for error in sorted(self._validator.iter_errors(item), key=_rank):
                rank = _rank(error)
                first = not rank or message.setdefault(_path(error.instance_path), rank) == rank
                if first and (old is None or not _unchanged(old, error)):
                    problems += _problems(error)
        same = isinstance(item, dict) and isinstance(old, dict)
        changed = {k: v for k, v in item.items() if old.get(k) != v} if same and old is not None else item
        if self._unique is not None:
            problems += _repeated(self._unique, changed, ())
        return problems


_TEXT_RULES = ("", "maxLength", "minLength", "pattern")


def _rank(error: Any) -> int:
    """Only the first violation of one text is reported."""
    name = error.kind.name
    return _TEXT_RULES.index(name) if name in _TEXT_RULES else 0


def _unchanged(old: Any, error: Any) -> bool:
    for part in error.instance_path:
        try:
            old = old[part]
        except (KeyError, IndexError, TypeError):
            return False
    return bool(old == error.instance)


def converted(schema: Schema) -> dict[str, Any]:
    """A structural schema as JSON Schema."""
    result: dict[str, Any] = {key: schema[key] for key in _COPIED_KEYWORDS if key in schema}
    types = [schema["type"]] if "type" in schema else []
    if schema.get(_INT_OR_STRING):
        types = ["integer", "string"]
    if types:
        result["type"] = [*types, "null"] if schema.get("nullable") else types if len(types) > 1 else types[0]
    if "enum" in schema and schema.get("nullable"):
        result["enum"] = [*schema["enum"], None]
    if "pattern" in schema:
        result.update(_pattern(schema["pattern"]))
    if schema.get("format") in _FORMATS:
        result["format"] = schema["format"]
    if "properties" in schema:
        result["properties"] = {key: converted(below) for key, below in schema["properties"].items()}
    for key in ("items", "not"):
        if key in schema:
            result[key] = converted(schema[key])
    if isinstance(schema.get("additionalProperties"), Mapping):
        result["additionalProperties"] = converted(schema["additionalProperties"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema and not schema.get(_INT_OR_STRING):
            result[key] = [converted(below) for below in schema[key]]
    return result


@lru_cache(maxsize=4096)
def _pattern(text: str) -> Mapping[str, str]:
    """A pattern of Go's kind as JSON Schema writes it; nothing when it cannot be written."""
    flags = re.match(r"(\^?)\(\?([ims]+)\)", text)
    plain = text.replace("(?P<", "(?<")
    if flags:
        plain = f"(?{flags[2]}:{flags[1]}{plain[flags.end() :]})"
    try:
        jsonschema_rs.Draft4Validator({"pattern": plain})
    except ValueError:
        _LOG.warning("a pattern in a schema is not checked: %s", text)
        return {}
    _WRITTEN[plain] = text
    return {"pattern": plain}


def _problems(error: Any) -> Iterator[FieldProblem]:
    path = _path(error.instance_path)
    value, kind = error.instance, error.kind
    message = f"{path} in body" if path else "body"
    match kind.name:
        case "required":
            yield required(f"{path}.{kind.property}" if path else kind.property)
        case "type":
            types = kind.types if isinstance(kind.types, list) else [kind.types]
            wanted = ",".join(str(one) for one in types if one != "null")
            found = _type_name(value)
            message = f'Invalid value: "{found}": {message} must be of type {wanted}: "{found}"'
            yield FieldProblem(path, "FieldValueTypeInvalid", message)
        case "enum":
            yield unsupported(path, value, [str(one) for one in kind.options if one is not None])
        case "minimum":
            yield wrong(path, value, f"{message} should be greater than or equal to {kind.limit}")
        case "maximum":
            yield wrong(path, value, f"{message} should be less than or equal to {kind.limit}")
        case "maxLength":
            message = f"Too long: may not be more than {kind.limit} bytes"
            yield FieldProblem(path, "FieldValueTooLong", message)
        case "minLength":
            yield wrong(path, value, f"{message} should be at least {kind.limit} chars long")
        case "pattern":
            yield wrong(path, value, f"{message} should match '{_WRITTEN.get(kind.pattern, kind.pattern)}'")
        case "maxItems" | "maxProperties":
            message = f"Too many: {len(value)}: must have at most {kind.limit} items"
            yield FieldProblem(path, "FieldValueTooMany", message)
        case "minItems":
            yield wrong(path, len(value), f"{message} should have at least {kind.limit} items")
        case "minProperties":
            yield wrong(path, len(value), f"{message} should have at least {kind.limit} properties")
        case "format":
            message = (
                f"Invalid value: {spell(value)}: {message} must be of type {kind.format}: {spell(value)}"
            )
            yield FieldProblem(path, "FieldValueTypeInvalid", message)
        case "anyOf" | "oneOfNotValid":
            keyword = "anyOf" if kind.name == "anyOf" else "oneOf"
            yield wrong(path, value, f'"{path}" must validate {_SCHEMAS[keyword]} ({keyword})')
        case _:
            yield wrong(path, value, f"{message}: {error.message}")


_SCHEMAS = {"anyOf": "at least one schema", "oneOf": "one and only one schema"}


def _type_name(value: Any) -> str:
    return "null" if value is None else _TYPES[type(value)]


def _path(parts: list[Any]) -> str:
    path: Path = ()
    for part in parts:
        path = (path, part)
    return spelled(path)


@dataclass(frozen=True, slots=True)
class _Unique:
    """Where a schema has lists that are maps or sets: what is known of them here, and below."""

    keys: tuple[str, ...] = ()
    is_set: bool = False
    items: _Unique | None = None
    properties: Mapping[str, _Unique] = field(default_factory=dict)
    rest: _Unique | None = None


def _uniqueness(schema: Schema) -> _Unique | None:
    """The part of a schema that says which lists hold nothing twice; None if there is no such list."""
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    is_set = schema.get("x-kubernetes-list-type") == "set"
    items = _uniqueness(schema["items"]) if isinstance(schema.get("items"), Mapping) else None
    rest = schema.get("additionalProperties")
    below = {key: _uniqueness(inner) for key, inner in schema.get("properties", {}).items()}
    properties = {key: found for key, found in below.items() if found is not None}
    others = _uniqueness(rest) if isinstance(rest, Mapping) else None
    if not (keys or is_set or items or properties or others):
        return None
    return _Unique(keys, is_set, items, properties, others)


def _repeated(unique: _Unique, value: Any, path: Path) -> Iterator[FieldProblem]:
    """Duplicates in lists that are maps or sets."""
    if type(value) is list:
        seen = []
        if unique.keys or unique.is_set:
            for place, item in enumerate(value):
                if unique.keys and not isinstance(item, dict):
                    continue
                known = {key: item.get(key) for key in unique.keys if key in item} if unique.keys else item
                if known in seen:
                    yield duplicate(spelled((path, place)), known)
                seen.append(known)
        if unique.items is not None:
            for place, item in enumerate(value):
                yield from _repeated(unique.items, item, (path, place))
    elif type(value) is dict:
        for key, item in value.items():
            below = unique.properties.get(key, unique.rest)
            if below is not None and type(item) in (dict, list):
                yield from _repeated(below, item, (path, key))
