"""What another version of an API cannot say travels along in an annotation, and returns on the way back.

The annotation holds JSON: a list of places, each a path with the value that was there and the value that the
conversion there and back would leave in its stead. A step of a path is a field, or the name of a list's item.
Somebody who edits the other version is right: values return only where all that were kept below one parent
still stand as the conversion left them.

Users can write annotations, so what returns is untrusted input. Only listed paths of the spec are kept and
restored, never the status, which users may not write; and the caller checks the result against the schema,
because an API server does not look at what a conversion webhook answers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

Object = dict[str, Any]
Path = tuple[str, ...]

KEPT_BYTES_MAX = 200_000
"""The API server takes 256 KiB of annotations in all. What is longer is not kept."""
ANY = "*"
"""In a listed path: an item of a list, whatever its name."""
_NOWHERE = object()


class FieldPath(msgspec.Struct, frozen=True):
    """A value that a conversion there and back would change. A value that is unset is a field not there."""

    path: Path
    was: Any = msgspec.UNSET
    left: Any = msgspec.UNSET


def keep(made: Object, before: Object, after: Object, annotation: str, listed: Collection[Path]) -> Object:
    """The converted object with a note of what `before` has that `after`, its way there and back, has not."""
    places = [
        place
        for place in _differences(("spec",), before.get("spec"), after.get("spec"))
        if _is_listed(place.path, listed)
    ]
    places.sort(key=lambda place: place.path)
    text = msgspec.json.encode(places, order="deterministic")
    if not places or len(text) > KEPT_BYTES_MAX:
        return made
    return _annotated(made, annotation, text.decode())


def forget(made: Object, annotation: str) -> Object:
    """The object without the annotation, and with nothing of what it says."""
    known = (made.get("metadata") or {}).get("annotations") or {}
    return _annotated(made, annotation, None) if annotation in known else made


def restore(made: Object, annotation: str, listed: Collection[Path]) -> Object:
    """The object with what the annotation kept at listed paths of its version, and without the annotation.

    The values are as the annotation has them: whether they fit the schema is for the caller to check.
    """
    text = ((made.get("metadata") or {}).get("annotations") or {}).get(annotation)
    if text is None:
        return made
    made = forget(made, annotation)
    families: dict[Path, list[FieldPath]] = {}
    for place in _places(text):
        if _is_listed(place.path, listed):
            families.setdefault(place.path[:-1], []).append(place)
    for family in families.values():
        if all(_found(made, place.path) == place.left for place in family):
            for place in family:
                made = _put(made, place.path, place.was)
    return made


def _places(text: object) -> Iterable[FieldPath]:
    """What an annotation says; nothing if it is not one of ours."""
    if not isinstance(text, str) or len(text) > KEPT_BYTES_MAX:
        return ()
    try:
        return msgspec.json.decode(text, type=list[FieldPath])
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return ()


def _is_listed(path: Path, listed: Collection[Path]) -> bool:
    return any(
        len(path) == len(known)
        and all(wanted in (step, ANY) for step, wanted in zip(path, known, strict=True))
        for known in listed
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
    """The names of a list's items, if they tell them apart."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return []
    names = [item.get("name") for item in value]
    return names if len(set(names)) == len(names) and all(isinstance(name, str) for name in names) else []


def _found(value: Any, path: Path) -> Any:
    """What is at a path; nowhere, if not even its parent is there."""
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
    """A copy with another value at a path that was found."""
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
        key: said for key, said in (metadata.pop("annotations", None) or {}).items() if key != annotation
    }
    if text is not None:
        annotations[annotation] = text
    return {**obj, "metadata": {**metadata, **({"annotations": annotations} if annotations else {})}}
