"""The reference of API fields: kinds that Bayplan brings, from their schemas, and labels and annotations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bayplan.backends.crds import definitions
from tools.reference.annotations import KEYS
from tools.reference.markdown import code, generated, plain, table

Object = dict[str, Any]
HEAD = f"""# API fields

{generated("the CustomResourceDefinitions and tools/reference/annotations.py")}

The kinds that `bayplan install` brings, in the version that is stored; fields of `status` are written by Bayplan. Kinds of
Kubernetes itself (`scheduling.k8s.io`, `resource.k8s.io`, Jobs) and of job operators are documented by their projects; which of
their fields count is in [gangs](../guide/gangs.md), [devices](../guide/devices.md) and [job kinds](job-kinds.md).

## Labels and annotations

*On* is the object that has the key. A key of which one letter is wrong is not ignored in silence: the webhooks,
`bayplan explain` and `bayplan plan` say what was probably meant.

"""
WITHOUT = frozenset({"apiVersion", "kind", "metadata"})
DEPTH_MAX = 6
"""Below this, fields are those of Kubernetes (pod templates, selectors), and are not repeated here."""


def page() -> str:
    """The page."""
    keys = table(
        ("key", "on", "value", "meaning"),
        ((code(key.name), key.on, key.value, key.meaning) for key in KEYS),
    )
    return HEAD + keys + "".join(_kind(one) for one in sorted(definitions(), key=_title))


def _title(definition: Object) -> tuple[str, str]:
    return definition["spec"]["group"], definition["spec"]["names"]["kind"]


def _kind(definition: Object) -> str:
    spec = definition["spec"]
    version = next(one for one in spec["versions"] if one["storage"])
    served = [one["name"] for one in spec["versions"] if one["served"]]
    schema = version["schema"]["openAPIV3Schema"]
    also = f" Also served as {', '.join(code(name) for name in served if name != version['name'])}."
    rows = [row for name in ("spec", "status") for row in _fields(schema, name)]
    rows += [
        row
        for name in schema.get("properties", {})
        if name not in WITHOUT | {"spec", "status"}
        for row in _fields(schema, name)
    ]
    return (
        f"\n## {spec['names']['kind']} ({spec['group']})\n\n"
        f"`{spec['group']}/{version['name']}`, {'in a namespace' if spec['scope'] == 'Namespaced' else 'cluster-wide'}."
        f"{also if len(served) > 1 else ''} {plain(schema.get('description', ''))}\n\n"
        + table(("field", "type", "meaning"), rows)
    )


def _fields(schema: Object, name: str, path: str = "", depth: int = 0) -> Iterator[tuple[str, str, str]]:
    """A field, and those below it."""
    field = schema.get("properties", {}).get(name)
    if field is None:
        return
    here = f"{path}{name}"
    is_required = name in schema.get("required", ())
    yield code(here), _type(field), plain(_meaning(field)) + (" Required." if is_required else "")
    inner, suffix = field, "."
    while inner.get("type") == "array":
        inner, suffix = inner["items"], f"[]{suffix}"
    if isinstance(inner.get("additionalProperties"), dict) and "properties" in inner["additionalProperties"]:
        inner, suffix = inner["additionalProperties"], ".*."
    if depth < DEPTH_MAX:
        for below in inner.get("properties", {}):
            yield from _fields(inner, below, here + suffix, depth + 1)


def _type(field: Object) -> str:
    match field:
        case {"x-kubernetes-int-or-string": True}:
            return "quantity"
        case {"enum": [*values]}:
            return ", ".join(code(str(value)) for value in values)
        case {"type": "array", "items": inner}:
            return f"list of {_type(inner)}"
        case {"type": "object", "additionalProperties": dict(inner)}:
            return f"map of {_type(inner)}"
        case {"type": str(name)}:
            return name
    return "any"


def _meaning(field: Object) -> str:
    text = str(field.get("description", ""))
    if "default" in field:
        text += f" Default: `{field['default']}`."
    return text.strip()
