"""Frozen values to plain data and back; every dataclass carries its name, to tell union members apart."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from collections.abc import Set as AnySet
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from operator import attrgetter
from typing import Any, Union, get_args, get_origin, get_type_hints

MARK = "is"
_ATOMS = frozenset((str, int, float, bool, type(None)))
_TEXT = frozenset((str,))


def plain(value: object) -> Any:
    """The value as dicts, lists and scalars. Equal values give equal data."""
    kind: Any = type(value)
    return value if kind in _ATOMS else _converter(kind)(value)


@cache
def _converter(kind: Any) -> Callable[[Any], Any]:
    """What makes plain data of values of one type; found once for each type, as journals hold many values."""
    if (names := _fields(kind)) is not None:
        return _dataclass_converter(kind.__name__, names)
    if issubclass(kind, tuple | list):
        return lambda value: [one if type(one) in _ATOMS else plain(one) for one in value]
    if issubclass(kind, Mapping):
        return _plain_mapping
    if issubclass(kind, AnySet):
        return lambda value: sorted(map(plain, value), key=str)
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, Fraction):
        return str
    raise TypeError(f"a {kind.__name__} has no plain form")


def _dataclass_converter(mark: str, names: tuple[str, ...]) -> Callable[[Any], Any]:
    if len(names) < 2:  # attrgetter gives no tuple then
        return lambda value: {MARK: mark, **{name: plain(getattr(value, name)) for name in names}}
    values_of = attrgetter(*names)

    def convert(value: Any) -> Any:
        data = {MARK: mark}
        for name, one in zip(names, values_of(value), strict=True):
            data[name] = one if type(one) in _ATOMS else plain(one)
        return data

    return convert


class Unrestorable(ValueError):
    """Data that `plain` did not produce from such a value; the message says what is wrong."""


def restore(data: Any, shape: Any) -> Any:
    """The value that `plain` made the data from; `shape` is its type, a union of types, or Any.

    Raises Unrestorable, for instance if the data is of a version with other fields.
    """
    try:
        return _restored(data, shape)
    except Unrestorable:
        raise
    except RecursionError:
        raise Unrestorable("it is nested too deeply") from None
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, AssertionError) as error:
        raise Unrestorable(f"it holds an invalid value ({type(error).__name__}: {error})") from None


def _restored(data: Any, shape: Any) -> Any:
    if shape is Any or shape is object or data is None:
        return data
    origin: Any = get_origin(shape) or shape
    inner = get_args(shape)
    if origin is Union or origin is types.UnionType:
        return _restored(data, _chosen(data, inner))
    if _fields(origin) is not None:
        return _instance(data, origin)
    if not isinstance(origin, type):
        return data
    if issubclass(origin, tuple) and hasattr(origin, "_fields"):
        hints = _hints(origin)
        return origin(
            *(_restored(item, hints[name]) for item, name in zip(data, origin._fields, strict=True))
        )
    if issubclass(origin, tuple):
        each = inner[:1] * len(data) if inner[1:] == (...,) else inner
        return tuple(_restored(item, one) for item, one in zip(data, each, strict=True))
    if issubclass(origin, list | AnySet):
        return (list if origin is list else frozenset)(_restored(item, inner[0]) for item in data)
    if issubclass(origin, Mapping):
        pairs = data.items() if isinstance(data, dict) else data
        return {_restored(key, inner[0]): _restored(value, inner[1]) for key, value in pairs}
    return origin(data) if issubclass(origin, Enum | Fraction) else data


def _instance(data: Any, kind: Any) -> Any:
    if not isinstance(data, dict):
        raise Unrestorable(f"a {kind.__name__} is needed where there is {str(data)[:40]!r}")
    hints = _hints(kind)
    if unknown := sorted(data.keys() - hints.keys() - {MARK}):
        raise Unrestorable(f"a {kind.__name__} has no field {unknown[0]!r}")
    if missing := sorted(_needed(kind) - data.keys()):
        raise Unrestorable(f"a {kind.__name__} lacks the field {missing[0]!r}")
    return kind(**{name: _restored(value, hints[name]) for name, value in data.items() if name != MARK})


def _plain_mapping(value: Mapping[Any, Any]) -> Any:
    if _TEXT.issuperset(map(type, value)):
        if _ATOMS.issuperset(map(type, value.values())):
            return dict(value)
        return {key: plain(item) for key, item in value.items()}
    return sorted(([plain(key), plain(item)] for key, item in value.items()), key=str)


def _chosen(data: Any, shapes: tuple[Any, ...]) -> Any:
    """The union member that the data belongs to: by its mark, or else by its JSON type."""
    if isinstance(data, dict) and MARK in data:
        found = [shape for shape in shapes if getattr(shape, "__name__", "") == data[MARK]]
        if not found:
            raise Unrestorable(f"{str(data[MARK])[:40]!r} is not known here")
        return found[0]
    unmarked = [shape for shape in shapes if not is_dataclass(shape) and shape is not type(None)]
    exact = [shape for shape in unmarked if shape is type(data)]
    if not unmarked:
        raise Unrestorable(f"{str(data)[:40]!r} has no type mark")
    return (exact or unmarked)[0]


@cache
def _fields(kind: Any) -> tuple[str, ...] | None:
    """The fields that define a value; derived fields are left out."""
    return tuple(field.name for field in fields(kind) if field.init) if is_dataclass(kind) else None


@cache
def _needed(kind: Any) -> frozenset[str]:
    """The fields without a default."""
    data = (one for one in fields(kind) if one.init)
    return frozenset(one.name for one in data if one.default is MISSING and one.default_factory is MISSING)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)
