"""Spans of time as kubectl shows them: 5s, 3m20s, 4h5m, 2d3h, 12d, 1y40d."""

from __future__ import annotations

from datetime import datetime

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def shown(seconds: float) -> str:
    """A duration; the longer it is, the fewer units are shown."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def seconds(text: str) -> float:
    """An API time as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def since(text: str | None, now: float) -> str:
    """How long ago a time was."""
    return shown(now - seconds(text)) if text else "<unknown>"


def _two(whole: int, large: int, large_sign: str, small: int, small_sign: str) -> str:
    first, rest = divmod(whole, large)
    second = rest // small
    return f"{first}{large_sign}{second}{small_sign}" if second else f"{first}{large_sign}"
