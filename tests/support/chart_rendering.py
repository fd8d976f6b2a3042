"""The few actions of Helm templates that our chart uses, for tests that have no helm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Object = dict[str, Any]


def at(values: Any, path: str) -> Any:
    """The value at a path."""
    for name in path.split("."):
        values = values[name]
    return values


def shares_dashboard(values: Object) -> bool:
    """Whether values put the dashboard into the main Deployment."""
    pages = values.get("dashboard", {})
    return (pages.get("enabled"), pages.get("deployment")) == (True, "shared")


def chosen_lines(text: str, holds: dict[str, bool], values: Object) -> str:
    """The lines of a template that are left, given which conditions hold and which values there are."""
    lines = iter(text.splitlines(keepends=True))
    left, ending = _block(lines, holds, values)
    assert ending == "", text
    return left


def _block(lines: Iterator[str], holds: dict[str, bool], values: Object) -> tuple[str, str]:
    """What is left up to the end of a block, and the word that ended it."""
    kept = ""
    for line in lines:
        word, _, rest = line.removeprefix("{{- ").removesuffix(" }}\n").partition(" ")
        if not line.startswith("{{- "):
            kept += line
        elif word in ("else", "end"):
            return kept, word
        elif word in ("if", "with", "range"):
            body, ending = _block(lines, holds, values)
            other = _block(lines, holds, values)[0] if ending == "else" else ""
            kept += _filled(word, rest, body, holds, values) or other
        else:
            assert word == "$grouper", line
    return kept, ""


def _filled(word: str, rest: str, body: str, holds: dict[str, bool], values: Object) -> str:
    """The body of a block as often as it is wanted."""
    negated = rest.startswith("not ")
    rest = rest.removeprefix("not ")
    path = rest.rpartition(".Values.")[2]
    if word == "if":
        condition = holds[rest] if rest in holds else bool(at(values, path))
        return body if condition != negated else ""
    one = at(values, path)
    if word == "with":
        return body.replace("{{ toJson . }}", json.dumps(one)) if one else ""
    if isinstance(one, dict):
        filled = (
            body.replace("{{ $key }}", name).replace("$value", json.dumps(told)) for name, told in one.items()
        )
        return "".join(one.replace("{{ toJson ", "").replace(" }}", "") for one in filled)
    return "".join(body.replace("{{ toJson . }}", json.dumps(item)) for item in one)
