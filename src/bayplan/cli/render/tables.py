"""Aligned tables for a terminal, and short texts for times and ages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from bayplan.cli.config.output import echo, echo_json
from bayplan.dialects.kube.fields.reader import printable
from bayplan.dialects.kube.fields.times import LATEST

NOTHING = "-"
Item = TypeVar("Item")
_STEPS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


@dataclass(frozen=True, slots=True)
class TableColumn(Generic[Item]):
    """One column of a table: its head, and what it shows of an item."""

    head: str
    cell: Callable[[Item], object]
    wide: bool = False  # shown with `-o wide` only
    right: bool = False  # set flush right


def column_table(columns: Iterable[TableColumn[Item]], items: Iterable[Item], *, wide: bool) -> list[str]:
    """Lines of a table with one line for each item."""
    shown = [one for one in columns if wide or not one.wide]
    rows = ([one.cell(item) for one in shown] for item in items)
    return table([one.head for one in shown], rows, [one.head for one in shown if one.right])


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], right: Iterable[str] = ()) -> list[str]:
    """Lines of a table; the columns called `right` are set flush right, empty cells become a dash."""
    cells = [[printable(str(cell)) or NOTHING for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [list(heads), *cells]) for column in range(len(heads))]
    flush = set(right)
    return [
        "   ".join(
            cell.rjust(width) if head in flush else cell.ljust(width)
            for head, cell, width in zip(heads, row, widths, strict=True)
        ).rstrip()
        for row in [list(heads), *cells]
    ]


def say(lines: Iterable[str]) -> None:
    """Print lines, with control characters escaped."""
    for line in lines:
        echo(printable(line))


def say_json(data: Any) -> None:
    """Print JSON."""
    echo_json(data)


def age(seconds: float) -> str:
    """`45s`, `12m`, `3h20m`, `9d`: two units at most, the second one only while the first is small."""
    left = max(0, int(seconds))
    for index, (length, letter) in enumerate(_STEPS):
        if left >= length:
            count, rest = divmod(left, length)
            if index + 1 < len(_STEPS) and count < 10 and (more := rest // _STEPS[index + 1][0]):
                return f"{count}{letter}{more}{_STEPS[index + 1][1]}"
            return f"{count}{letter}"
    return "0s"


def moment(seconds: float) -> str:
    """A date and time in UTC; later times than Python supports are shown as the last date."""
    return datetime.fromtimestamp(min(max(seconds, 0.0), LATEST), UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def percent(share: float) -> str:
    """A ratio in whole percent."""
    return f"{share * 100:.0f}%"
