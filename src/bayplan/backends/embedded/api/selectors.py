"""Label and field selectors: from their text to a function that says whether an object matches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from bayplan.backends.embedded.api.status import bad_request

Object = dict[str, Any]
Matcher = Callable[[Mapping[str, Any]], bool]

_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_KEY = rf"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?{_WORD}"
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_COMPARED = re.compile(rf"\s*({_KEY})\s*(==|!=|=|<|>)\s*({_WORD})?\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_WHOLE = re.compile(r"-?[0-9]{1,19}")
_FIELD = re.compile(r"([^=!,]+)(==|!=|=)((?:[^,\\]|\\.)*)")


def everything(_: Mapping[str, Any]) -> bool:
    """The empty selector."""
    return True


@lru_cache(maxsize=1024)
def label_matcher(text: str) -> Matcher:
    """A function of an object's labels, from text such as `a=b,c in (d,e),!f`."""
    if not text.strip():
        return everything
    return _all_of([_requirement(part) for part in _split(text)])


def selector_matcher(selector: Mapping[str, Any]) -> Matcher:
    """A function of labels, from a LabelSelector object; an empty selector matches everything."""
    tests = [_compared(key, "=", value) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], frozenset(expression.get("values") or ())
        operator = expression["operator"]
        if operator in ("In", "NotIn"):
            tests.append(_member(key, operator == "In", values))
        else:
            tests.append(_presence(key, operator == "Exists"))
    return _all_of(tests)


def optional_matcher(selector: Mapping[str, Any] | None) -> Matcher:
    """The same for a LabelSelector that may be missing; then nothing is selected."""
    return (lambda labels: False) if selector is None else selector_matcher(selector)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, Any]) -> bool:
    """Whether a LabelSelector object selects these labels; without a selector, nothing is selected."""
    return optional_matcher(selector)(labels)


def field_requirements(text: str) -> list[tuple[str, bool, str]]:
    """`a=b,c!=d` as (field, whether it must be equal, value)."""
    found = []
    for part in re.split(r"(?<!\\),", text):
        if not part:
            continue
        match = _FIELD.fullmatch(part)
        if match is None:
            raise bad_request(f"invalid field selector: {text}; write it as field=value or field!=value")
        field, operator, value = match.groups()
        found.append((field, operator != "!=", re.sub(r"\\(.)", r"\1", value)))
    return found


def field_matcher(text: str, known: Sequence[str], custom: bool = False) -> Matcher:
    """A function of an object, from text such as `spec.nodeName=n1`; only known fields can be named."""
    requirements = field_requirements(text)
    for field, _, _ in requirements:
        if field not in known:
            raise bad_request(unknown_field(field, known, custom))
    if not requirements:
        return everything
    paths = [(tuple(field.split(".")), equal, value) for field, equal, value in requirements]

    def matches(item: Mapping[str, Any]) -> bool:
        return all((field_text(item, path) == value) is equal for path, equal, value in paths)

    return matches


def unknown_field(field: str, known: Sequence[str], custom: bool) -> str:
    """The message for a field that selectors do not support."""
    if len(known) > 2 or custom:
        return f"field label not supported: {field}"
    return f'"{field}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def field_text(item: Mapping[str, Any], path: Sequence[str]) -> str:
    """The text that a field selector compares; a field that is absent reads as empty, or as false or 0."""
    found: Any = item
    for part in path:
        found = found.get(part) if isinstance(found, Mapping) else None
    if found is None:
        return _ABSENT.get(path[-1], "")
    if isinstance(found, bool):
        return "true" if found else "false"
    return str(found)


_ABSENT = {"unschedulable": "false", "hostNetwork": "false", "succeeded": "0"}


def _split(text: str) -> list[str]:
    """The parts between commas that stand outside parentheses."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


def _requirement(part: str) -> Matcher:
    if match := _SET.fullmatch(part):
        key, operator, values = match.groups()
        return _member(key, operator == "in", frozenset(value.strip() for value in values.split(",")))
    if match := _COMPARED.fullmatch(part):
        return _compared(match[1], match[2], match[3] or "")
    if match := _EXISTS.fullmatch(part):
        return _presence(match[2], not match[1])
    raise bad_request(
        f"unable to parse requirement: {part.strip()!r} is none of key, !key, key=value, key!=value, "
        "key in (a,b), key notin (a,b)"
    )


def _member(key: str, wanted: bool, values: frozenset[str]) -> Matcher:
    if wanted:
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _presence(key: str, wanted: bool) -> Matcher:
    return lambda labels: (key in labels) is wanted


def _compared(key: str, operator: str, value: str) -> Matcher:
    if operator in ("=", "=="):
        return lambda labels: labels.get(key) == value
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    if not _WHOLE.fullmatch(value):
        raise bad_request(f"{key} {operator} {value}: only whole numbers can be compared by size")
    sign, bound = (1 if operator == ">" else -1), int(value)
    return lambda labels: (
        bool(_WHOLE.fullmatch(labels.get(key, ""))) and sign * (int(labels[key]) - bound) > 0
    )


def _all_of(tests: Sequence[Matcher]) -> Matcher:
    if not tests:
        return everything
    if len(tests) == 1:
        return tests[0]
    return lambda item: all(test(item) for test in tests)
