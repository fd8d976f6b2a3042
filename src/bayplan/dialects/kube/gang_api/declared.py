"""Declarative validation: a table of rules for each field, as upstream declares them on its types.

Unchanged values are not checked again in updates. The value of a field is only checked if its presence is
valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.kube.fields.metadata_rules import IMMUTABLE
from bayplan.dialects.kube.fields.reader import FieldError, FieldErrorType, join
from bayplan.dialects.kube.gang_api.gates import Gates

Object = Mapping[str, Any]

NEVER_SET = "field cannot be set once created"
NEVER_CLEARED = "field cannot be cleared once set"


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule for one field of a structure."""

    key: str
    below: Callable[[], Structure] | None = None  # the structure of the field, or of each list item
    inline: bool = False  # a structure that is never missing, only empty
    listed: bool = False
    name_key: str = ""  # the key that identifies list items
    pointer: bool = False  # an empty string or zero counts as a value
    gate: str = ""  # without this gate the field is forbidden
    dropped: str = ""  # without this gate the field is dropped
    required: bool = False
    immutable: bool = False
    immutable_if_served: bool = False  # immutable if its gate is enabled; otherwise it is forbidden
    whole: bool = False  # items may not be added or removed
    kept: tuple[str, str] = ("", "")  # the value may change, but not be set or cleared: the two errors
    max_items: int = 0
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()
    problems: Callable[[str], Sequence[str]] | None = None  # errors of a string value


@dataclass(frozen=True, slots=True)
class Structure:
    """A structure: its fields in the order in which they are written."""

    rules: tuple[Rule, ...]
    one_of: tuple[str, ...] = ()  # exactly one of these is set
    nulls: tuple[str, ...] = ()  # shown as null if missing


@dataclass(frozen=True, slots=True)
class CheckLocation:
    """The path, the feature gates and the operation of a check."""

    path: str
    gates: Gates
    updating: bool

    def at(self, key: str) -> CheckLocation:
        return CheckLocation(join(self.path, key), self.gates, self.updating)

    def item(self, place: int) -> CheckLocation:
        return CheckLocation(f"{self.path}[{place}]", self.gates, self.updating)

    def error(self, fault: FieldErrorType, why: str = "", value: object = None) -> FieldError:
        return FieldError(self.path, value, why, fault)


def check(
    structure: Structure, new: Object, old: Object | None, location: CheckLocation
) -> Iterator[FieldError]:
    """All errors of a structure, or of its update."""
    if structure.one_of:
        yield from _check_union(structure, new, old, location)
    for rule in structure.rules:
        value = value_of(rule, new)
        before = None if old is None else value_of(rule, old)
        if old is None or value != before:
            yield from _check_field(rule, value, before, location.at(rule.key))


def value_of(rule: Rule, item: Object) -> Any:
    """The value of a field; None if it counts as missing."""
    value = item.get(rule.key)
    if rule.inline:
        return value or {}
    return value if value or rule.pointer or isinstance(value, dict) else None


def _check_union(
    structure: Structure, new: Object, old: Object | None, location: CheckLocation
) -> Iterator[FieldError]:
    rules = [rule for rule in structure.rules if rule.key in structure.one_of]
    set_fields = [rule.key for rule in rules if value_of(rule, new) is not None]
    if old is not None and set_fields == [rule.key for rule in rules if value_of(rule, old) is not None]:
        return
    names = ", ".join(f"`{key}`" for key in structure.one_of)
    if not set_fields:
        yield location.error(FieldErrorType.INVALID, f"must specify one of: {names}", "")
    elif len(set_fields) > 1:
        yield location.error(
            FieldErrorType.INVALID, f"must specify exactly one of: {names}", f"{{{', '.join(set_fields)}}}"
        )


def _check_field(rule: Rule, value: Any, before: Any, location: CheckLocation) -> Iterator[FieldError]:
    presence = list(_check_presence(rule, value, before, location))
    yield from presence
    if presence or value is None:
        return
    if rule.listed:
        yield from _check_items(rule, value, before, location)
    elif rule.below is not None:
        yield from check(rule.below(), value, before, location)
    else:
        yield from _check_scalar(rule, value, location)


def _check_presence(rule: Rule, value: Any, before: Any, location: CheckLocation) -> Iterator[FieldError]:
    served = not rule.gate or rule.gate in location.gates
    if not served and value is not None:
        yield location.error(FieldErrorType.FORBIDDEN)
    if location.updating and value != before and (rule.immutable or (rule.immutable_if_served and served)):
        yield location.error(FieldErrorType.INVALID, IMMUTABLE)
    if rule.max_items and len(value or ()) > rule.max_items:
        items = "item" if rule.max_items == 1 else "items"
        yield location.error(
            FieldErrorType.TOO_MANY, f"must have at most {rule.max_items} {items}", len(value)
        )
    if rule.required and served and value is None:
        yield location.error(FieldErrorType.REQUIRED)
    set_error, cleared_error = rule.kept
    if location.updating and set_error and (value is None) != (before is None):
        yield location.error(FieldErrorType.INVALID, set_error if before is None else cleared_error)
    if location.updating and rule.whole:
        yield from _check_whole(rule, value or [], before or [], location)


def _check_whole(
    rule: Rule, items: list[Any], before: list[Any], location: CheckLocation
) -> Iterator[FieldError]:
    known = {item.get(rule.name_key, "") for item in before}
    for place, item in enumerate(items):
        if item.get(rule.name_key, "") not in known:
            yield location.item(place).error(FieldErrorType.FORBIDDEN, "item may not be added")
    still = {item.get(rule.name_key, "") for item in items}
    for item in before:
        if item.get(rule.name_key, "") not in still:
            yield location.error(FieldErrorType.FORBIDDEN, "item may not be removed")


def _check_items(rule: Rule, items: list[Any], before: Any, location: CheckLocation) -> Iterator[FieldError]:
    assert rule.below is not None
    structure = rule.below()
    known: dict[str, Object] = {}
    if rule.name_key:
        seen: set[str] = set()
        for place, item in enumerate(items):
            name = item.get(rule.name_key, "")
            if name in seen:
                yield location.item(place).error(FieldErrorType.DUPLICATE, value=_shown(structure, item))
            seen.add(name)
        for item in reversed(before or []):
            known[item.get(rule.name_key, "")] = item
    for place, item in enumerate(items):
        old = known.get(item.get(rule.name_key, "")) if rule.name_key else None
        if old is None or item != old:
            yield from check(structure, item, old, location.item(place))


def _check_scalar(rule: Rule, value: Any, location: CheckLocation) -> Iterator[FieldError]:
    if rule.problems is not None:
        for problem in rule.problems(value):
            yield location.error(FieldErrorType.INVALID, problem, value)
    if rule.minimum is not None and value < rule.minimum:
        yield location.error(
            FieldErrorType.INVALID, f"must be greater than or equal to {rule.minimum}", value
        )
    if rule.maximum is not None and value > rule.maximum:
        yield location.error(FieldErrorType.INVALID, f"must be less than or equal to {rule.maximum}", value)
    if rule.choices and value not in rule.choices:
        listed = ", ".join(f'"{choice}"' for choice in rule.choices)
        yield location.error(FieldErrorType.UNSUPPORTED, f"supported values: {listed}", value)


def _shown(structure: Structure, item: Object) -> dict[str, Any]:
    """An item as errors quote it: in the order of its fields, with null for some missing ones."""
    shown: dict[str, Any] = {}
    for rule in structure.rules:
        value = item.get(rule.key)
        if value is not None and rule.below is not None:
            below = rule.below()
            value = [_shown(below, one) for one in value] if rule.listed else _shown(below, value)
        if value is not None or rule.key in structure.nulls:
            shown[rule.key] = value
    return shown
