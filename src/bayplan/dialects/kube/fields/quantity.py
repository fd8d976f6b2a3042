"""Kubernetes quantities as integers: milli-units of CPU, base units of all other resources, rounded up."""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

CPU = "cpu"
AMOUNT_MAX = 2**63 - 1
"""The largest quantity; larger ones are clamped, as in the API server."""
REQUEST_MAX = 2**62
"""The largest request of a pod: amounts are int64, and this leaves room to subtract the usage."""

_QUANTITY = re.compile(
    r"([+-]?)(?:(\d++)\.?(\d*+)|\.(\d++))(?:[eE]([+-]?\d++)|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)  # "++" does not backtrack: a long row of digits with a wrong end would take quadratic time
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_ABOVE_ONE = ("k", "M", "G", "T", "P", "E")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_BYTES = ("memory", "ephemeral-storage")
_LENGTH_MAX = 100_000  # longer than any annotation or label may be
_DIGITS_MAX = 64  # further digits only decide the rounding
_POWER_MAX = 64  # beyond this, a number is clamped or rounds to the smallest


def parse_quantity(value: object) -> Fraction:
    """The exact value of a quantity. ValueError says what is wrong with it."""
    return max(Fraction(-AMOUNT_MAX), min(unclamped_quantity(value), Fraction(AMOUNT_MAX)))


def unclamped_quantity(value: object) -> Fraction:
    """The exact value of a quantity, also of one that is too large to be an amount."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a quantity such as 500m, 2 or 64Gi")
    if isinstance(value, int):
        return Fraction(value)
    text = value if isinstance(value, str) else repr(value)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None:
        raise ValueError(f"must be a quantity such as 500m, 2 or 64Gi{_hint(text)}")
    sign, whole, below, alone, exponent, suffix = match.groups()
    digits, point = _bounded(whole or "", alone or below or "")
    number = digits * _scale(point, exponent, suffix or "")
    return -number if sign == "-" else number


def amount(resource: str, value: object) -> int:
    """A quantity of a resource as Bayplan counts it; fractions round away from zero."""
    is_short = isinstance(value, str) and len(value) <= _DIGITS_MAX  # keeps the cache small
    return _cached_amount(resource, value) if is_short else _amount(resource, value)


def formatted(resource: str, amount: int) -> str:
    """An amount, as Bayplan counts it, in the canonical form of the API: 500m, 2, 64Gi."""
    if (resource in _BYTES or resource.startswith("hugepages-")) and abs(amount) >= 1024:
        return _reduced(amount, 1024, ("", *_BINARY))
    if resource == CPU:
        return _reduced(amount, 1000, ("m", "", *_DECIMAL_ABOVE_ONE))
    return _reduced(amount, 1000, ("", *_DECIMAL_ABOVE_ONE))


def _reduced(number: int, base: int, suffixes: tuple[str, ...]) -> str:
    """The number with the largest suffix that leaves it an integer."""
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


# Few quantities occur on all nodes.
_cached_amount = lru_cache(maxsize=4096)(_amount)


def _bounded(whole: str, below: str) -> tuple[int, int]:
    """The digits as a number, and its power of ten. The time does not grow with the length."""
    digits = (whole + below).lstrip("0")
    point = -len(below)
    if len(digits) > _DIGITS_MAX:
        point += len(digits) - _DIGITS_MAX
        rounded_up = int(digits[_DIGITS_MAX:].strip("0") != "")
        return int(digits[:_DIGITS_MAX]) + rounded_up, point
    return int(digits or "0"), point


def _scale(point: int, exponent: str | None, suffix: str) -> Fraction:
    """The factor of the digits."""
    power = _exponent(exponent) if exponent else _DECIMAL.get(suffix, 0)
    power = max(-2 * _POWER_MAX, min(point + power, _POWER_MAX))
    return Fraction(10) ** power * (1 << _BINARY.get(suffix, 0))


def _exponent(text: str) -> int:
    digits = text.lstrip("+-").lstrip("0")
    power = int(digits or "0") if len(digits) < 10 else 10**10
    return -power if text.startswith("-") else power


def _hint(text: str) -> str:
    """A suggestion for an invalid quantity."""
    if text != text.strip():
        return ", without blanks around it"
    if re.fullmatch(r"[\d.]+ ?([KMGTPE]B|[kmgtpe]b|[KMGTPE]iB|GB|K)", text):
        return "; units are k, M, G, T, P, E and Ki, Mi, Gi, Ti, Pi, Ei"
    return ""
