"""The text of a device selector: what of a device it mentions, and how the CEL library has to be asked.

Kubernetes gives an empty map for an unknown domain of attributes or capacities. The library has no maps with
a default, so that `device.attributes[x]` becomes `device.attributes[?x].orValue(dyn({}))`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

LENGTH_MAX = 10 * 1024
ATTRIBUTES, CAPACITY = "attributes", "capacity"
_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*)
    |(?P<text>[rRbB]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<word>[A-Za-z_]\w*)
    |(?P<other>&&|\|\||==|!=|<=|>=|\d[\w.]*|.)""",
    re.VERBOSE | re.DOTALL,
)
_SIMPLE_TEXT = re.compile(r"""(["'])([^"'\\]*)\1""")
_DRIVER_ONLY = re.compile(r"""\s*device\.driver\s*==\s*(["'])([^"'\\]*)\1\s*""")
_STARTS_OPERAND = frozenset(("(", "!", "&&", "||", "?", ":", ",", ""))


@dataclass(frozen=True, slots=True)
class Mentions:
    """What of a device decides the answer of an expression.

    `names`: attributes or capacities by sort, domain and id; without an id the whole domain, without a domain
    all of that sort. None: everything.
    """

    names: frozenset[tuple[str, str, str]] | None = frozenset()
    driver: bool = False
    shareable: bool = False


EVERYTHING = Mentions(None, True, True)


@dataclass(frozen=True, slots=True)
class _Piece:
    sort: str
    text: str


def only_driver(expression: str) -> str | None:
    """The driver, if the expression asks for nothing else: the commonest one of all."""
    match = _DRIVER_ONLY.fullmatch(expression)
    return match[2] if match is not None else None


@lru_cache(maxsize=1024)
def for_library(expression: str) -> str:
    """The expression as the library has to be asked."""
    pieces = _pieces(expression, blanks=True)
    solid = [at for at, piece in enumerate(pieces) if piece.sort != "blank"]
    maps = _bound_names([pieces[at] for at in solid])
    inserted: dict[int, str] = {}
    for number in range(len(solid)):
        opening = _opening(pieces, solid, number, maps)
        if opening is None:
            continue
        closing = _closing(pieces, solid, opening)
        if closing is None or pieces[solid[opening + 1]].text == "?":
            continue
        inserted[solid[opening]] = inserted.get(solid[opening], "") + "?"
        inserted[solid[closing]] = inserted.get(solid[closing], "") + ".orValue(dyn({}))"
    return "".join(piece.text + inserted.get(at, "") for at, piece in enumerate(pieces))


@lru_cache(maxsize=1024)
def mentions(expression: str) -> Mentions:
    """What an expression mentions; everything if that cannot be read from its text."""
    pieces = _pieces(expression, blanks=False)
    names: set[tuple[str, str, str]] = set()
    driver = shareable = False
    for at, piece in enumerate(pieces):
        if piece.text != "device" or piece.sort != "word" or _text(pieces, at - 1) == ".":
            continue
        member = _text(pieces, at + 2) if _text(pieces, at + 1) == "." else ""
        if member == "driver":
            driver = True
        elif member == "allowMultipleAllocations":
            shareable = True
        elif member in (ATTRIBUTES, CAPACITY):
            names.add(_mention(pieces, at, member))
        else:
            return EVERYTHING
    return Mentions(frozenset(names), driver or any(domain for _, domain, _ in names), shareable)


def _mention(pieces: list[_Piece], at: int, member: str) -> tuple[str, str, str]:
    """What `device.attributes` at this place is followed by: a domain and an id, if both are literals."""
    after = at + 3
    if _text(pieces, after) != "[":
        return member, "", ""
    after += 2 if _text(pieces, after + 1) == "?" else 1
    domain = _literal(pieces, after)
    if not domain or _text(pieces, after + 1) != "]":
        return member, "", ""
    after += 2
    if _text(pieces, after) == ".":
        after += 2 if _text(pieces, after + 1) == "?" else 1
        follows = _text(pieces, after + 1)
        name = _text(pieces, after)
        return member, domain, "" if follows == "(" else name
    if _text(pieces, after) == "[":
        after += 2 if _text(pieces, after + 1) == "?" else 1
        name = _literal(pieces, after)
        return member, domain, name if _text(pieces, after + 1) == "]" else ""
    sought = _literal(pieces, at - 2) if _text(pieces, at - 1) == "in" else ""
    return member, domain, sought if _text(pieces, at - 3) in _STARTS_OPERAND else ""


def _pieces(expression: str, *, blanks: bool) -> list[_Piece]:
    found = (_Piece(match.lastgroup or "", match[0]) for match in _TOKEN.finditer(expression))
    return [piece for piece in found if blanks or piece.sort != "blank"]


def _text(pieces: list[_Piece], at: int) -> str:
    return pieces[at].text if 0 <= at < len(pieces) else ""


def _literal(pieces: list[_Piece], at: int) -> str:
    match = _SIMPLE_TEXT.fullmatch(_text(pieces, at))
    return match[2] if match is not None else ""


def _bound_names(pieces: list[_Piece]) -> frozenset[str]:
    """Names that `cel.bind` gives to one of the outer maps."""
    found = set()
    for at in range(len(pieces)):
        words = [_text(pieces, at + number) for number in range(10)]
        is_bind = words[:4] == ["cel", ".", "bind", "("] and words[5:8] == [",", "device", "."]
        if is_bind and words[8] in (ATTRIBUTES, CAPACITY) and words[9] == ",":
            found.add(words[4])
    return frozenset(found)


def _opening(pieces: list[_Piece], solid: list[int], number: int, maps: frozenset[str]) -> int | None:
    """Where the index of an outer map begins, if such a map stands at this place."""
    words = [pieces[at].text for at in solid[number : number + 4]]
    before = pieces[solid[number - 1]].text if number else ""
    if before == "." or pieces[solid[number]].sort != "word":
        return None
    if words[0] in maps and words[1:2] == ["["]:
        return number + 1
    if words[:2] == ["device", "."] and words[2:3] in ([ATTRIBUTES], [CAPACITY]) and words[3:4] == ["["]:
        return number + 3
    return None


def _closing(pieces: list[_Piece], solid: list[int], opening: int) -> int | None:
    depth = 0
    for number in range(opening, len(solid)):
        word = pieces[solid[number]].text
        depth += (word == "[") - (word == "]")
        if depth == 0:
            return number
    return None
