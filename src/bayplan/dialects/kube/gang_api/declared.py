"""Checks of an object by a table of what each field must satisfy, as upstream declares it on its types.

What did not change in an update is not looked at again. Of one field all that concerns its being there is
told; what stands in it only if that is fine.
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
    """What holds for one field of a structure."""

    key: str
    below: Callable[[], Structure] | None = None  # what stands here, or in each item if this is a list
    inline: bool = False  # a structure that is always there, if only an empty one
    listed: bool = False
    name_key: str = ""  # by which the items of a list are told apart
    pointer: bool = False  # an empty text or a zero is a value like any other
    gate: str = ""  # without it the field is forbidden
    dropped: str = ""  # without this gate the field is only left out
    required: bool = False
    immutable: bool = False
    immutable_if_served: bool = False  # with its gate; without, a change is forbidden anyhow
    whole: bool = False  # items are neither added nor removed
    kept: tuple[str, str] = ("", "")  # it may change, not come (why) and not go (why)
    most: int = 0  # items
    least: int | None = None
    highest: int | None = None
    choices: tuple[str, ...] = ()
    problems: Callable[[str], Sequence[str]] | None = None  # with the form of a text


@dataclass(frozen=True, slots=True)
class Structure:
    """A structure: its fields in the order in which they are written."""

    rules: tuple[Rule, ...]
    one_of: tuple[str, ...] = ()  # of these exactly one is there
    nulls: tuple[str, ...] = ()  # shown as null where they are absent


@dataclass(frozen=True, slots=True)
class CheckLocation:
    """Where in which check we are."""

    path: str
    gates: Gates
    updating: bool

    def at(self, key: str) -> CheckLocation:
        return CheckLocation(join(self.path, key), self.gates, self.updating)

    def item(self, place: int) -> CheckLocation:
        return CheckLocation(f"{self.path}[{place}]", self.gates, self.updating)

    def error(self, fault: FieldErrorType, why: str = "", value: object = None) -> FieldError:
        return FieldError(self.path, value, why, fault)


def check(shape: Structure, new: Object, old: Object | None, site: CheckLocation) -> Iterator[FieldError]:
    """Everything wrong with a structure, or with the change of it."""
    if shape.one_of:
        yield from _check_union(shape, new, old, site)
    for rule in shape.rules:
        value = found(rule, new)
        before = None if old is None else found(rule, old)
        if old is None or value != before:
            yield from _check_field(rule, value, before, site.at(rule.key))


def found(rule: Rule, item: Object) -> Any:
    """What stands in a field; None where that counts as nothing."""
    value = item.get(rule.key)
    if rule.inline:
        return value or {}
    return value if value or rule.pointer or isinstance(value, dict) else None


def _check_union(
    shape: Structure, new: Object, old: Object | None, site: CheckLocation
) -> Iterator[FieldError]:
    rules = [rule for rule in shape.rules if rule.key in shape.one_of]
    given = [rule.key for rule in rules if found(rule, new) is not None]
    if old is not None and given == [rule.key for rule in rules if found(rule, old) is not None]:
        return
    names = ", ".join(f"`{key}`" for key in shape.one_of)
    if not given:
        yield site.error(FieldErrorType.INVALID, f"must specify one of: {names}", "")
    elif len(given) > 1:
        yield site.error(
            FieldErrorType.INVALID, f"must specify exactly one of: {names}", f"{{{', '.join(given)}}}"
        )


def _check_field(rule: Rule, value: Any, before: Any, site: CheckLocation) -> Iterator[FieldError]:
    presence = list(_check_presence(rule, value, before, site))
    yield from presence
    if presence or value is None:
        return
    if rule.listed:
        yield from _check_items(rule, value, before, site)
    elif rule.below is not None:
        yield from check(rule.below(), value, before, site)
    else:
        yield from _check_scalar(rule, value, site)


def _check_presence(rule: Rule, value: Any, before: Any, site: CheckLocation) -> Iterator[FieldError]:
    served = not rule.gate or rule.gate in site.gates
    if not served and value is not None:
        yield site.error(FieldErrorType.FORBIDDEN)
    if site.updating and value != before and (rule.immutable or (rule.immutable_if_served and served)):
        yield site.error(FieldErrorType.INVALID, IMMUTABLE)
    if rule.most and len(value or ()) > rule.most:
        items = "item" if rule.most == 1 else "items"
        yield site.error(FieldErrorType.TOO_MANY, f"must have at most {rule.most} {items}", len(value))
    if rule.required and served and value is None:
        yield site.error(FieldErrorType.REQUIRED)
    set_why, cleared_why = rule.kept
    if site.updating and set_why and (value is None) != (before is None):
        yield site.error(FieldErrorType.INVALID, set_why if before is None else cleared_why)
    if site.updating and rule.whole:
        yield from _check_whole(rule, value or [], before or [], site)


def _check_whole(
    rule: Rule, items: list[Any], before: list[Any], site: CheckLocation
) -> Iterator[FieldError]:
    known = {item.get(rule.name_key, "") for item in before}
    for place, item in enumerate(items):
        if item.get(rule.name_key, "") not in known:
            yield site.item(place).error(FieldErrorType.FORBIDDEN, "item may not be added")
    still = {item.get(rule.name_key, "") for item in items}
    for item in before:
        if item.get(rule.name_key, "") not in still:
            yield site.error(FieldErrorType.FORBIDDEN, "item may not be removed")


def _check_items(rule: Rule, items: list[Any], before: Any, site: CheckLocation) -> Iterator[FieldError]:
    assert rule.below is not None
    shape = rule.below()
    known: dict[str, Object] = {}
    if rule.name_key:
        seen: set[str] = set()
        for place, item in enumerate(items):
            name = item.get(rule.name_key, "")
            if name in seen:
                yield site.item(place).error(FieldErrorType.DUPLICATE, value=_shown(shape, item))
            seen.add(name)
        for item in reversed(before or []):
            known[item.get(rule.name_key, "")] = item
    for place, item in enumerate(items):
        old = known.get(item.get(rule.name_key, "")) if rule.name_key else None
        if old is None or item != old:
            yield from check(shape, item, old, site.item(place))


def _check_scalar(rule: Rule, value: Any, site: CheckLocation) -> Iterator[FieldError]:
    if rule.problems is not None:
        for problem in rule.problems(value):
            yield site.error(FieldErrorType.INVALID, problem, value)
    if rule.least is not None and value < rule.least:
        yield site.error(FieldErrorType.INVALID, f"must be greater than or equal to {rule.least}", value)
    if rule.highest is not None and value > rule.highest:
        yield site.error(FieldErrorType.INVALID, f"must be less than or equal to {rule.highest}", value)
    if rule.choices and value not in rule.choices:
        listed = ", ".join(f'"{choice}"' for choice in rule.choices)
        yield site.error(FieldErrorType.UNSUPPORTED, f"supported values: {listed}", value)


def _shown(shape: Structure, item: Object) -> dict[str, Any]:
    """An item as it is quoted: in the order of its fields, with null where one is always written."""
    shown: dict[str, Any] = {}
    for rule in shape.rules:
        value = item.get(rule.key)
        if value is not None and rule.below is not None:
            below = rule.below()
            value = [_shown(below, one) for one in value] if rule.listed else _shown(below, value)
        if value is not None or rule.key in shape.nulls:
            shown[rule.key] = value
    return shown
