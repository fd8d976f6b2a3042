"""Kubernetes quantities as whole numbers: milli-units of CPU, base units of everything else, rounded up."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

CPU = "cpu"
AMOUNT_MAX = 2**63 - 1

_QUANTITY = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_ABOVE_ONE = ("k", "M", "G", "T", "P", "E")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BYTES = ("memory", "ephemeral-storage")
_DIGITS_MAX = 64
_EXPONENT_MAX = 64


def parse_quantity(value: object) -> Fraction:
    """The exact number that a quantity spells. ValueError says what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a quantity such as 500m, 2 or 64Gi")
    if isinstance(value, int):
        return Fraction(value)
    text = value if isinstance(value, str) else repr(value)
    if len(text) > _DIGITS_MAX:
        raise ValueError(f"must be a quantity of at most {_DIGITS_MAX} characters")
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"must be a quantity such as 500m, 2 or 64Gi{_hint(text)}")
    sign, digits, exponent, suffix = match.groups()
    number = Fraction(digits if digits[0] != "." else f"0{digits}") * _scale(exponent, suffix or "")
    return -number if sign == "-" else number


def amount(resource: str, value: object) -> int:
    """A resource's quantity as Bayplan counts it; fractions round away from zero."""
    return _known_amount(resource, value) if isinstance(value, str) else _amount(resource, value)


def spelled(resource: str, amount: int) -> str:
    """An amount, as Bayplan counts it, in the one spelling that the API gives it: 500m, 2, 64Gi."""
    if (resource in _BYTES or resource.startswith("hugepages-")) and abs(amount) >= 1024:
        return _reduced(amount, 1024, ("", *_BINARY))
    if resource == CPU:
        return _reduced(amount, 1000, ("m", "", *_DECIMAL_ABOVE_ONE))
    return _reduced(amount, 1000, ("", *_DECIMAL_ABOVE_ONE))


def _reduced(number: int, base: int, suffixes: tuple[str, ...]) -> str:
    """The number with the largest suffix that leaves it whole."""
    if number == 0:
        return "0"
    power = 0
    while number % base == 0 and power < len(suffixes) - 1:
        number, power = number // base, power + 1
    return f"{number}{suffixes[power]}"


def _amount(resource: str, value: object) -> int:
    number = parse_quantity(value) * (1000 if resource == CPU else 1)
    whole = -(-abs(number).numerator // number.denominator)
    if whole > AMOUNT_MAX:
        raise ValueError("is larger than any machine: the limit is 2^63 - 1")
    return whole if number >= 0 else -whole


# A cluster writes the same few quantities on every node.
_known_amount = lru_cache(maxsize=4096)(_amount)


def _scale(exponent: str | None, suffix: str) -> Fraction:
    if suffix in _BINARY:
        return Fraction(2 ** _BINARY[suffix])
    power = int(exponent[1:]) if exponent else _DECIMAL[suffix]
    if power > _EXPONENT_MAX:
        raise ValueError("is larger than any machine: the limit is 2^63 - 1")
    return Fraction(10) ** max(power, -_EXPONENT_MAX)


def _hint(text: str) -> str:
    """What the writer may have meant."""
    if text != text.strip():
        return ", without blanks around it"
    if re.fullmatch(r"[\d.]+ ?([KMGTPE]B|[kmgtpe]b|[KMGTPE]iB|GB|K)", text):
        return "; units are k, M, G, T, P, E and Ki, Mi, Gi, Ti, Pi, Ei"
    return ""
