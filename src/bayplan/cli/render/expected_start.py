"""An expected start as a sentence, as a cell of a table, and as JSON: rounded to what is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bayplan.dialects.kube.fields.times import timestamp
from bayplan.simulation.forecast.expected_starts import STEPS, ExpectedStart, rounding
from bayplan.simulation.forecast.forward_run import NEVER

NAMES_MAX = 3
UNKNOWN, NOW, NOT_AT_ALL = "unknown", "now", "never"


def sentence(expected: ExpectedStart, now: float) -> str:
    """`likely 14:10–16:30 UTC, by 21:00 if …; after b and c`, or why there is no estimate."""
    if not expected.known:
        return _no_estimate(expected)
    low, high, latest = shown_times(expected, now)
    after = f"; after {_names(expected.after)}" if expected.after else ""
    if high <= now:
        return f"{NOW}{after}"
    text = f"likely {_interval(low, high, now)} UTC"
    if latest < NEVER:
        assumed = "running jobs use their limits and nothing overtakes" if expected.limits_known else ""
        text += f", by {_clock(latest, now)} if {assumed or 'nothing overtakes'}"
    else:
        text += " if nothing overtakes"
    return text + after


def cell(expected: ExpectedStart | None, now: float) -> str:
    """`14:10–16:30`, `unknown`, or nothing for a gang that does not wait."""
    if expected is None:
        return ""
    if not expected.known:
        return UNKNOWN if expected.fits else NOT_AT_ALL
    low, high, _ = shown_times(expected, now)
    return _interval(low, high, now)


def record(expected: ExpectedStart | None, now: float) -> dict[str, Any] | None:
    """The object `expectedStart`; null for a gang that does not wait."""
    if expected is None:
        return None
    low, high, latest = shown_times(expected, now)
    is_later = now < high < NEVER  # what starts now, or never, has no times
    return {
        "from": timestamp(low) if is_later and low > now else None,
        "to": timestamp(high) if is_later else None,
        "latest": timestamp(latest) if is_later and latest < NEVER else None,
        "latestByLimits": is_later and expected.limits_known,
        "after": list(expected.after),
        "unknown": list(expected.unknown),
        "message": sentence(expected, now),
    }


def shown_times(expected: ExpectedStart, now: float) -> tuple[float, float, float]:
    """The interval and the latest time, rounded: never to the second."""
    if not expected.known:
        return NEVER, NEVER, NEVER
    if expected.high <= now:
        return now, now, now
    unit = rounding(expected)
    low = max(math.floor(expected.low / unit) * unit, now)
    high = max(math.ceil(expected.high / unit) * unit, low)
    if expected.latest == NEVER:
        return low, high, NEVER
    wide = max((step for step in STEPS if step <= (expected.latest - now) / 12), default=unit)
    latest = math.ceil(expected.latest / max(unit, wide)) * max(unit, wide)
    return low, high, max(latest, high)


def _interval(low: float, high: float, now: float) -> str:
    if high <= now:
        return NOW
    if low <= now:
        return f"by {_clock(high, now)}"
    first, last = _clock(low, now), _clock(high, now)
    return first if first == last else f"{first}–{last}"


def _clock(at: float, now: float) -> str:
    moment, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    same = moment.date() == today.date()
    return moment.strftime("%H:%M" if same else "%d %b %H:%M")


def _no_estimate(expected: ExpectedStart) -> str:
    if not expected.fits:
        return "never as things are: it does not fit even when all other gangs have ended"
    if not expected.unknown:
        return "no estimate: what it waits for has no known end"
    has = "has" if len(expected.unknown) == 1 else "have"
    return f"no estimate: {_names(expected.unknown)} {has} neither a limit nor history"


def _names(names: Sequence[str]) -> str:
    shown = [f"`{name}`" for name in names[:NAMES_MAX]]
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more} more"
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
