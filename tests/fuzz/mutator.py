"""Changes to valid JSON values: odd values of the same type, values of another type, and odd shapes.

Everything is drawn from the `random.Random` that is handed in, so that a seed and a number give the same
value in every process.
"""

from __future__ import annotations

import json
import marshal
from random import Random
from typing import Any

Object = dict[str, Any]
Step = str | int

DIGITS_MANY = "9" * 5000  # more than Python turns into a number without being asked to
TEXTS: tuple[str, ...] = (
    *("", " ", "0", "1", "-1", "2", "7", "00", "+1", "1_000", "0x10", " 5 ", "1.5", "-0"),
    *("²", "٣", "１２", "Ⅷ", "½", "۱۲۳۴", DIGITS_MANY, "-" + DIGITS_MANY, "1" + "0" * 4299),
    *("NaN", "nan", "inf", "-inf", "1e308", "1e400", "-1e308", "1e-400", "1e99999999", "0.1e-3"),
    *("10P", "7Ei", "9999999Ei", "1Zi", "1n", "1u", "-5m", "100m", "3Gi", "1e3Ki", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775808", "18446744073709551616", "2147483647", "2147483648"),
    *("true", "false", "null", "None", "{}", "[]", '{"a":', "[1,2", '[{"topology":"rack","size":"x"}]', '"'),
    *("a/b", "/", "//", "a//b", "..", "../..", ".", "a=b", "a,b", "a b", "-a", "a-", "A", "x" * 63, "x" * 64),
    *("x" * 300, "é", "🙂", "\x00", "\x1b[31m", "\u202e", "\n", "%s", "{0}", "$(a)", "\ufeff", "\ud7ff"),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "2026-01-01T00:00:00+23:59"),
    *("2026-11-16T10:00:00.123456789Z", "1970-01-01T00:00:00Z", "292277026596-12-04T15:30:08Z", "2026-11-16"),
    *("10s", "-1h", "999999999h", "1h1h", "In", "NotIn", "Exists", "Gt", "Lt", "Equal", "NoSchedule"),
    *("Never", "Always", "Pending", "Running", "Succeeded", "Failed", "Unknown", "True", "False"),
    *("Hold", "HoldAndDrain", "BestEffortFIFO", "StrictFIFO", "Any", "LowerPriority", "Indexed", "auto"),
)
WHOLE: tuple[int, ...] = (
    *(0, 1, 2, 3, 4, 5, 7, 8, 16, 63, 100, 1000, 4096, -1, -2, -1000),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), 10**6, 10**9, 10**18),
)
FRACTIONS: tuple[float, ...] = (0.0, 0.5, -0.5, 1.5, 1e-9, 1e18, 1e19, 1e300, 1.7e308, -1e300, 2.0, 1e6)
"""JSON has neither NaN nor infinity."""
SIMPLE: tuple[Any, ...] = (None, True, False, 0, 1, -1, 2**63 - 1, 0.5, "", "x", "1")
DEEP_MARK = "$deep"
"""Stands for a deep value in a case: how many levels, and whether of lists. JSON files could not hold it."""
LONG = 60  # elements of a list that was made long
DEEP = (30, 200, 900, 2100)  # levels of a value that was made deep


class Mutator:
    """Changes values. `words` are texts that mean something where the value is used: names, labels, …"""

    def __init__(self, words: tuple[str, ...] = (), deep: tuple[int, ...] = DEEP) -> None:
        self.words, self.deep = words, deep

    def changed(self, rng: Random, value: Any, *, typed: bool, below: tuple[Step, ...] = ()) -> Any:
        """A copy of the value with a few changes below a path; `typed`: each leaf keeps its type."""
        fresh = copied(value)
        start = fresh
        for step in below:
            start = start[step]
        spots = places(start)
        if not spots:
            return fresh
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
            holder, step = rng.choice(spots)
            if (step in holder) if isinstance(holder, dict) else (int(step) < len(holder)):
                self._change(rng, holder, step, typed)
        return fresh

    def text(self, rng: Random) -> str:
        """An odd text, or a word that means something."""
        if self.words and rng.random() < 0.4:
            return rng.choice(self.words)
        return rng.choice(TEXTS)

    def odd(self, rng: Random, like: Any) -> Any:
        """An odd value of the same type."""
        match like:
            case bool():
                return not like
            case int():
                return rng.choice((*WHOLE, like + 1, like - 1, like * 10))
            case float():
                return rng.choice(FRACTIONS)
            case str():
                return self.text(rng)
            case list():
                return self._list(rng, like)
            case dict():
                return self._mapping(rng, like)
        return rng.choice(SIMPLE)

    def any(self, rng: Random) -> Any:
        """A value of any type."""
        match rng.randrange(10):
            case 0 | 1:
                return rng.choice(SIMPLE)
            case 2 | 3:
                return self.text(rng)
            case 4:
                return rng.choice(WHOLE)
            case 5:
                return rng.choice(FRACTIONS)
            case 6:
                return [self.any(rng) for _ in range(rng.randrange(4))]
            case 7 | 8:
                return {self.text(rng)[:80]: self.any(rng) for _ in range(rng.randrange(4))}
        return {DEEP_MARK: [rng.choice(self.deep), rng.random() < 0.5]}

    def _change(self, rng: Random, holder: Any, step: Any, typed: bool) -> None:
        what = rng.random()
        if what < 0.15 and isinstance(holder, dict):
            del holder[step]
        elif what < 0.2 and isinstance(holder, dict):
            holder[self.text(rng)[:80]] = copied(holder[step])
        elif typed or what < 0.6:
            holder[step] = self.odd(rng, holder[step])
        else:
            holder[step] = self.any(rng)

    def _list(self, rng: Random, like: list[Any]) -> list[Any]:
        match rng.randrange(4):
            case 0:
                return []
            case 1:
                return [*like, *(copied(one) for one in like)]
            case 2 if like:
                return [copied(rng.choice(like)) for _ in range(LONG)]
        return [*reversed(like)]

    def _mapping(self, rng: Random, like: Object) -> Object:
        match rng.randrange(4):
            case 0:
                return {}
            case 1 if like:
                swapped = [*like.values()]
                rng.shuffle(swapped)
                return dict(zip(like, swapped, strict=True)) if _alike(swapped) else like
            case 2 if like and all(isinstance(one, str) for one in like.values()):
                return {**like, **{f"{self.text(rng)[:60]}{n}": self.text(rng) for n in range(LONG)}}
        return {**like, self.text(rng)[:80]: self.text(rng)}


def _alike(values: list[Any]) -> bool:
    return len({type(one) for one in values}) == 1


def copied(value: Any) -> Any:
    """A value with fresh lists and dicts all the way down."""
    return marshal.loads(marshal.dumps(value))


def expanded(value: Any) -> Any:
    """As `copied`, with deep values where a case only marks them."""
    if type(value) is dict:
        if _is_mark(value):
            return nested(*value[DEEP_MARK])
        return {key: expanded(item) for key, item in value.items()}
    if type(value) is list:
        return [expanded(item) for item in value]
    return value


def encoded(value: Any) -> bytes:
    """As JSON; deep values are written down without a function that calls itself for each level."""
    marks: list[tuple[int, bool]] = []
    text = json.dumps(value)
    if DEEP_MARK in text:
        text = json.dumps(_numbered(value, marks))
    for at, (levels, lists) in enumerate(marks):
        begin, end = ("[", "]") if lists else ('{"a":', "}")
        text = text.replace(f'"{DEEP_MARK}{at}$"', f'{begin * levels}"x"{end * levels}')
    return text.encode(errors="replace")


def _numbered(value: Any, marks: list[tuple[int, bool]]) -> Any:
    if type(value) is dict:
        if _is_mark(value):
            marks.append((value[DEEP_MARK][0], value[DEEP_MARK][1]))
            return f"{DEEP_MARK}{len(marks) - 1}$"
        return {key: _numbered(item, marks) for key, item in value.items()}
    if type(value) is list:
        return [_numbered(item, marks) for item in value]
    return value


def _is_mark(value: Object) -> bool:
    match value.get(DEEP_MARK):
        case [int(levels), bool()]:
            return 0 <= levels <= max(DEEP)
    return False


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every entry of every list and mapping inside, as its holder and its key."""
    found: list[tuple[Any, Any]] = []
    open_: list[Any] = [value]
    while open_:
        holder = open_.pop()
        steps = holder if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for step in steps:
            found.append((holder, step))
            if type(holder[step]) in (dict, list):
                open_.append(holder[step])
    return found


def nested(levels: int, lists: bool) -> Any:
    """A value that holds a value that holds a value."""
    found: Any = "x"
    for _ in range(levels):
        found = [found] if lists else {"a": found}
    return found
