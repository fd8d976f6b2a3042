"""Strategic merge patch: lists are merged by key where the kind says so; directives steer the rest."""

from __future__ import annotations

from typing import Any

from bayplan.backends.embedded.api.decoding import TypedField, types
from bayplan.backends.embedded.api.status import StatusError, bad_request

Object = dict[str, Any]

_PATCH, _RETAIN = "$patch", "$retainKeys"
_ORDER, _REMOVE = "$setElementOrder/", "$deleteFromPrimitiveList/"
_OPEN = TypedField("any", "")


def merge(old: Object, patch: Object, type_: str) -> Object:
    """An object of a built-in type after a strategic merge patch; neither argument is changed."""
    match patch.get(_PATCH):
        case None:
            pass
        case "replace":
            return {key: _plain(value) for key, value in patch.items() if key != _PATCH}
        case "delete":
            return {}
        case other:
            raise bad_request(f"Unknown patch type found: {other}; $patch is replace or delete")
    fields = types().get(type_, {})
    merged = _retained(old, patch)
    for key, value in patch.items():
        if key.startswith(_ORDER):
            _in_order(merged, patch, key.removeprefix(_ORDER), value, fields)
    for key, value in patch.items():
        if key == _RETAIN or key.startswith(_ORDER) or f"{_ORDER}{key}" in patch:
            continue
        if key.startswith(_REMOVE):
            name = key.removeprefix(_REMOVE)
            if name in merged:
                merged[name] = [item for item in merged[name] if item not in value]
            continue
        _set(merged, key, value, fields.get(key, _inside(type_)))
    return merged


def _set(merged: Object, key: str, value: Any, field: TypedField) -> None:
    before = merged.get(key)
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, dict) and isinstance(before, dict) and not field.replace:
        merged[key] = merge(before, value, _below(field))
    elif isinstance(value, list) and isinstance(before, list) and field.merge:
        merged[key] = _merge_lists(before, value, field, None)
    elif _steers(value):
        merged.pop(key, None)
    else:
        merged[key] = _plain(value)


def _retained(old: Object, patch: Object) -> Object:
    if _RETAIN not in patch:
        return dict(old)
    kept = patch[_RETAIN]
    for key, value in patch.items():
        if value is not None and not key.startswith("$") and key not in kept:
            raise bad_request(
                "invalid patch format of retainKeys: a field is set that the list does not retain"
            )
    return {key: value for key, value in old.items() if key in kept}


def _in_order(
    merged: Object, patch: Object, key: str, order: list[Any], fields: dict[str, TypedField]
) -> None:
    """Put a list into the order that the patch asks for, together with the change it makes to the list."""
    field = fields.get(key, _OPEN)
    before, change = merged.get(key) or [], patch.get(key)
    if change is None and not before:
        return
    merged[key] = _merge_lists(before, change or [], field, order)


def _merge_lists(old: list[Any], patch: list[Any], field: TypedField, order: list[Any] | None) -> list[Any]:
    if not any(isinstance(item, dict) for item in (*old, *patch)):
        both = list(dict.fromkeys([*old, *patch]))
        return _ordered(both, patch if order is None else order, old, "")
    key = field.merge_key
    if not key:
        return [_plain(item) for item in patch]
    additions = []
    for item in patch:
        directive = item.get(_PATCH)
        if directive == "delete":
            old = [one for one in old if one.get(key) != item.get(key)]
        elif directive is None:
            additions.append(item)
    if any(item.get(_PATCH) == "replace" for item in patch):
        return [_plain(item) for item in additions]
    both = list(old)
    for item in additions:
        if key not in item:
            shown = " ".join(f"{name}:{value}" for name, value in sorted(item.items()))
            raise StatusError(500, f"map: map[{shown}] does not contain declared merge key: {key}", "")
        place = next((at for at, one in enumerate(both) if one.get(key) == item[key]), None)
        if place is None:
            both.append(_plain(item))
        else:
            both[place] = merge(both[place], item, field.item)
    return _ordered(both, additions if order is None else order, old, key)


def _ordered(both: list[Any], order: list[Any], before: list[Any], key: str) -> list[Any]:
    """The items that the patch names in its order; the others keep their places as well as they can."""
    wanted = {_identity(item, key): place for place, item in reversed(list(enumerate(order)))}
    known = {_identity(item, key): place for place, item in reversed(list(enumerate(before)))}
    named = sorted((i for i in both if _identity(i, key) in wanted), key=lambda i: wanted[_identity(i, key)])
    others = [item for item in both if _identity(item, key) not in wanted]
    result = []
    for item in named:
        place = known.get(_identity(item, key), -1)
        while others and known.get(_identity(others[0], key), len(known)) < place:
            result.append(others.pop(0))
        result.append(item)
    return result + others


def _identity(item: Any, key: str) -> Any:
    return item.get(key) if isinstance(item, dict) else item


def _plain(value: Any) -> Any:
    """What a patch sets where nothing was: without its directives, and without nulls."""
    if isinstance(value, dict):
        return {
            key: _plain(item)
            for key, item in value.items()
            if item is not None and not key.startswith("$") and not _steers(item)
        }
    if isinstance(value, list):
        return [_plain(item) for item in value if not _steers(item)]
    return value


def _steers(value: Any) -> bool:
    return isinstance(value, dict) and _PATCH in value


def _below(field: TypedField) -> str:
    """The type of the object in a field; for a map, the map's own type, so that its items are found."""
    return field.type


def _inside(type_: str) -> TypedField:
    """The field of any key of a map."""
    return TypedField(type_[1:-1], "") if type_[:1] == "{" else _OPEN
