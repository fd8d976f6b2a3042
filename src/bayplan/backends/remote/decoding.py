"""Decoding of list pages and watch lines, limited to the fields that a kind declares."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, get_args

import msgspec
from msgspec import Raw, Struct

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.fields.bounded_json import deeper_than
from bayplan.dialects.kube.fields.bounded_yaml import DEPTH_MAX

TOO_DEEP = f"it is nested more than {DEPTH_MAX} levels deep"
_DEPTH_KEPT = DEPTH_MAX + 8  # objects stand in lists and lines
_TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[][{}]', re.DOTALL)
INITIAL_EVENTS_END = "k8s.io/initial-events-end"

Identity = tuple[str, str, str, str]
"""namespace, name, uid, resourceVersion."""


class LineReader:
    """Cuts a stream into lines; each byte is copied once or twice, however long a line gets."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes."""
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._begun.append(chunk)
            return []
        if self._begun:
            whole = b"".join((*self._begun, whole))
        self._begun = [rest] if rest else []
        return whole.split(b"\n")


class ListMeta(Struct, rename="camel"):
    """The metadata of a list, and of a bookmark."""

    resource_version: str = ""
    next_page: str = msgspec.field(default="", name="continue")
    annotations: dict[str, str] | None = None


class WatchLine(Struct):
    """A line of a watch: what happened, to what."""

    type: str
    object: Raw


class _Bookmark(Struct):
    metadata: ListMeta


class _RawPage(Struct):
    metadata: ListMeta
    items: list[Raw] | None = None


class _ObjectMeta(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Object(Struct):
    metadata: _ObjectMeta


_meta = msgspec.json.Decoder(_Object)
_line = msgspec.json.Decoder(WatchLine)
_bookmark = msgspec.json.Decoder(_Bookmark)
_raw_page = msgspec.json.Decoder(_RawPage)


@dataclass(frozen=True, slots=True)
class DecodedPage:
    """One page of a list, with namespace, name and error of the objects that could not be decoded."""

    items: list[Any]
    metadata: ListMeta
    unreadable: tuple[tuple[tuple[str, str], str], ...] = ()


class Wire:
    """How the objects of one kind are read."""

    def __init__(self, kind: Kind) -> None:
        wanted: Any = kind.wire or dict[str, Any]
        page: Any = msgspec.defstruct(
            "TypedPage", [("metadata", ListMeta), ("items", list[wanted] | None, None)]
        )
        self._kind = kind
        self._object = msgspec.json.Decoder(wanted)
        self._page = msgspec.json.Decoder(page)
        self.identify: Callable[[Any], Identity] = _of_struct(kind) if kind.wire else _of_dict

    def object(self, text: bytes | Raw) -> Any:
        """One object; msgspec.ValidationError if it is not as the kind declares, or nested too deeply.

        Of a kind with a Struct only few fields are read, so that depth elsewhere does not matter.
        """
        if self._kind.wire is None and deeper_than(bytes(text), DEPTH_MAX):
            raise msgspec.ValidationError(TOO_DEEP)
        return self._object.decode(text)

    def page(self, text: bytes) -> DecodedPage:
        """A page of a list. One object that cannot be read does not take the others with it."""
        if self._kind.wire is None and deeper_than(text, DEPTH_MAX):
            return self._one_by_one(text)
        try:
            found = self._page.decode(text)
        except (msgspec.ValidationError, RecursionError):
            return self._one_by_one(text)
        items = found.items or []
        if self._kind.wire is None:
            for item in items:  # a list leaves out what all its items have in common
                item.setdefault("apiVersion", self._kind.api_version)
                item.setdefault("kind", self._kind.kind)
        return DecodedPage(items, found.metadata)

    def _one_by_one(self, text: bytes) -> DecodedPage:
        raw = _raw_page.decode(shallow(text))
        items, unreadable = [], []
        for item in raw.items or ():
            try:
                items.append(self.object(item))
            except msgspec.ValidationError as wrong:
                unreadable.append((key_of(item), str(wrong)))
        return DecodedPage(items, raw.metadata, tuple(unreadable))


def line(text: bytes) -> WatchLine:
    """A line of a watch, its object still unread."""
    try:
        return _line.decode(text)
    except RecursionError:
        return _line.decode(shallow(text))


def shallow(text: bytes) -> bytes:
    """The text with null for what lies deeper than any object that is read, so that it can be decoded."""
    if not deeper_than(text, _DEPTH_KEPT):
        return text
    kept, depth, start = [], 0, 0
    for token in _TOKENS.finditer(text):
        if token[0] in (b"{", b"["):
            depth += 1
            if depth == _DEPTH_KEPT + 1:
                kept += [text[start : token.start()], b"null"]
        elif token[0] in (b"}", b"]"):
            depth -= 1
            if depth == _DEPTH_KEPT:
                start = token.end()
    return b"".join((*kept, text[start:]))


def bookmark(text: Raw) -> ListMeta:
    """The metadata of a bookmark."""
    return _bookmark.decode(text).metadata


def key_of(text: Raw) -> tuple[str, str]:
    """Namespace and name of an object that cannot be read as a whole."""
    try:
        metadata = _meta.decode(text).metadata
    except msgspec.DecodeError:
        return "", ""
    return metadata.namespace, metadata.name


def version_of(text: Raw) -> str:
    """The version of an object that cannot be read as a whole."""
    try:
        return _meta.decode(text).metadata.resource_version
    except msgspec.DecodeError:
        return ""


def _of_dict(found: dict[str, Any]) -> Identity:
    metadata = found["metadata"]
    get = metadata.get
    return get("namespace", ""), metadata["name"], get("uid", ""), get("resourceVersion", "")


def _of_struct(kind: Kind) -> Callable[[Any], Identity]:
    """A reader of metadata for the Struct of a kind, which must declare what tells objects apart."""
    metadata = _fields(kind.wire).get("metadata")
    inner = _fields(metadata.type) if metadata else {}
    wanted = ["name", "uid", "resourceVersion", *(["namespace"] if kind.namespaced else [])]
    lacking = [name for name in wanted if name not in inner]
    assert metadata is not None and not lacking, f"the wire type of {kind.plural} lacks metadata: {lacking}"
    name, uid, version, *rest = (f"{metadata.name}.{inner[part].name}" for part in wanted)
    if rest:
        return attrgetter(rest[0], name, uid, version)
    read = attrgetter(name, uid, version)
    return lambda found: ("", *read(found))


def _fields(found: Any) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a Struct (or of one that may be missing) by the names they have in JSON."""
    for part in (found, *get_args(found)):
        if isinstance(part, type) and issubclass(part, Struct):
            return {field.encode_name: field for field in msgspec.structs.fields(part)}
    return {}
