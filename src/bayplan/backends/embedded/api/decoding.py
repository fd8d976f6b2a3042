"""Reading a body as a built-in kind: types checked, unknown fields dropped and named, zero values settled.

The kinds' fields are in data/types.json, in a short notation of what an API server's decoder and encoder do:
`string` is left out when empty, `string?` is kept when given, `string!` is always shown. Lists are `[T]`,
maps `{T}`. What follows a blank says how a strategic merge patch treats the field.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from bayplan.backends.embedded.api import scalars

Object = dict[str, Any]
Path = tuple[Any, ...]  # (path above, key or index), () at the top
Reader = Callable[[Any, Path, list[str]], Any]

_INT_BITS = {"int32": 31, "int64": 63}
_JSON_NAMES = {str: "string", int: "number", float: "number", bool: "bool", list: "array", dict: "object"}


class UnreadableBody(ValueError):
    """A body that cannot be decoded; the message is that of upstream."""


@dataclass(frozen=True, slots=True)
class TypedField:
    """A parsed field declaration of a built-in type."""

    type: str  # without the mark
    mark: str  # "", "?" or "!"
    merge: bool = False  # a strategic merge patch merges lists here instead of replacing them
    merge_key: str = ""
    replace: bool = False
    retain_keys: bool = False

    @property
    def item(self) -> str:
        """The type inside a list or map."""
        return self.type[1:-1]


def field(notation: str) -> TypedField:
    """`[Container]! merge=name` as a Field."""
    type_, _, how = notation.partition(" ")
    mark = type_[-1] if type_[-1] in "?!" else ""
    strategies, _, key = how.partition("=")
    named = strategies.split(",")
    return TypedField(
        type_.removesuffix(mark) if mark else type_,
        mark,
        "merge" in named,
        key,
        "replace" in named,
        "retainKeys" in named,
    )


@cache
def types() -> dict[str, dict[str, TypedField]]:
    """Every built-in type with its fields."""
    text = (resources.files("bayplan.backends.embedded") / "data" / "types.json").read_text(encoding="utf-8")
    return {
        name: {key: field(notation) for key, notation in fields.items()}
        for name, fields in json.loads(text).items()
    }


@cache
def reader(type_: str) -> Reader:
    """The function that reads a value of a type; it returns a fresh value and notes unknown fields."""
    if type_[0] == "[":
        return _list_reader(type_)
    if type_[0] == "{":
        return _map_reader(type_)
    if type_ in types():
        return _object_reader(type_)
    return _SCALARS[type_]


def spelled(path: Path) -> str:
    """A path as upstream writes it: spec.containers[0].name."""
    parts: list[str] = []
    while path:
        path, key = path
        parts.append(f"[{key}]" if isinstance(key, int) else f".{key}")
    return "".join(reversed(parts)).removeprefix(".")


def _object_reader(name: str) -> Reader:
    table: dict[str, tuple[Reader | None, bool]] = {}  # None: a string; most are
    zeros: list[tuple[str, Any, Reader | None]] = []  # key, and what it is when absent
    go_name = name.rpartition(".")[2]

    def fill() -> None:
        for key, one in types()[name].items():
            table[key] = (None if one.type == "string" else reader(one.type), one.mark == "")
            if one.mark == "!":
                zeros.append((key, _ZEROS.get(one.type), reader(one.type) if one.type in types() else None))

    def read(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise _mismatch(value, path, f"v1.{go_name}", "")
        if not table:
            fill()
        found = {}
        for key, item in value.items():
            entry = table.get(key)
            if entry is None:
                unknown.append(spelled((path, key)))
                continue
            inner, drop = entry
            if inner is None:
                if type(item) is not str and item is not None:
                    raise _mismatch(item, (path, key), "string", "").inside(go_name)
            elif item is not None:
                try:
                    item = inner(item, (path, key), unknown)
                except _Mismatch as mismatch:
                    raise mismatch.inside(go_name) from None
            if item or not (drop or item is None):
                found[key] = item
        for key, zero, struct in zeros:
            if key not in found:
                found[key] = zero if struct is None else struct({}, (), [])
        return found

    return read


def _list_reader(type_: str) -> Reader:
    item_type = type_[1:-1]

    def read(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not list:
            raise _mismatch(value, path, go_type(type_), "")
        inner = reader(item_type)
        return [inner(item, (path, place), unknown) for place, item in enumerate(value)]

    return read


def _map_reader(type_: str) -> Reader:
    item_type = type_[1:-1]

    def read(value: Any, path: Path, unknown: list[str]) -> Any:
        if type(value) is not dict:
            raise _mismatch(value, path, go_type(type_), "")
        inner = reader(item_type)
        zero = {"string": "", "bytes": "", "quantity": "0"}.get(item_type)
        return {key: zero if item is None else inner(item, path, unknown) for key, item in value.items()}

    return read


_ZEROS = {"string": "", "bool": False, "int32": 0, "int64": 0, "quantity": "0", "intOrString": 0}


def _read_string(value: Any, path: Path, _: list[str]) -> Any:
    if type(value) is not str:
        raise _mismatch(value, path, "string", "")
    return value


def _read_bool(value: Any, path: Path, _: list[str]) -> Any:
    if type(value) is not bool:
        raise _mismatch(value, path, "bool", "")
    return value


def _read_number(value: Any, path: Path, _: list[str]) -> Any:
    if type(value) not in (int, float):
        raise _mismatch(value, path, "float64", "")
    return value


def _int_reader(type_: str) -> Reader:
    bound = 1 << _INT_BITS[type_]

    def read(value: Any, path: Path, _: list[str]) -> Any:
        if type(value) is not int or not -bound <= value < bound:
            shown = f" {value}" if type(value) in (int, float) else ""
            raise _mismatch(value, path, type_, shown)
        return value

    return read


def _read_any(value: Any, _: Path, __: list[str]) -> Any:
    return copied(value)


def _read_int_or_string(value: Any, path: Path, _: list[str]) -> Any:
    if type(value) not in (int, str):
        raise _mismatch(value, path, "intstr.IntOrString", "")
    return value


def _converted(convert: Callable[[Any], str], wanted: tuple[type, ...], go_name: str) -> Reader:
    def read(value: Any, path: Path, _: list[str]) -> Any:
        if type(value) not in wanted:
            raise _mismatch(value, path, go_name, "")
        try:
            return convert(value)
        except ValueError as error:
            raise UnreadableBody(str(error)) from None

    return read


_SCALARS: dict[str, Reader] = {
    "any": _read_any,
    "string": _read_string,
    "bytes": _read_string,
    "bool": _read_bool,
    "number": _read_number,
    "int32": _int_reader("int32"),
    "int64": _int_reader("int64"),
    "intOrString": _read_int_or_string,
    "quantity": _converted(scalars.quantity, (str, int, float), "resource.Quantity"),
    "time": _converted(scalars.time, (str,), "string"),
    "microtime": _converted(scalars.microtime, (str,), "string"),
}


def copied(value: Any) -> Any:
    """A value with fresh lists and dicts all the way down."""
    if type(value) is dict:  # most values inside are texts
        return {key: item if type(item) is str else copied(item) for key, item in value.items()}
    if type(value) is list:
        return [item if type(item) is str else copied(item) for item in value]
    return value


def go_type(type_: str) -> str:
    """The name of a type in upstream's error messages."""
    if type_[0] == "[":
        return f"[]{go_type(type_[1:-1])}"
    if type_[0] == "{":
        return f"map[string]{go_type(type_[1:-1])}"
    known = {"quantity": "resource.Quantity", "bytes": "[]uint8", "number": "float64", "time": "v1.Time"}
    if type_ in types():
        return f"v1.{type_.rpartition('.')[2]}"
    return known.get(type_, type_)


class _Mismatch(UnreadableBody):
    """A value of another type than its field; the innermost object on the way gives the message its name."""

    def __init__(self, message: str, path: Path, type_: str, named: bool = False) -> None:
        self.told, self.path, self.type, self.named = message, path, type_, named
        super().__init__(message)

    def inside(self, name: str) -> _Mismatch:
        if self.named:
            return self
        where = ".".join(str(key) for key in _keys(self.path) if not isinstance(key, int))
        message = (
            f"json: cannot unmarshal {self.told} into Go struct field {name}.{where} of type {self.type}"
        )
        return _Mismatch(message, self.path, self.type, named=True)


def _keys(path: Path) -> list[Any]:
    keys: list[Any] = []
    while path:
        path, key = path
        keys.append(key)
    return keys[::-1]


def _mismatch(value: Any, path: Path, type_: str, shown: str) -> _Mismatch:
    return _Mismatch(f"{_JSON_NAMES.get(type(value), 'null')}{shown}", path, type_)
