"""The CEL rules in custom resources' schemas (extra `cel`); without the library they are not checked."""

from __future__ import annotations

import importlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache, reduce
from typing import Any

import msgspec

from bayplan.backends.embedded.api.decoding import Path, spelled
from bayplan.backends.embedded.api.status import FieldProblem
from bayplan.backends.embedded.schema.cel_data import Mentioned, joined, mentioned, part

Schema = Mapping[str, Any]

_LOG = logging.getLogger(__name__)
_WORDS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}
_TYPE_NAMES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}
_OLD = re.compile(r"\boldSelf\b")
_ABSENT = object()


@dataclass(slots=True)
class _Rule:
    text: str
    message: str
    message_program: Any  # a compiled expression that makes the message, or None
    field_path: str
    reason: str
    compares: bool  # with the old value
    looks_back: bool  # it needs the old value, or its message does
    optional_old: bool
    program: Any
    first_program: Any  # for a value that has no old one
    mentions: Mentioned = None


@dataclass(frozen=True, slots=True)
class _All:
    """All rules at one place of a schema in one expression."""

    texts: frozenset[str]
    mentions: Mentioned
    program: Any


@dataclass(slots=True)
class _Node:
    """The rules at one place of a schema, and below."""

    rules: list[_Rule] = field(default_factory=list)
    properties: dict[str, _Node] = field(default_factory=dict)
    items: _Node | None = None
    values: _Node | None = None
    keys: tuple[str, ...] = ()  # that tell the items of a list apart
    compares: bool = False  # some rule here or below looks at the old value
    together: tuple[_All | None, _All | None] = (None, None)  # all rules for new values; for changed ones


class SchemaRules:
    """The compiled rules of one schema."""

    def __init__(self, root: _Node) -> None:
        self._root = root

    def check(self, item: Any, old: Any | None) -> list[FieldProblem]:
        """Every violated rule; unchanged values are not checked in an update."""
        return list(_check(self._root, item, _ABSENT if old is None else old, ()))


def has_rules(schema: Schema) -> bool:
    """Whether a schema may have rules: they are compiled only then."""
    return '"x-kubernetes-validations"' in repr(schema).replace("'", '"')


def compiled(schema: Schema) -> SchemaRules | None:
    """The rules of a schema; None without rules or without the CEL library."""
    if not has_rules(schema):
        return None
    environment = _environment()
    if environment is None:
        return None
    root = _node(schema, environment)
    return SchemaRules(root) if root is not None else None


def available() -> bool:
    """Whether rules are checked."""
    return _environment() is not None


_RULE_VARIABLES = ("self", "oldSelf", "before")


def _environment() -> Any:
    return environment(_RULE_VARIABLES)


@cache
def environment(variables: tuple[str, ...]) -> Any:
    """What compiles expressions over variables of any type; None without the library."""
    library = _library()
    if library is None:
        return None
    cel, extensions = library
    return cel.NewEnv(variables=dict.fromkeys(variables, cel.Type.DYN), extensions=extensions)


@cache
def _library() -> tuple[Any, list[Any]] | None:
    try:
        cel = importlib.import_module("cel_expr_python.cel")
        optional = importlib.import_module("cel_expr_python.ext.ext_optional")
        strings = importlib.import_module("cel_expr_python.ext.ext_strings")
    except ImportError:
        _LOG.warning(
            "CEL rules of custom resources are not checked, and webhooks are asked about every write, "
            "whatever their match conditions say: pip install 'bayplan[cel]'"
        )
        return None
    return cel, [optional.ExtOptional(), strings.ExtStrings()]


def _node(schema: Schema, environment: Any) -> _Node | None:
    node = _Node()
    for rule in schema.get("x-kubernetes-validations") or ():
        made = _rule(rule, environment)
        if made is not None:
            node.rules.append(made)
    for key, below in (schema.get("properties") or {}).items():
        found = _node(below, environment)
        if found is not None:
            node.properties[key] = found
    if isinstance(schema.get("items"), Mapping):
        node.items = _node(schema["items"], environment)
        node.keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    if isinstance(schema.get("additionalProperties"), Mapping):
        node.values = _node(schema["additionalProperties"], environment)
    below = [*node.properties.values(), *(one for one in (node.items, node.values) if one is not None)]
    node.compares = any(rule.compares for rule in node.rules) or any(one.compares for one in below)
    plain = [rule for rule in node.rules if not rule.optional_old]
    node.together = (
        _all([rule for rule in plain if not rule.compares], environment), _all(plain, environment)
    )  # fmt: skip
    return node if node.rules or node.properties or node.items or node.values else None


def _all(rules: list[_Rule], environment: Any) -> _All | None:
    """Several rules as one expression, evaluated first, since usually all of them hold."""
    if len(rules) < 2:
        return None
    mentions = reduce(joined, (rule.mentions for rule in rules))
    program = environment.compile(" && ".join(f"({rule.text})" for rule in rules))
    return _All(frozenset(rule.text for rule in rules), mentions, program)


def _rule(rule: Mapping[str, Any], environment: Any) -> _Rule | None:
    text, optional = rule["rule"], bool(rule.get("optionalOldSelf"))
    try:
        program = environment.compile(f"[optional.of(before)].all(oldSelf, {text})" if optional else text)
        first = environment.compile(f"[optional.none()].all(oldSelf, {text})") if optional else program
        said = rule.get("messageExpression")
        message_program = environment.compile(said) if said else None
    except Exception as error:
        _LOG.warning("a CEL rule is not checked: %s (%s)", text, str(error).partition("\n")[0])
        return None
    return _Rule(
        text,
        rule.get("message") or f"failed rule: {' '.join(text.split())}",
        message_program,
        rule.get("fieldPath", ""),
        rule.get("reason", "FieldValueInvalid"),
        bool(_OLD.search(text)),
        optional or bool(_OLD.search(f"{text} {said or ''}")),
        optional,
        program,
        first,
        mentioned(f"{text} {said or ''}"),
    )


def _check(node: _Node, value: Any, old: Any, path: Path) -> Iterator[FieldProblem]:
    unchanged = old is not _ABSENT and old == value
    if unchanged and not node.compares:
        return
    held = _held(node.together[old is not _ABSENT], value, old)
    for rule in node.rules:
        if (unchanged and not rule.compares) or rule.text in held:
            continue
        if rule.compares and old is _ABSENT and not rule.optional_old:
            continue
        problem = _broken(rule, value, old, path)
        if problem is not None:
            yield problem
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, item in value.items():
            below = node.properties.get(key) or node.values
            if below is not None and item is not None:
                yield from _check(below, item, before.get(key, _ABSENT), (path, key))
    elif isinstance(value, list) and node.items is not None:
        for place, item in enumerate(value):
            yield from _check(node.items, item, _counterpart(node, item, old), (path, place))


def _held(all_: _All | None, value: Any, old: Any) -> frozenset[str]:
    """The rules that hold for sure."""
    if all_ is None:
        return frozenset()
    data = {"self": part(value, all_.mentions)}
    if old is not _ABSENT:
        data["oldSelf"] = part(old, all_.mentions)
    try:
        answer = _answer(all_.program, msgspec.json.encode(data))
    except Exception:
        return frozenset()
    return all_.texts if answer is True else frozenset()


@lru_cache(maxsize=4096)
def _answer(program: Any, data: bytes) -> Any:
    """The cached result of a rule: many objects are equal in the fields that a rule reads."""
    return program.eval(data=msgspec.json.decode(data)).plain_value()


def _counterpart(node: _Node, item: Any, old: Any) -> Any:
    """The same item of the old list, where items can be told apart."""
    if not node.keys or not isinstance(old, list) or not isinstance(item, dict):
        return _ABSENT
    wanted = [item.get(key) for key in node.keys]
    found = (one for one in old if isinstance(one, dict) and [one.get(key) for key in node.keys] == wanted)
    return next(found, _ABSENT)


def _broken(rule: _Rule, value: Any, old: Any, path: Path) -> FieldProblem | None:
    data, program = {"self": part(value, rule.mentions)}, rule.first_program
    if old is not _ABSENT:
        program = rule.program
        if rule.looks_back:
            data["oldSelf"] = data["before"] = part(old, rule.mentions)
    try:
        answer = _answer(program, msgspec.json.encode(data))
    except Exception as error:
        answer = error
    if answer is True:
        return None
    where = spelled(path)
    if answer is not False:
        shown = _TYPE_NAMES.get(type(value), "object")
        message = f'Invalid value: "{shown}": {answer} evaluating rule: {rule.message}'
        return FieldProblem(where, "FieldValueInvalid", message)
    message = rule.message
    if rule.message_program is not None:
        try:
            message = str(rule.message_program.eval(data=data).plain_value())
        except Exception:
            message = rule.message
    word = _WORDS.get(rule.reason, "Invalid value")
    return FieldProblem(f"{where}{rule.field_path}".removeprefix("."), rule.reason, f"{word}: {message}")
