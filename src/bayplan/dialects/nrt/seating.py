"""NUMA placement attributes of a NodeResourceTopology: the containers on each zone.

A vector lists container numbers as differences, in a variable-length encoding with 89 printable characters.
"""

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

FINAL_DIGITS = 64  # digits that end a number; those above continue it
ALPHABET = [chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"&<>\\']
DIGITS = {letter: digit for digit, letter in enumerate(ALPHABET)}
CONTINUATION_DIGITS = len(ALPHABET) - FINAL_DIGITS
PLACES_MAX = 2**31 - 1


def zone_assignment(metadata: str, vectors: Iterable[tuple[int, str]]) -> ZoneAssignment:
    """The containers of each zone, from the node's metadata and the zones' vectors. Raises ValueError."""
    fields = _fields(metadata)
    if fields.get("ve") != ENCODING:
        raise ValueError("unsupported vector encoding")
    containers, zones, busiest_zone = (_integer(fields, name) for name in ("cc", "nn", "bn"))
    if containers < 0:
        raise ValueError("inconsistent container set")
    if zones <= 0:
        raise ValueError("inconsistent NUMA node count")
    if not 0 <= busiest_zone < zones:
        raise ValueError("inconsistent busiest node data")
    containers_by_zone = {zone: decoded_vector(vector) for zone, vector in vectors if vector}
    numbers = [container for listed in containers_by_zone.values() for container in listed]
    if len(containers_by_zone) > zones or (containers_by_zone and not containers):
        raise ValueError("inconsistent NUMA vector data")
    if any(not 0 <= zone < zones for zone in containers_by_zone) or any(
        container >= containers for container in numbers
    ):
        raise ValueError("corrupted NUMA vector")
    if len(set(numbers)) != len(numbers):
        raise ValueError("duplicated data in multiple NUMA vectors")
    return ZoneAssignment(containers, busiest_zone, containers_by_zone)


def decoded_vector(text: str) -> tuple[int, ...]:
    """The numbers in a vector: the first one as it is, the others as differences from the one before."""
    numbers: list[int] = []
    continuation, continued = 0, False
    for letter in text:
        digit = DIGITS.get(letter)
        if digit is None:
            raise ValueError("corrupted NUMA vector")
        if digit >= FINAL_DIGITS:
            continuation, continued = continuation * CONTINUATION_DIGITS + digit - FINAL_DIGITS, True
            if continuation > PLACES_MAX:
                raise ValueError("corrupted NUMA vector")
            continue
        number = digit + (FINAL_DIGITS * (continuation + 1) if continued else 0)
        numbers.append(number + (numbers[-1] if numbers else 0))
        continuation, continued = 0, False
    if continued:
        raise ValueError("corrupted NUMA vector")
    return tuple(numbers)


def encoded_vector(numbers: Iterable[int]) -> str:
    """The vector of ascending numbers."""
    text, previous = "", 0
    for number in numbers:
        text += _encoded_number(number - previous)
        previous = number
    return text


def _encoded_number(number: int) -> str:
    if number < FINAL_DIGITS:
        return ALPHABET[number]
    continuation, last = divmod(number - FINAL_DIGITS, FINAL_DIGITS)
    text = ALPHABET[last]
    while True:
        continuation, digit = divmod(continuation, CONTINUATION_DIGITS)
        text = ALPHABET[FINAL_DIGITS + digit] + text
        if not continuation:
            return text


def vector_of(attributes: Iterable[Attribute]) -> str:
    """The vector in the attributes of a zone; empty if there is none."""
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


def _integer(fields: dict[str, str], name: str) -> int:
    number = signed_number(fields.get(name, "-1"))
    if number is None:
        raise ValueError(f"malformed metadata: {name} is no number")
    return number
