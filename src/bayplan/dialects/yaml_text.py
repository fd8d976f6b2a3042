"""YAML from people and clients: read safely, whatever it holds, or refused with the place and the reason."""

from __future__ import annotations

import math
from typing import Any

import yaml

DEPTH_MAX = 200  # API objects nest a few dozen levels
VALUES_MAX = 20_000_000  # what aliases may expand a text to
_INT64 = range(-(2**63), 2**63)

# The loader in C is ten times faster; not every build of PyYAML has it.
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class Unreadable(Exception):
    """A text that cannot be read at all: where in it, and why."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}" if where else why)
        self.where = where
        self.why = why


def decoded(raw: bytes) -> str:
    """Bytes as text; Unreadable when they are not UTF-8."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as trouble:
        why = f"is not text: byte {trouble.start} (0x{raw[trouble.start]:02x}) is not UTF-8"
        raise Unreadable("", why) from None


def documents(text: str, values_max: int = VALUES_MAX) -> list[tuple[int, object]]:
    """(line, value) of each YAML document that is not empty."""
    found: list[tuple[int, object]] = []
    try:
        _refuse_depth(text)
        loader = _plain_loader()(text)
        while loader.check_node():
            node = loader.get_node()
            value = loader.construct_document(node)
            line = node.start_mark.line + 1
            if "&" in text:
                _refuse_loops(value, line, values_max)
            if value is not None:
                found.append((line, value))
    except yaml.MarkedYAMLError as trouble:
        mark = trouble.problem_mark or trouble.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise Unreadable(where, f"is not YAML: {trouble.problem or trouble.context}") from None
    except yaml.YAMLError as trouble:
        raise Unreadable("", f"is not YAML: {str(trouble).splitlines()[0]}") from None
    except RecursionError:
        raise Unreadable("", "is nested too deeply") from None
    except ValueError as trouble:
        raise Unreadable("", f"holds a value that cannot be read: {trouble}") from None
    return found


def document(raw: bytes, values_max: int = VALUES_MAX) -> object:
    """The one value of a text, None when there is none; Unreadable when there are several."""
    found = documents(decoded(raw), values_max)
    if len(found) > 1:
        raise Unreadable(f"line {found[1][0]}", "a second document begins; only one is expected")
    return found[0][1] if found else None


def as_json(root: Any, depth_max: int = DEPTH_MAX) -> Any:
    """A value as JSON has it: keys are text, numbers are finite, nothing is nested too deeply.

    Whole numbers of more than 64 bits become floating-point numbers, as an API server reads them.
    """
    holder = [root]
    stack: list[tuple[Any, int]] = [(holder, 0)]
    while stack:
        place, depth = stack.pop()
        if depth > depth_max:
            raise Unreadable("", f"is nested more than {depth_max} levels deep")
        if isinstance(place, dict) and not all(type(key) is str for key in place):
            fresh = {_key(key): value for key, value in place.items()}
            place.clear()
            place.update(fresh)
        keys = range(len(place)) if isinstance(place, list) else list(place)
        for key in keys:
            value = place[key]
            if isinstance(value, dict | list):
                stack.append((value, depth + 1))
            elif not (isinstance(value, str | bool) or value is None):
                place[key] = _number(value)
    return holder[0]


def _key(key: object) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, str | int | float):
        return str(key)
    raise Unreadable("", f"holds a key that is no text: {str(key)[:40]!r}")


def _number(value: object) -> int | float:
    if isinstance(value, int):
        try:
            return value if value in _INT64 else float(value)
        except OverflowError:
            raise Unreadable("", "holds a number that is too large") from None
    if isinstance(value, float) and math.isfinite(value):
        return value
    raise Unreadable("", f"holds a value that JSON cannot express: {str(value)[:40]!r}")


def _refuse_depth(text: str) -> None:
    """The loader in C does not survive extreme nesting, so look at the events first, if in doubt."""
    deepest = max((len(line) - len(line.lstrip(" -?")) for line in text.splitlines()), default=0)
    if deepest + text.count("[") + text.count("{") <= DEPTH_MAX:
        return
    depth = 0
    for event in yaml.parse(text, _LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > DEPTH_MAX:
                where = f"line {event.start_mark.line + 1}" if event.start_mark else ""
                raise Unreadable(where, "is nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _plain_loader() -> Any:
    """A safe loader that leaves dates as the text they are, like Kubernetes does."""
    loader: Any = type("PlainLoader", (_LOADER,), {})
    loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in _LOADER.yaml_implicit_resolvers.items()
    }
    return loader


def _refuse_loops(root: object, line: int, values_max: int) -> None:
    """Aliases may make a value contain itself, or blow it up; neither can be an API object."""
    sizes: dict[int, int] = {}
    inside: set[int] = set()
    stack: list[tuple[object, bool]] = [(root, False)]
    while stack:
        value, left = stack.pop()
        if not isinstance(value, dict | list):
            continue
        below = list(value.values()) if isinstance(value, dict) else value
        if left:
            inside.discard(id(value))
            sizes[id(value)] = 1 + sum(sizes.get(id(child), 1) for child in below)
        elif id(value) in inside:
            raise Unreadable(f"line {line}", "holds an alias that contains itself")
        elif id(value) not in sizes:
            inside.add(id(value))
            stack.append((value, True))
            stack.extend((child, False) for child in below)
    if sizes.get(id(root), 1) > values_max:
        raise Unreadable(f"line {line}", f"aliases make more than {values_max:,} values of it")
