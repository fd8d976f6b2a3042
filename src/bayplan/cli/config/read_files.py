"""Reads the API objects in YAML and JSON files."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bayplan.backends.bounded_file import read_bounded, read_up_to
from bayplan.dialects.kube.fields.bounded_json import deeper_than
from bayplan.dialects.kube.fields.bounded_yaml import DEPTH_MAX, UnreadableYAML, bounded_documents
from bayplan.dialects.kube.fields.reader import Field, printable, type_name

STDIN = "-"
BYTES_MAX = 1024 * 1024 * 1024  # of one file; a list of 100,000 pods is smaller

_BLANKS = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class InputDocument:
    """One API object and its position in the files."""

    file: str
    line: int  # where its document begins; 0 if unknown
    body: Field
    kind: str


@dataclass(frozen=True, slots=True)
class InputProblem:
    """A problem of the input. `where` is an object, a position in a file, or empty."""

    file: str
    where: str
    why: str

    def __str__(self) -> str:
        return printable(": ".join(part for part in (self.file, self.where, self.why) if part))


class UnreadableFile(Exception):
    """A file that cannot be read: the position in it, and why."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(why)
        self.where = where
        self.why = why


def read_files(names: Sequence[str]) -> tuple[list[InputDocument], list[InputProblem]]:
    """All objects of all files, and the problems of files that cannot be read."""
    documents: list[InputDocument] = []
    problems: list[InputProblem] = []
    for index, name in enumerate(names):
        file = "stdin" if name == STDIN else name
        try:
            if name in names[:index]:
                raise UnreadableFile("", "is given twice")
            objects = list(_objects(file, _bytes(name)))
            if not objects:
                raise UnreadableFile("", "is empty: there is no object in it")
            documents += objects
        except UnreadableFile as error:
            problems.append(InputProblem(file, error.where, error.why))
    return documents, problems


def read_text(text: str) -> tuple[list[InputDocument], list[InputProblem]]:
    """All objects in a text, and the problem of a text that cannot be read."""
    try:
        return list(_objects("", text.encode())), []
    except UnreadableFile as error:
        return [], [InputProblem("", error.where, error.why)]


def _bytes(name: str) -> bytes:
    path = Path(name)
    try:
        if name == STDIN:
            if sys.stdin is None:
                raise UnreadableFile("", "is closed: there is nothing to read")
            return read_up_to(sys.stdin.buffer.read, BYTES_MAX)
        if path.is_dir():
            raise UnreadableFile("", "is a directory: name the files in it")
        return read_bounded(path, BYTES_MAX)
    except FileNotFoundError:
        raise UnreadableFile("", "there is no such file") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UnreadableFile("", f"cannot be read: {why}") from None


def _objects(file: str, raw: bytes) -> Iterator[InputDocument]:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"is not text: byte {error.start} (0x{raw[error.start]:02x}) is not UTF-8"
        raise UnreadableFile("", why) from None
    for line, value in _documents(text):
        yield from _flattened(file, line, value, "")


def _documents(text: str) -> list[tuple[int, object]]:
    """(line, value) of each document. Text that starts like JSON is parsed as JSON, and else as YAML."""
    if text.lstrip()[:1] not in ("{", "["):
        return _yaml_documents(text)
    try:
        return _json_documents(text)
    except json.JSONDecodeError as error:
        try:
            return _yaml_documents(text)
        except UnreadableFile:
            where = f"line {error.lineno}, column {error.colno}"
            raise UnreadableFile(where, f"is not JSON: {error.msg}") from None


def _json_documents(text: str) -> list[tuple[int, object]]:
    """A sequence of JSON values."""
    if deeper_than(text.encode(), DEPTH_MAX):
        raise UnreadableFile("", "is nested too deeply")
    values: list[tuple[int, object]] = []
    decoder = json.JSONDecoder()
    line, seen, position = 1, 0, _skip_blanks(text, 0)
    while position < len(text):
        line += text.count("\n", seen, position)
        seen = position
        try:
            value, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError:
            raise
        except ValueError as error:  # a number of more digits than Python reads
            raise UnreadableFile(f"line {line}", f"holds a number that is too long: {error}") from None
        values.append((line, value))
        position = _skip_blanks(text, end)
    return values


def _skip_blanks(text: str, start: int) -> int:
    match = _BLANKS.match(text, start)
    return match.end() if match else start


def _yaml_documents(text: str) -> list[tuple[int, object]]:
    try:
        return bounded_documents(text)
    except UnreadableYAML as error:
        raise UnreadableFile(error.where, error.why) from None


def _flattened(file: str, line: int, value: object, path: str, kind: str = "") -> Iterator[InputDocument]:
    """The object itself, or the items of a list; items of a typed list may omit their kind."""
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
        yield InputDocument(file, line, field, own)
        return
    for item in items.items():
        yield from _flattened(file, line, item.value, item.path, kind)
    if field.errors:
        yield InputDocument(file, line, field, own)
