"""Conversion of our kinds between API versions; fields restored from annotations must match the schema.

An API server checks what a client sends in the version that it sends, and stores what a conversion webhook
answers without another look. So the conversion itself checks what it restores.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from bayplan.backends.embedded.schema.structural import Checker, Walker, walker
from bayplan.dialects.kueue.conversion import versions
from bayplan.dialects.kueue.conversion.workload import GROUP

Object = dict[str, Any]


def convert(obj: Object, api_version: str) -> Object:
    """The object in another version of its API; ValueError when it cannot be read. `obj` stays as it is."""
    return versions.convert(obj, api_version, fits_schema)


def fits_schema(obj: Object, known: Object) -> bool:
    """Whether an object keeps to its schema, save where it is the same as a known one."""
    rules = _rules().get((str(obj["kind"]), str(obj["apiVersion"]).rpartition("/")[2]))
    if rules is None:
        return False
    return _problems(obj, *rules) <= _problems(known, *rules)


def _problems(obj: Object, checker: Checker, walk: Walker) -> set[tuple[str, str]]:
    """What the schema says against the sections of an object: unknown fields, and broken rules."""
    sections = {key: obj[key] for key in ("spec", "status") if key in obj}
    unknown: list[str] = []
    walk(sections, (), unknown)
    return {(path, "unknown") for path in unknown} | {
        (one.field, one.message) for one in checker.check(sections)
    }


@cache
def _rules() -> dict[tuple[str, str], tuple[Checker, Walker]]:
    """What the schema of each converted kind and version says about its sections."""
    kinds = {kind for _, kind in versions.CONVERTED}
    found = {}
    for file in (files("bayplan.dialects.kueue") / "crds").iterdir():
        if not file.name.endswith(f".{GROUP}.json"):
            continue
        spec = msgspec.json.decode(file.read_bytes())["spec"]
        if spec["names"]["kind"] in kinds:
            for version in spec["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                sections = {
                    "type": "object",
                    "properties": {
                        key: below for key, below in schema["properties"].items() if key in ("spec", "status")
                    },
                }
                found[spec["names"]["kind"], version["name"]] = (Checker(sections), walker(sections))
    return found
