"""Kubernetes quantities as whole numbers: milli-units of CPU, base units of everything else, rounded up."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

CPU = "cpu"
AMOUNT_MAX = 2**63 - 1
"""No quantity is larger: as in the API server, whatever says more says this."""
REQUEST_MAX = 2**62
"""No pod asks for more: amounts are compared as int64, and this leaves room to subtract what is in use."""

_QUANTITY = re.compile(
    r"([+-]?)(?:(\d+)\.?(\d*)|\.(\d+))(?:[eE]([+-]?\d+)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_ABOVE_ONE = ("k", "M", "G", "T", "P", "E")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BYTES = ("memory", "ephemeral-storage")
_LENGTH_MAX = 100_000  # longer than any annotation or label may be
_DIGITS_MAX = 64  # of more digits only the first count, and whether there are others than zero
_POWER_MAX = 64  # beyond it, a number is larger than the largest or smaller than the smallest


def parse_quantity(value: object) -> Fraction:
    """The exact number that a quantity spells. ValueError says what is wrong with it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a quantity such as 500m, 2 or 64Gi")
    if isinstance(value, int):
        return Fraction(max(-AMOUNT_MAX, min(value, AMOUNT_MAX)))
    text = value if isinstance(value, str) else repr(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None:
        raise ValueError(f"must be a quantity such as 500m, 2 or 64Gi{_hint(text)}")
    sign, whole, below, alone, exponent, suffix = match.groups()
    digits, point = _bounded(whole or "", alone or below or "")
    number = min(digits * _scale(point, exponent, suffix or ""), Fraction(AMOUNT_MAX))
    return -number if sign == "-" else number


def amount(resource: str, value: object) -> int:
    """A resource's quantity as Bayplan counts it; fractions round away from zero."""
    is_short = isinstance(value, str) and len(value) <= _DIGITS_MAX  # what is remembered stays small
    return _known_amount(resource, value) if is_short else _amount(resource, value)


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
    whole = min(-(-abs(number).numerator // number.denominator), AMOUNT_MAX)
    return whole if number >= 0 else -whole


# A cluster writes the same few quantities on every node.
_known_amount = lru_cache(maxsize=4096)(_amount)


def _bounded(whole: str, below: str) -> tuple[int, int]:
    """The digits as a number, and the power of ten it is to be taken with. Any length takes little time."""
    digits = (whole + below).lstrip("0")
    point = -len(below)
    if len(digits) > _DIGITS_MAX:
        point += len(digits) - _DIGITS_MAX
        rounded_up = int(digits[_DIGITS_MAX:].strip("0") != "")
        return int(digits[:_DIGITS_MAX]) + rounded_up, point
    return int(digits or "0"), point


def _scale(point: int, exponent: str | None, suffix: str) -> Fraction:
    """What the digits are multiplied with."""
    power = _exponent(exponent) if exponent else _DECIMAL.get(suffix, 0)
    power = max(-2 * _POWER_MAX, min(point + power, _POWER_MAX))
    return Fraction(10) ** power * (1 << _BINARY.get(suffix, 0))


def _exponent(text: str) -> int:
    digits = text.lstrip("+-").lstrip("0")
    power = int(digits or "0") if len(digits) < 10 else 10**10
    return -power if text.startswith("-") else power


def _hint(text: str) -> str:
    """What the writer may have meant."""
    if text != text.strip():
        return ", without blanks around it"
    if re.fullmatch(r"[\d.]+ ?([KMGTPE]B|[kmgtpe]b|[KMGTPE]iB|GB|K)", text):
        return "; units are k, M, G, T, P, E and Ki, Mi, Gi, Ti, Pi, Ei"
    return ""
