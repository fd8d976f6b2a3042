"""Reading YAML and JSON files: every object in them, or what is wrong with the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bayplan.dialects.kube.fields import Field, printable, type_name

STDIN = "-"
DEPTH_MAX = 200  # API objects nest a few dozen levels
VALUES_MAX = 20_000_000  # what aliases may blow a file up to

# The loader in C is ten times faster; not every build of PyYAML has it.
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BLANKS = re.compile(r"\s*")
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


@dataclass(frozen=True, slots=True)
class Document:
    """One API object and where it stands."""

    file: str
    line: int  # where its document begins; 0 if unknown
    body: Field
    kind: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with the input. `where` is an object, a place in a file, or empty."""

    file: str
    where: str
    why: str

    def __str__(self) -> str:
        return printable(": ".join(part for part in (self.file, self.where, self.why) if part))


class Unreadable(Exception):
    """A file that cannot be read at all: where in it, and why."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(why)
        self.where = where
        self.why = why


def read_files(names: Sequence[str], read_stdin: Callable[[], bytes]) -> tuple[list[Document], list[Problem]]:
    """Every object of every file, and every file's trouble."""
    documents: list[Document] = []
    problems: list[Problem] = []
    for index, name in enumerate(names):
        file = "stdin" if name == STDIN else name
        try:
            if name in names[:index]:
                raise Unreadable("", "is given twice")
            found = list(_objects(file, _bytes(name, read_stdin)))
            if not found:
                raise Unreadable("", "is empty: there is no object in it")
            documents += found
        except Unreadable as trouble:
            problems.append(Problem(file, trouble.where, trouble.why))
    return documents, problems


def _bytes(name: str, read_stdin: Callable[[], bytes]) -> bytes:
    if name == STDIN:
        return read_stdin()
    path = Path(name)
    try:
        if path.is_dir():
            raise Unreadable("", "is a directory: name the files in it")
        return path.read_bytes()
    except FileNotFoundError:
        raise Unreadable("", "there is no such file") from None
    except (OSError, ValueError) as trouble:
        why = trouble.strerror if isinstance(trouble, OSError) and trouble.strerror else str(trouble)
        raise Unreadable("", f"cannot be read: {why}") from None


def _objects(file: str, raw: bytes) -> Iterator[Document]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as trouble:
        why = f"is not text: byte {trouble.start} (0x{raw[trouble.start]:02x}) is not UTF-8"
        raise Unreadable("", why) from None
    for line, value in _documents(text):
        yield from _flattened(file, line, value, "")


def _documents(text: str) -> list[tuple[int, object]]:
    """(line, value) of each document. What begins like JSON is read as JSON if it is."""
    if text.lstrip()[:1] not in ("{", "["):
        return _yaml_documents(text)
    try:
        return _json_documents(text)
    except json.JSONDecodeError as trouble:
        try:
            return _yaml_documents(text)
        except Unreadable:
            where = f"line {trouble.lineno}, column {trouble.colno}"
            raise Unreadable(where, f"is not JSON: {trouble.msg}") from None


def _json_documents(text: str) -> list[tuple[int, object]]:
    """One JSON value after the other."""
    found: list[tuple[int, object]] = []
    decoder = json.JSONDecoder()
    line, seen, position = 1, 0, _skip_blanks(text, 0)
    while position < len(text):
        line += text.count("\n", seen, position)
        seen = position
        try:
            value, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            raise
        except RecursionError:
            raise Unreadable(f"line {line}", "is nested too deeply") from None
        except ValueError as trouble:  # a number of more digits than Python reads
            raise Unreadable(f"line {line}", f"holds a number that is too long: {trouble}") from None
        found.append((line, value))
        position = _skip_blanks(text, end)
    return found


def _skip_blanks(text: str, start: int) -> int:
    match = _BLANKS.match(text, start)
    return match.end() if match else start


def _yaml_documents(text: str) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    try:
        _refuse_depth(text)
        loader = _plain_loader()(text)
        while loader.check_node():
            node = loader.get_node()
            value = loader.construct_document(node)
            line = node.start_mark.line + 1
            if "&" in text:
                _refuse_loops(value, line)
            if value is not None:
                found.append((line, value))
    except yaml.MarkedYAMLError as trouble:
        mark = trouble.problem_mark or trouble.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise Unreadable(where, f"is not YAML: {trouble.problem or trouble.context}") from None
    except yaml.YAMLError as trouble:
        raise Unreadable("", f"is not YAML: {str(trouble).splitlines()[0]}") from None
    except ValueError as trouble:
        raise Unreadable("", f"holds a value that cannot be read: {trouble}") from None
    return found


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


def _refuse_loops(root: object, line: int) -> None:
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
    if sizes.get(id(root), 1) > VALUES_MAX:
        raise Unreadable(f"line {line}", f"aliases make more than {VALUES_MAX:,} values of it")


def _flattened(file: str, line: int, value: object, path: str, kind: str = "") -> Iterator[Document]:
    """The object itself, or the objects of a list; items of a typed list need not say their kind."""
    if isinstance(value, dict) and kind and not value.get("kind"):
        value = value | {"kind": kind}
    field = Field(value, path)
    own = field.at("kind").text() if isinstance(value, dict) else ""
    if isinstance(value, list):
        items, kind = field, ""
    elif own.endswith("List") and field.at("items").present:
        items, kind = field.at("items"), own.removesuffix("List")
    else:
        if not isinstance(value, dict):
            field.error(f"must be an object, not {type_name(value)}")
        yield Document(file, line, field, own)
        return
    for item in items.items():
        yield from _flattened(file, line, item.value, item.path, kind)
    if field.errors:
        yield Document(file, line, field, own)
