"""Objects as tables, which is how kubectl asks for them: columns, and a row for each object."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.tables import durations
from bayplan.backends.embedded.tables.cells import CELLS

Object = dict[str, Any]

_COLUMN = re.compile(r"([^:*=]+?)(?::(\w+))?(\*)?(?: = (\S+))?")
_STEP = re.compile(
    r"\.([A-Za-z0-9_-]+)|\['((?:[^'\\]|\\.)+)'\]|\.?\[(\d+|\*)\]"  # .name, ['name'], [0] or [*]
    r"|\[\?\(@\.([\w.]+)==['\"]([^'\"]*)['\"]\)\]"  # [?(@.field=="value")]
)
_DATA = resources.files("bayplan.backends.embedded") / "data"


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its heading, and how its cells are filled."""

    name: str
    type: str
    priority: int
    cell: Callable[[Object, float], Any]
    format: str = ""

    @property
    def definition(self) -> Object:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": "",
            "priority": self.priority,
        }


def table(resource: Resource, items: Sequence[Object], now: float, include: str, head: bool) -> Object:
    """A Table of objects; `include` says what of each object is sent along: None, Metadata or Object."""
    columns = columns_of(resource)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {},
        "columnDefinitions": [column.definition for column in columns] if head else None,
        "rows": [_row(columns, item, now, include) for item in items],
    }


def columns_of(resource: Resource) -> tuple[Column, ...]:
    """The columns of a kind."""
    if resource.definition is not None:
        columns: tuple[Column, ...] = resource.definition.table_columns
        return columns
    return _builtin(resource.storage)


def custom_columns(columns: Sequence[Any]) -> tuple[Column, ...]:
    """The columns that a CustomResourceDefinition asks for."""
    name = Column("Name", "string", 0, _name, "name")
    if not columns:
        return (name, Column("Age", "date", 0, _age))
    return (name, *(_custom(column) for column in columns))


def find(item: Any, path: str) -> list[Any]:
    """The values at a simple JSON path: .a.b, .a['x.y'], .a[0], .a[*].b, .a[?(@.type=="x")].b."""
    found = [item]
    place = 0
    while place < len(path):
        match = _STEP.match(path, place)
        if match is None:
            return []
        place = match.end()
        found = [value for one in found for value in _step(one, match)]
    return found


def _step(item: Any, match: re.Match[str]) -> list[Any]:
    name, quoted, index, field, wanted = match.groups()
    key = name or (quoted and quoted.replace("\\", ""))
    if key:
        return [item[key]] if isinstance(item, dict) and key in item else []
    if not isinstance(item, list):
        return []
    if index == "*":
        return item
    if index:
        return item[int(index) : int(index) + 1]
    return [one for one in item if "".join(map(str, find(one, f".{field}"))) == wanted]


def _row(columns: Sequence[Column], item: Object, now: float, include: str) -> Object:
    row: Object = {"cells": [column.cell(item, now) for column in columns]}
    if include == "Object":
        row["object"] = item
    else:
        row["object"] = None if include == "None" else partial(item)
    return row


def partial(item: Object) -> Object:
    """Only the metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": item["metadata"]}


@cache
def _builtin(storage: str) -> tuple[Column, ...]:
    text = (_DATA / "columns.json").read_text(encoding="utf-8")
    return tuple(_column(notation) for notation in json.loads(text).get(storage, ["Name", "Age"]))


def _column(notation: str) -> Column:
    match = _COLUMN.fullmatch(notation)
    assert match is not None, notation
    name, type_, wide, how = match.groups()
    known = {"Name": _name, "Age": _age, "Created At": _created}
    if how is None:
        cell: Callable[[Object, float], Any] = known[name]
    elif how[0] == ".":
        cell = _path(how, "")
    else:
        cell = CELLS[how]
    return Column(name, type_ or "string", int(bool(wide)), cell, "name" if name == "Name" else "")


def _custom(column: Any) -> Column:
    cell = _path(column["jsonPath"], None)
    if column["type"] == "date":
        cell = _date(column["jsonPath"])
    return Column(column["name"], column["type"], column.get("priority", 0), cell, column.get("format", ""))


def _path(path: str, absent: Any) -> Callable[[Object, float], Any]:
    def cell(item: Object, _: float) -> Any:
        found = [value for value in find(item, path) if value is not None]
        if not found:
            return absent
        value = found[0] if len(found) == 1 else ",".join(str(one) for one in found)
        return json.dumps(value, separators=(",", ":")) if isinstance(value, dict | list) else value

    return cell


def _date(path: str) -> Callable[[Object, float], Any]:
    def cell(item: Object, now: float) -> Any:
        found = find(item, path)
        return durations.since(found[0], now) if found and found[0] else None

    return cell


def _name(item: Object, _: float) -> str:
    return str(item["metadata"]["name"])


def _age(item: Object, now: float) -> str:
    return durations.since(item["metadata"].get("creationTimestamp"), now)


def _created(item: Object, _: float) -> str:
    return str(item["metadata"].get("creationTimestamp", ""))
