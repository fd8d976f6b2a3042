"""Where a report says that containers sit: numbers in 89 printable characters, differences between places."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.dialects.nrt.wire import Attribute
from bayplan.model.numa import ZoneAssignment
from bayplan.model.whole_numbers import signed_number

METADATA = "topology.node.k8s.io/numaplacement-metadata"
VECTOR = "topology.node.k8s.io/numaplacement-vector"
HEAD = "npv0v001"
ENCODING = "leb89"
SEPARATOR = "::"

LAST = 64  # digits that end a number; the rest of the alphabet goes on
ALPHABET = [chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\']
DIGITS = {letter: digit for digit, letter in enumerate(ALPHABET)}
FURTHER = len(ALPHABET) - LAST
PLACES_MAX = 2**31 - 1


def seating(metadata: str, vectors: Iterable[tuple[int, str]]) -> ZoneAssignment:
    """Who sits where, by what the node says and what each of its zones says. ValueError: what is wrong."""
    fields = _fields(metadata)
    if fields.get("ve") != ENCODING:
        raise ValueError("unsupported vector encoding")
    containers, zones, busiest = (_whole(fields, name) for name in ("cc", "nn", "bn"))
    if containers < 0:
        raise ValueError("inconsistent container set")
    if zones <= 0:
        raise ValueError("inconsistent NUMA node count")
    if not 0 <= busiest < zones:
        raise ValueError("inconsistent busiest node data")
    places = {number: decoded(text) for number, text in vectors if text}
    everyone = [place for found in places.values() for place in found]
    if len(places) > zones or (places and not containers):
        raise ValueError("inconsistent NUMA vector data")
    if any(not 0 <= number < zones for number in places) or any(place >= containers for place in everyone):
        raise ValueError("corrupted NUMA vector")
    if len(set(everyone)) != len(everyone):
        raise ValueError("duplicated data in multiple NUMA vectors")
    return ZoneAssignment(containers, busiest, places)


def decoded(text: str) -> tuple[int, ...]:
    """The places in a text: the first as it is, the others as steps from the one before."""
    found: list[int] = []
    further, seen = 0, False
    for letter in text:
        digit = DIGITS.get(letter)
        if digit is None:
            raise ValueError("corrupted NUMA vector")
        if digit >= LAST:
            further, seen = further * FURTHER + digit - LAST, True
            if further > PLACES_MAX:
                raise ValueError("corrupted NUMA vector")
            continue
        number = digit + (LAST * (further + 1) if seen else 0)
        found.append(number + (found[-1] if found else 0))
        further, seen = 0, False
    if seen:
        raise ValueError("corrupted NUMA vector")
    return tuple(found)


def encoded(places: Iterable[int]) -> str:
    """The text of ascending places."""
    text, before = "", 0
    for place in places:
        text += _spelled(place - before)
        before = place
    return text


def _spelled(number: int) -> str:
    if number < LAST:
        return ALPHABET[number]
    further, last = divmod(number - LAST, LAST)
    text = ALPHABET[last]
    while True:
        further, digit = divmod(further, FURTHER)
        text = ALPHABET[LAST + digit] + text
        if not further:
            return text


def vector_of(attributes: Iterable[Attribute]) -> str:
    """The places that a zone tells of."""
    return next((one.value for one in attributes if one.name == VECTOR), "")


def _fields(metadata: str) -> dict[str, str]:
    head, *pairs = metadata.split(SEPARATOR)
    if head != HEAD:
        raise ValueError("malformed metadata")
    fields = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or not value:
            raise ValueError("malformed metadata pair")
        if name not in ("ve", "cc", "nn", "bn"):
            raise ValueError("unknown metadata field")
        fields[name] = value
    return fields


def _whole(fields: dict[str, str], name: str) -> int:
    number = signed_number(fields.get(name, "-1"))
    if number is None:
        raise ValueError(f"malformed metadata: {name} is no number")
    return number
