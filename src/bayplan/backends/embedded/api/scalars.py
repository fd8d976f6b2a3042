"""Quantities and times in the one form in which the API answers them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from functools import lru_cache

from bayplan.dialects.kube.fields.quantity import parse_quantity

QUANTITY_RULE = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"

_DECIMAL = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")  # 10^-9 and every third power above
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")


@lru_cache(maxsize=8192)
def quantity(value: str | int | float) -> str:
    """The canonical spelling: 2048Mi is 2Gi, 0.5 is 500m. ValueError with upstream's sentence."""
    text = str(value).strip()
    try:
        amount = parse_quantity(text)
    except ValueError:
        raise ValueError(QUANTITY_RULE) from None
    if amount == 0:
        return "0"
    if text[-1] == "i" and abs(amount) >= 1024:
        return _binary(amount.numerator, amount.denominator)
    scaled = -(-abs(amount).numerator * 10**9 // amount.denominator)  # whole nano-units, away from zero
    power = 0
    while scaled % 1000 == 0 and power < len(_DECIMAL) - 1:
        scaled, power = scaled // 1000, power + 1
    suffix = _DECIMAL[power]
    if re.search(r"[eE][+-]?\d", text):
        suffix = f"e{3 * power - 9}" if power != 3 else ""
    return f"{'-' if amount < 0 else ''}{scaled}{suffix}"


@lru_cache(maxsize=8192)
def number(value: str) -> Fraction:
    """The number that a canonical quantity spells."""
    return parse_quantity(value)


def _binary(numerator: int, denominator: int) -> str:
    if denominator != 1:
        return quantity(str(-(-numerator * 1000 // denominator)) + "m")
    power = 0
    while numerator % 1024 == 0 and power < len(_BINARY) - 1:
        numerator, power = numerator // 1024, power + 1
    return f"{numerator}{_BINARY[power]}"


def time(value: str) -> str:
    """A time in UTC, in whole seconds. ValueError when it is none."""
    return value if len(value) == 20 and _plain(value) else f"{_parsed(value):%Y-%m-%dT%H:%M:%SZ}"


def microtime(value: str) -> str:
    """A time in UTC, in microseconds, of which all six digits must be given."""
    moment = _parsed(value)
    if not re.search(r"\.\d{6}(?!\d)", value):
        message = f'parsing time "{value}" as "2006-01-02T15:04:05.000000Z07:00"'
        raise ValueError(f'{message}: cannot parse "{value[19:]}" as ".000000"')
    return f"{moment:%Y-%m-%dT%H:%M:%S.%fZ}"


def at(seconds: float) -> str:
    """A moment of the store's clock as the API writes it."""
    return _at(int(seconds))


@lru_cache(maxsize=64)
def _at(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


@lru_cache(maxsize=1024)
def _plain(value: str) -> bool:
    return value == f"{_parsed(value):%Y-%m-%dT%H:%M:%SZ}"


def _parsed(value: str) -> datetime:
    if not _TIME.fullmatch(value):
        raise ValueError(
            f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"'
        )
    return datetime.fromisoformat(value.upper()).astimezone(UTC)
