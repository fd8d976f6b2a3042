"""JSON that people write into annotations; its faults are told in the words of the API's own language."""

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
    """The value that a text spells. ValueError if there is none."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as wrong:
        raise ValueError(_say(wrong)) from None
    except RecursionError:
        raise ValueError("exceeded max depth") from None


def read_layer_list(
    text: str, name: str = "PodsetSliceRequiredTopologyConstraint"
) -> list[dict[str, object]]:
    """A list of {topology, size}; what is left out is empty, what is unknown is passed over."""
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


def _refuse(constant: str) -> object:
    raise ValueError(f"invalid character {constant[0]!r} looking for beginning of value")


def _kind(value: object) -> str:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _say(wrong: json.JSONDecodeError) -> str:
    """The sentence of Go's decoder for a place where Python's stopped."""
    text, place = wrong.doc, wrong.pos
    if wrong.msg.startswith("Illegal trailing comma"):
        place += 1
    place += len(text[place:]) - len(text[place:].lstrip())
    if place >= len(text) or wrong.msg.startswith("Unterminated string"):
        return "unexpected end of JSON input"
    if wrong.msg.startswith("Invalid \\"):
        return f"invalid character {text[place + 1 : place + 2]!r} in string escape code"
    if wrong.msg == "Expecting ',' delimiter":
        return f"invalid character {text[place]!r} after {_container(text[:place])}"
    if literal := _LITERALS.get(text[place]):
        return _broken_literal(text, place, literal)
    return f"invalid character {text[place]!r} {_AFTER.get(wrong.msg, 'looking for beginning of value')}"


def _broken_literal(text: str, place: int, literal: str) -> str:
    for offset, expected in enumerate(literal):
        found = text[place + offset : place + offset + 1]
        if not found:
            return "unexpected end of JSON input"
        if found != expected:
            return f"invalid character {found!r} in literal {literal} (expecting {expected!r})"
    return f"invalid character {text[place]!r} looking for beginning of value"


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
