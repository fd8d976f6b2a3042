"""The input of a CEL rule: only the fields that the rule mentions, with their names in CEL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

Mentioned: TypeAlias = "Mapping[str, Mentioned] | None"
"""The fields that a rule looks at, and what of each; None is the whole."""

_ITEMS = "#"  # no name of a field: what it looks at in each item of a list
_MENTION = re.compile(r"\b(?:self|oldSelf)((?:\.[A-Za-z_]\w*\b(?!\())*)")
_EACH = re.compile(r"\.(?:all|exists|exists_one)\(\s*(\w+)\s*,([^()]*)\)")
_SIGNS = (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__"))
_NESTED = (dict, list)
_KEYWORDS = {
    *("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in"),
    *("let", "loop", "namespace", "null", "package", "return", "true", "var", "void", "while"),
}


def mentioned(text: str) -> Mentioned:
    """The fields that a rule looks at, as far as that can be told from how it is written."""
    found: Mentioned = {}
    for match in _MENTION.finditer(text):
        below = _looked_at(text, match.start(), match.end())
        for name in reversed(match[1].split(".")[1:]):
            below = {name: below}
        found = joined(found, below)
    return found


def joined(one: Mentioned, other: Mentioned) -> Mentioned:
    """What at least one of two looks at."""
    if one is None or other is None:
        return None
    both = {name: joined(one[name], other[name]) for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def _looked_at(text: str, start: int, end: int) -> Mentioned:
    """Of a field named at some place of a rule: that it is there, how many it has, parts of its items."""
    if text[end : end + 1] == ")":
        if text[:start].endswith("has("):
            return {}
        if text[:start].endswith("size("):
            return {_ITEMS: {}}
    each = _EACH.match(text, end)
    if each is None or each[2].count("'") % 2 or each[2].count('"') % 2:
        return None  # it goes on in a way that is not looked into
    found: Mentioned = {}
    for use in re.finditer(rf"\b{each[1]}\b(?:\.([A-Za-z_]\w*)\b(?!\())?", each[2]):
        found = joined(found, {use[1]: None} if use[1] else None)
    return {_ITEMS: found}


def part(value: Any, mentions: Mentioned) -> Any:
    """Of a value what is mentioned, under the names that rules use."""
    if type(value) is dict:
        if mentions is None or _ITEMS in mentions:  # counted, or gone through by key
            return {_name(key): part(item, None) for key, item in value.items() if item is not None}
        found = {}
        for name, below in mentions.items():
            item = value.get(_key(name))
            if item is not None:
                found[name] = part(item, below) if type(item) in _NESTED else item
        return found
    if type(value) is list:
        below = None if mentions is None else mentions.get(_ITEMS, {})
        return [part(item, below) for item in value]
    return value


@lru_cache(maxsize=4096)
def _name(key: str) -> str:
    """No dashes, no dots, no words of the language."""
    if key in _KEYWORDS:
        return f"__{key}__"
    if key.isidentifier() and "__" not in key:
        return key
    for sign, word in _SIGNS:
        key = key.replace(sign, word)
    return key


@lru_cache(maxsize=4096)
def _key(name: str) -> str:
    """The field that a rule calls so."""
    if name[:2] == name[-2:] == "__" and name[2:-2] in _KEYWORDS:
        return name[2:-2]
    for sign, word in reversed(_SIGNS):
        name = name.replace(word, sign)
    return name
