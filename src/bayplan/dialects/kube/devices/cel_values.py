"""Quantities and semantic versions in CEL, and their functions.

The CEL library has no types of our own: a quantity or version is a list of its sort and its canonical text.
Equal values are equal lists, and lists cannot be ordered by `<`, as quantities cannot in Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from bayplan.dialects.kube.fields.quantity import parse_quantity

Value = list[str]
INT64 = range(-(2**63), 2**63)
_QUANTITY, _VERSION = "quantity", "version"
_NUMBER = r"(0|[1-9]\d*)"
_SEMVER = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
_TOLERANT = re.compile(r"\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?([-+].*)?", re.ASCII)
_LENGTH_MAX = 256


class Version(NamedTuple):
    """A semantic version without build metadata, which does not count."""

    major: int
    minor: int
    patch: int
    pre: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[object, ...]:
        """Its place in the order of versions: a release comes after its candidates."""
        parts = tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in self.pre)
        return self.major, self.minor, self.patch, not self.pre, parts


class ValueProblem(ValueError):
    """A value that a function cannot take."""


def quantity_value(number: Fraction) -> Value:
    """A quantity as CEL carries it."""
    return [_QUANTITY, f"{number.numerator}/{number.denominator}"]


def version_value(version: Version) -> Value:
    """A version as CEL carries it."""
    pre = f"-{'.'.join(version.pre)}" if version.pre else ""
    return [_VERSION, f"{version.major}.{version.minor}.{version.patch}{pre}"]


def parse_version(text: str) -> Version:
    """A semantic version, strictly."""
    match = _SEMVER.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    pre = tuple(match[4].split(".")) if match is not None and match[4] else ()
    if match is None or any(not one or (one.isdigit() and one != "0" and one[0] == "0") for one in pre):
        raise ValueProblem(f"{text[:_LENGTH_MAX]!r} is no semantic version")
    return Version(int(match[1]), int(match[2]), int(match[3]), pre)


def normalized_version(text: str) -> Version:
    """A version with leading zeros, a leading v, or without minor and patch."""
    match = _TOLERANT.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None or (match[4] and match[3] is None):
        raise ValueProblem(f"{text[:_LENGTH_MAX]!r} is no semantic version")
    numbers = ".".join(str(int(match[part] or 0)) for part in (1, 2, 3))
    return parse_version(f"{numbers}{match[4] or ''}")


def _quantity(text: str) -> Value:
    return quantity_value(parse_quantity(text))


def _is_quantity(text: str) -> bool:
    return _succeeds(parse_quantity, text)


def _semver(text: str, normalize: bool = False) -> Value:
    return version_value(normalized_version(text) if normalize else parse_version(text))


def _is_semver(text: str, normalize: bool = False) -> bool:
    return _succeeds(normalized_version if normalize else parse_version, text)


def _succeeds(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


def _number(value: Value) -> Fraction:
    return Fraction(_text(value, _QUANTITY))


def _version(value: Value) -> Version:
    return parse_version(_text(value, _VERSION))


def _text(value: Value, sort: str) -> str:
    if len(value) != 2 or value[0] != sort:
        raise ValueProblem("no such overload")
    return value[1]


def _compare(left: Value, right: Value) -> int:
    if left[:1] == [_QUANTITY]:
        one, other = _number(left), _number(right)
        return (one > other) - (one < other)
    earlier, later = _version(left).rank, _version(right).rank
    return (earlier > later) - (earlier < later)


def _as_integer(value: Value) -> int:
    number = _number(value)
    if number.denominator != 1 or number.numerator not in INT64:
        raise ValueProblem("cannot convert value to integer")
    return number.numerator


def _is_integer(value: Value) -> bool:
    number = _number(value)
    return number.denominator == 1 and number.numerator in INT64


def _sign(value: Value) -> int:
    number = _number(value)
    return (number > 0) - (number < 0)


def _add(left: Value, right: Value | int) -> Value:
    return quantity_value(_number(left) + (right if isinstance(right, int) else _number(right)))


def _sub(left: Value, right: Value | int) -> Value:
    return quantity_value(_number(left) - (right if isinstance(right, int) else _number(right)))


def _contains(whole: list[Any], part: list[Any]) -> bool:
    return all(one in whole for one in part)


def _total(numbers: list[Any]) -> Any:
    return sum(numbers)


def declarations(cel: Any) -> list[Any]:
    """The functions, as the library declares them."""
    kind = cel.Type
    text, flag, whole, real = kind.STRING, kind.BOOL, kind.INT, kind.DOUBLE
    value, items = kind.List(kind.STRING), kind.List(kind.DYN)
    table: list[tuple[str, Any, list[Any], bool, Callable[..., Any]]] = [
        ("quantity", value, [text], False, _quantity),
        ("isQuantity", flag, [text], False, _is_quantity),
        ("semver", value, [text], False, _semver),
        ("semver", value, [text, flag], False, _semver),
        ("isSemver", flag, [text], False, _is_semver),
        ("isSemver", flag, [text, flag], False, _is_semver),
        ("compareTo", whole, [value, value], True, _compare),
        ("isGreaterThan", flag, [value, value], True, lambda one, other: _compare(one, other) > 0),
        ("isLessThan", flag, [value, value], True, lambda one, other: _compare(one, other) < 0),
        ("sign", whole, [value], False, _sign),
        ("asInteger", whole, [value], True, _as_integer),
        ("isInteger", flag, [value], True, _is_integer),
        ("asApproximateFloat", real, [value], True, lambda one: float(_number(one))),
        ("add", value, [value, value], True, _add),
        ("add", value, [value, whole], True, _add),
        ("sub", value, [value, value], True, _sub),
        ("sub", value, [value, whole], True, _sub),
        ("major", whole, [value], True, lambda one: _version(one).major),
        ("minor", whole, [value], True, lambda one: _version(one).minor),
        ("patch", whole, [value], True, lambda one: _version(one).patch),
        ("sets.contains", flag, [items, items], False, _contains),
        ("sets.equivalent", flag, [items, items], False, lambda a, b: _contains(a, b) and _contains(b, a)),
        ("sets.intersects", flag, [items, items], False, lambda a, b: any(_contains(a, [one]) for one in b)),
        ("sum", kind.DYN, [items], True, _total),
    ]
    overloads: dict[str, list[Any]] = {}
    for name, result, parameters, member, function in table:
        known = overloads.setdefault(name, [])
        known.append(cel.Overload(f"{name}_{len(known)}", result, parameters, member, function))
    return [cel.FunctionDecl(name, found) for name, found in overloads.items()]
