"""Patches: merge (RFC 7386), JSON (RFC 6902), strategic merge, and the merge behind a server-side apply."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jsonpatch

from bayplan.backends.embedded.api.decoding import TypedField, copied, types
from bayplan.backends.embedded.api.json_values import NotPlain, plain
from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.status import StatusError, bad_request
from bayplan.backends.embedded.patching import strategic

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
JSON = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"

_REJECTED = "the server rejected our request due to an error in our request"


def patched(resource: Resource, old: Object, patch: Any, form: str) -> Object:
    """An object after a patch; the object itself is not changed."""
    if form == JSON:
        return _json(old, patch)
    if not isinstance(patch, Mapping):
        raise bad_request("a merge patch is a JSON object; for a list of operations send it as " + JSON)
    if form == MERGE:
        return merge(old, patch)
    if form == STRATEGIC and resource.type:
        try:
            return strategic.merge(old, dict(patch), resource.type)
        except (AttributeError, TypeError, KeyError):  # a value of another type than the field has
            message = "the patch has a value where the object has a list or a map of another form"
            raise bad_request(f"{message}; correct its types") from None
    if form == STRATEGIC:
        raise StatusError(
            415,
            "the body of the request was in an unknown format - accepted media types include: "
            f"{JSON}, {MERGE}, {APPLY}",
        )
    raise StatusError(415, f"a patch in the form {form} is not known; send {MERGE}, {JSON} or {STRATEGIC}")


def merge(old: Mapping[str, Any], patch: Mapping[str, Any]) -> Object:
    """A merge patch: null removes, objects merge, everything else replaces."""
    merged = dict(old)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            before = merged.get(key)
            merged[key] = merge(before if isinstance(before, Mapping) else {}, value)
        else:
            merged[key] = value
    return merged


def applied(
    resource: Resource, old: Object, before: Object, wanted: Object, others: Iterable[Object]
) -> Object:
    """The object after a field manager changed its applied configuration from `before` to `wanted`.

    What it wants no more is removed, unless another applier wants it or its value was changed since.
    """
    for other in others:
        before = _unclaimed(before, other, resource.type)
    merged: Object = _apply(old, before, wanted, resource.type)
    return merged


def applied_part(resource: Resource, item: Object, wanted: Object) -> Object:
    """The applied configuration with the values of the object after decoding and defaulting."""
    return _part(item, wanted, resource.type)


def _json(old: Object, patch: Any) -> Object:
    if not isinstance(patch, list):
        raise bad_request("a JSON patch is a list of operations; for an object send it as " + MERGE)
    try:
        result = jsonpatch.JsonPatch(patch).apply(copied(old), in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, ValueError, KeyError):
        raise StatusError(422, _REJECTED, None, {}) from None
    try:
        plain(result)  # operations may stack values ever deeper
    except NotPlain as error:
        raise bad_request(f"the object after the patch {error}") from None
    if not isinstance(result, dict):
        raise StatusError(422, _REJECTED, None, {})
    changed: Object = result
    return changed


def _apply(old: Any, before: Any, wanted: Any, type_: str) -> Any:
    fields = types().get(type_, {})
    merged = dict(old)
    for key in before:
        if key not in wanted and key in merged:
            merged[key] = _withdrawn(merged[key], before[key], fields.get(key))
            if merged[key] in (None, {}, []):
                del merged[key]
    for key, value in wanted.items():
        field = fields.get(key)
        had, has = before.get(key), merged.get(key)
        if isinstance(value, dict) and isinstance(has, dict):
            merged[key] = _apply(
                has, had if isinstance(had, dict) else {}, value, field.type if field else ""
            )
        elif isinstance(value, list) and isinstance(has, list) and field and field.merge_key:
            merged[key] = _apply_list(has, had or [], value, field.merge_key, field.item)
        else:
            merged[key] = value
    return merged


def _apply_list(old: list[Any], before: list[Any], wanted: list[Any], key: str, type_: str) -> list[Any]:
    had = {item.get(key): item for item in before}
    left = {item.get(key): item for item in wanted}
    merged = []
    for item in old:
        name = item.get(key)
        if name in left:
            merged.append(_apply(item, had.get(name, {}), left.pop(name), type_))
        elif name not in had:
            merged.append(item)
    return [*merged, *left.values()]


def _withdrawn(value: Any, before: Any, field: TypedField | None) -> Any:
    """What remains of a value when its field manager no longer applies it."""
    if isinstance(value, dict) and isinstance(before, dict):
        return _apply(value, before, {}, field.type if field else "")
    if isinstance(value, list) and isinstance(before, list) and field and field.merge_key:
        return _apply_list(value, before, [], field.merge_key, field.item)
    return None if value == before else value


def _unclaimed(before: Object, other: Object, type_: str) -> Object:
    """The applied configuration without the fields that another manager applies, too."""
    fields = types().get(type_, {})
    rest: Object = {}
    for key, value in before.items():
        field, claimed = fields.get(key), other.get(key)
        if key not in other:
            rest[key] = value
        elif isinstance(value, dict) and isinstance(claimed, dict):
            rest[key] = _unclaimed(value, claimed, field.type if field else "")
        elif isinstance(value, list) and isinstance(claimed, list) and field and field.merge_key:
            names = {item.get(field.merge_key) for item in claimed}
            rest[key] = [item for item in value if item.get(field.merge_key) not in names]
    return rest


def _part(item: Object, wanted: Object, type_: str) -> Object:
    fields = types().get(type_, {})
    part: Object = {}
    for key in wanted.keys() & item.keys():
        field, has, value = fields.get(key), item[key], wanted[key]
        if isinstance(value, dict) and isinstance(has, dict):
            part[key] = _part(has, value, field.type if field else "")
        elif isinstance(value, list) and isinstance(has, list) and field and field.merge_key:
            names = {one.get(field.merge_key): one for one in value}
            known = [one for one in has if one.get(field.merge_key) in names]
            part[key] = [_part(one, names[one.get(field.merge_key)], field.item) for one in known]
        else:
            part[key] = has
    return part
