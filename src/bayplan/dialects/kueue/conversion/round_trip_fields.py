"""Fields that another API version lacks are saved in an annotation and restored when converting back.

The annotation holds JSON: a list of fields, each with its path, its original value and the value after the
round trip. A step of a path is a field, or the name of a list item. An edit of the other version wins: the
fields of one parent are restored only if all of them are as the conversion left them.

Users can write annotations, so the saved values are untrusted input. Only listed paths of the spec are saved
and restored, never the status, which users may not write; and the caller validates the result against the
schema, because an API server does not validate the response of a conversion webhook.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

Object = dict[str, Any]
Path = tuple[str, ...]

SAVED_BYTES_MAX = 200_000
"""The API server accepts 256 KiB of annotations in all. Longer values are not saved."""
ANY = "*"
"""In a listed path: any item of a list."""
_NOWHERE = object()


class FieldPath(msgspec.Struct, frozen=True):
    """A field that a round-trip conversion would change; an unset value means that the field is absent."""

    path: Path
    original: Any = msgspec.UNSET
    converted: Any = msgspec.UNSET


def keep(
    converted: Object, before: Object, after: Object, annotation: str, paths: Collection[Path]
) -> Object:
    """The converted object; an annotation saves the fields of `before` that the round trip (`after`) lost."""
    fields = [
        field
        for field in _differences(("spec",), before.get("spec"), after.get("spec"))
        if _is_listed(field.path, paths)
    ]
    fields.sort(key=lambda field: field.path)
    text = msgspec.json.encode(fields, order="deterministic")
    if not fields or len(text) > SAVED_BYTES_MAX:
        return converted
    return _annotated(converted, annotation, text.decode())


def forget(converted: Object, annotation: str) -> Object:
    """The object without the annotation."""
    annotations = (converted.get("metadata") or {}).get("annotations") or {}
    return _annotated(converted, annotation, None) if annotation in annotations else converted


def restore(converted: Object, annotation: str, paths: Collection[Path]) -> Object:
    """The object with the saved values at the listed paths, and without the annotation.

    The values are untrusted: the caller has to validate them against the schema.
    """
    text = ((converted.get("metadata") or {}).get("annotations") or {}).get(annotation)
    if text is None:
        return converted
    converted = forget(converted, annotation)
    by_parent: dict[Path, list[FieldPath]] = {}
    for field in _saved_fields(text):
        if _is_listed(field.path, paths):
            by_parent.setdefault(field.path[:-1], []).append(field)
    for siblings in by_parent.values():
        if all(_value_at(converted, field.path) == field.converted for field in siblings):
            for field in siblings:
                converted = _put(converted, field.path, field.original)
    return converted


def _saved_fields(text: object) -> Iterable[FieldPath]:
    """The fields saved in an annotation; none if it is malformed."""
    if not isinstance(text, str) or len(text) > SAVED_BYTES_MAX:
        return ()
    try:
        return msgspec.json.decode(text, type=list[FieldPath])
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return ()


def _is_listed(path: Path, paths: Collection[Path]) -> bool:
    return any(
        len(path) == len(pattern)
        and all(wanted in (step, ANY) for step, wanted in zip(path, pattern, strict=True))
        for pattern in paths
    )


def _differences(path: Path, was: Any, left: Any) -> Iterator[FieldPath]:
    if was == left:
        return
    if isinstance(was, dict) and isinstance(left, dict):
        for key in {**was, **left}:
            yield from _differences((*path, key), was.get(key, msgspec.UNSET), left.get(key, msgspec.UNSET))
    elif (names := _names(was)) and names == _names(left):
        for name, one, other in zip(names, was, left, strict=True):
            yield from _differences((*path, name), one, other)
    else:
        yield FieldPath(path, was, left)


def _names(value: Any) -> list[str]:
    """The names of a list's items, if they are unique."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return []
    names = [item.get("name") for item in value]
    return names if len(set(names)) == len(names) and all(isinstance(name, str) for name in names) else []


def _value_at(value: Any, path: Path) -> Any:
    """The value at a path; `_NOWHERE` if its parent is absent."""
    for depth, step in enumerate(path):
        if isinstance(value, list):
            value = next(
                (item for item in value if isinstance(item, dict) and item.get("name") == step), _NOWHERE
            )
        elif isinstance(value, dict):
            value = value.get(step, msgspec.UNSET if depth == len(path) - 1 else _NOWHERE)
        else:
            return _NOWHERE
    return value


def _put(value: Any, path: Path, wanted: Any) -> Any:
    """A copy with another value at an existing path."""
    if not path:
        return wanted
    step, *rest = path
    if isinstance(value, list):
        return [
            _put(item, tuple(rest), wanted) if isinstance(item, dict) and item.get("name") == step else item
            for item in value
        ]
    if rest or wanted is not msgspec.UNSET:
        return {**value, step: _put(value.get(step), tuple(rest), wanted)}
    return {key: item for key, item in value.items() if key != step}


def _annotated(obj: Object, annotation: str, text: str | None) -> Object:
    metadata = dict(obj.get("metadata") or {})
    annotations = {
        key: value for key, value in (metadata.pop("annotations", None) or {}).items() if key != annotation
    }
    if text is not None:
        annotations[annotation] = text
    return {**obj, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}
