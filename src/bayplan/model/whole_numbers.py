"""Integers from labels and annotations, which are untrusted text of any length in any script."""

from __future__ import annotations

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_DIGITS_MAX = 19  # of 2^63 - 1


def whole_number(text: str | None, most: int = INT64_MAX) -> int | None:
    """The non-negative integer in decimal digits; None if the text is no such number, or exceeds `most`.

    Only ASCII digits count, and very long texts are never converted.
    """
    if not text or not text.isascii() or not text.isdigit():
        return None
    digits = text.lstrip("0") or "0"
    if len(digits) > _DIGITS_MAX:
        return None
    number = int(digits)
    return number if number <= most else None


def signed_number(text: str | None, most: int = INT64_MAX) -> int | None:
    """The same with an optional sign; None if the absolute value exceeds `most`."""
    if not text:
        return None
    number = whole_number(text[1:] if text[0] in "+-" else text, most)
    return -number if number is not None and text[0] == "-" else number
