"""Reading bodies in Kubernetes' protobuf form, in which kubectl sends some of what it creates.

Only reading: answers are JSON, which the same clients accept. The numbers of the fields are in
data/numbers.json; `*Type` there stands for a message whose fields are the parent's own in JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from bayplan.backends.embedded.api.decoding import types
from bayplan.backends.embedded.api.status import StatusError

Object = dict[str, Any]
Numbers = dict[int, str]

FORM = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIGNED = ("int32", "int64")


def decoded(body: bytes) -> Object:
    """The object in a protobuf body, as it would be in JSON; 415 when it cannot be read that way."""
    try:
        if not body.startswith(_MAGIC):
            raise ValueError("it does not begin as one")
        envelope = {number: value for number, _, value in _fields(body[len(_MAGIC) :])}
        named = {number: value.decode() for number, _, value in _fields(envelope[1])}
        kind = named.get(2, "")
        known = _type_of(named.get(1, ""), kind)
        return {"apiVersion": named.get(1, ""), "kind": kind, **_message(envelope.get(2, b""), known, known)}
    except (ValueError, KeyError, IndexError, TypeError, OverflowError, OSError, AttributeError) as error:
        raise StatusError(415, f"the protobuf body cannot be read ({error}); send application/json") from None


@cache
def _numbers() -> dict[str, Numbers]:
    text = (resources.files("bayplan.backends.embedded") / "data" / "numbers.json").read_text(
        encoding="utf-8"
    )
    pairs = {name: [one.split("=") for one in line.split()] for name, line in json.loads(text).items()}
    return {name: {int(number): key for key, number in found} for name, found in pairs.items()}


def _type_of(api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    prefix = {"events.k8s.io": "events", "scheduling.k8s.io": version}.get(group, "")
    return f"{prefix}.{kind}" if f"{prefix}.{kind}" in types() else kind


def _message(data: bytes, owner: str, numbered: str) -> Object:
    """A message of the type `numbered`, whose fields belong to the type `owner`."""
    numbers, fields = _numbers()[numbered], types()[owner]
    found: Object = {}
    for number, wire, value in _fields(data):
        key = numbers.get(number, "")
        if key.startswith("*"):
            found.update(_message(value, owner, key[1:]))
        elif key in fields:
            _put(found, key, fields[key].type, wire, value)
    return found


def _put(found: Object, key: str, type_: str, wire: int, value: Any) -> None:
    if type_[0] == "[":
        inner = type_[1:-1]
        values = list(_packed(value)) if wire == _BYTES and inner in _SIGNED else [value]
        found.setdefault(key, []).extend(_value(inner, one) for one in values)
    elif type_[0] == "{":
        entry = {number: item for number, _, item in _fields(value)}
        default = 0 if type_[1:-1] in _SIGNED else b""
        found.setdefault(key, {})[entry.get(1, b"").decode()] = _value(type_[1:-1], entry.get(2, default))
    else:
        found[key] = _value(type_, value)


def _value(type_: str, value: Any) -> Any:
    match type_:
        case "string":
            return value.decode()
        case "bytes":
            return base64.b64encode(value).decode()
        case "bool":
            return bool(value)
        case "int32" | "int64":
            return value - (1 << 64) if value >> 63 else value
        case "quantity":
            return next((text.decode() for _, _, text in _fields(value)), "0") or "0"
        case "intOrString":
            parts = {number: item for number, _, item in _fields(value)}
            return parts.get(3, b"").decode() if parts.get(1) else _value("int32", parts.get(2, 0))
        case "time" | "microtime":
            return _time(value, type_ == "microtime")
        case "any" | "number":
            raise ValueError("it has a field that is read from JSON only")
    return _message(value, type_, type_)


def _time(data: bytes, fine: bool) -> str | None:
    parts = {number: item for number, _, item in _fields(data)}
    if not parts:
        return None
    moment = datetime.fromtimestamp(_value("int64", parts.get(1, 0)), UTC)
    text = f"{moment:%Y-%m-%dT%H:%M:%S}"
    return f"{text}.{parts.get(2, 0) // 1000:06d}Z" if fine else f"{text}Z"


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, value) of each field of a message."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, place = _varint(data, place)
            yield number, wire, value
            continue
        if wire == _BYTES:
            size, place = _varint(data, place)
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire} is not known")
        if place + size > len(data):
            raise ValueError("it ends in the middle of a field")
        yield number, wire, data[place : place + size]
        place += size


def _packed(data: bytes) -> Iterator[int]:
    place = 0
    while place < len(data):
        value, place = _varint(data, place)
        yield value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number in it is too long")
