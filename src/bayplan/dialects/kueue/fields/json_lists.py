"""JSON in annotations, with the error messages of Go's decoder."""

from __future__ import annotations

import json
import re

from bayplan.dialects.kube.fields.reader import INT32_MAX

_LITERALS = {"t": "true", "f": "false", "n": "null"}
_AFTER = {
    "Extra data": "after top-level value",
    "Expecting ':' delimiter": "after object key",
    "Expecting property name enclosed in double quotes": "looking for beginning of object key string",
    "Illegal trailing comma before end of object": "looking for beginning of object key string",
    "Invalid control character at": "in string literal",
}


def read_json(text: str) -> object:
    """The decoded JSON value. ValueError if the text is not JSON."""
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        raise ValueError(_go_message(error)) from None
    except RecursionError:
        raise ValueError("exceeded max depth") from None


def read_layer_list(
    text: str, name: str = "PodsetSliceRequiredTopologyConstraint"
) -> list[dict[str, object]]:
    """A list of {topology, size}; missing fields are empty, unknown ones are ignored."""
    entries = read_json(text)
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise ValueError(f"json: cannot unmarshal {_kind(entries)} into Go value of type []v1beta2.{name}")
    return [_layer(entry, name) for entry in entries]


def _layer(entry: object, name: str) -> dict[str, object]:
    if entry is None:
        entry = {}
    if not isinstance(entry, dict):
        raise ValueError(f"json: cannot unmarshal {_kind(entry)} into Go value of type v1beta2.{name}")
    fields = {key.lower(): value for key, value in entry.items() if value is not None}
    topology, size = fields.get("topology", ""), fields.get("size", 0)
    if not isinstance(topology, str):
        raise ValueError(
            f"json: cannot unmarshal {_kind(topology)} into Go struct field {name}.topology of type string"
        )
    if isinstance(size, bool) or not isinstance(size, int) or not -INT32_MAX - 1 <= size <= INT32_MAX:
        shown = f"number {size}" if _kind(size) == "number" else _kind(size)
        raise ValueError(f"json: cannot unmarshal {shown} into Go struct field {name}.size of type int32")
    return {"topology": topology, "size": size}


def _reject_constant(constant: str) -> object:
    raise ValueError(f"invalid character {constant[0]!r} looking for beginning of value")


def _kind(value: object) -> str:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _go_message(error: json.JSONDecodeError) -> str:
    """The error message of Go's decoder for the position where Python's stopped."""
    text, position = error.doc, error.pos
    if error.msg.startswith("Illegal trailing comma"):
        position += 1
    position += len(text[position:]) - len(text[position:].lstrip())
    if position >= len(text) or error.msg.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    if error.msg.startswith("Invalid \\"):
        return f"invalid character {text[position + 1 : position + 2]!r} in string escape code"
    if error.msg == "Expecting ',' delimiter":
        return f"invalid character {text[position]!r} after {_container(text[:position])}"
    if literal := _LITERALS.get(text[position]):
        return _broken_literal(text, position, literal)
    return f"invalid character {text[position]!r} {_AFTER.get(error.msg, 'looking for beginning of value')}"


def _broken_literal(text: str, position: int, literal: str) -> str:
    for offset, expected in enumerate(literal):
        character = text[position + offset : position + offset + 1]
        if not character:
            return "unexpected end of JSON input"
        if character != expected:
            return f"invalid character {character!r} in literal {literal} (expecting {expected!r})"
    return f"invalid character {text[position]!r} looking for beginning of value"


def _container(before: str) -> str:
    """Whether a text stops inside a list or a mapping."""
    depth = 0
    for character in reversed(re.sub(r'"(?:\\.|[^"\\])*"', "", before)):
        if character in "]}":
            depth += 1
        elif character in "[{":
            if not depth:
                return "array element" if character == "[" else "object key:value pair"
            depth -= 1
    return "top-level value"
