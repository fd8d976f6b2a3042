"""Frames that replace each other on a terminal without flicker, and colours for a terminal only."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO

import click

HOME, ERASE_LINE, ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The second screen of a terminal, without a cursor: what was there before returns at the end."""
STATE_COLOURS = {
    "admitted": "green",
    "running": "green",
    "evicting": "red",
    "failed": "red",
    "inactive": "bright_black",
    "suspended": "bright_black",
    "incomplete": "yellow",
    "partly running": "yellow",
    "pending": "yellow",
    "quota reserved": "cyan",
}


def takes_colours(stream: TextIO) -> bool:
    """Whether to colour: on a terminal that can, unless NO_COLOR is set."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def coloured(lines: Sequence[str], head: str, colours: Mapping[str, str]) -> list[str]:
    """A table in which the cells of one column have the colour of their text."""
    start = lines[0].find(head) if lines else -1
    if start < 0:
        return list(lines)
    after = lines[0][start + len(head) :]
    end = len(lines[0]) - len(after.lstrip()) if after.strip() else None
    return [lines[0], *(_cell_coloured(line, start, end, colours) for line in lines[1:])]


def _cell_coloured(line: str, start: int, end: int | None, colours: Mapping[str, str]) -> str:
    word = line[start:end].rstrip()
    colour = colours.get(word)
    if colour is None:
        return line
    return f"{line[:start]}{click.style(word, fg=colour)}{line[start + len(word) :]}"


class Redraw:
    """Draws frames over each other. Without a terminal each frame that differs from the last is printed."""

    def __init__(self, stream: TextIO, size: Callable[[], os.terminal_size] = shutil.get_terminal_size):
        self.stream, self.size = stream, size
        self.terminal = stream.isatty()
        self.last: tuple[list[str], os.terminal_size] | None = None

    def __enter__(self) -> Redraw:
        self._write(ENTER if self.terminal else "")
        return self

    def __exit__(self, *_: object) -> None:
        self._write(LEAVE if self.terminal else "")

    def draw(self, lines: Iterable[str]) -> None:
        """One frame, in one write; a frame like the last one is not written again."""
        frame, size = list(lines), self.size()
        if self.last == (frame, size):
            return
        if self.terminal:
            text = f"{ERASE_LINE}\r\n".join(_fitted(frame, size))
            self._write(f"{HOME}{text}{ERASE_LINE}{ERASE_BELOW}")
        else:
            self._write("\n".join([*([""] if self.last else []), *frame, ""]))
        self.last = frame, size

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def _fitted(lines: list[str], size: os.terminal_size) -> list[str]:
    """As much as the terminal shows; the last line says how many are left out."""
    shown = [_cut(line, size.columns) for line in lines[: size.lines]]
    if len(lines) > size.lines:
        shown[-1] = _cut(f"… {len(lines) - size.lines + 1} more lines", size.columns)
    return shown


def _cut(line: str, columns: int) -> str:
    """The first columns of a line; colours count for nothing and end where the line ends."""
    plain = click.unstyle(line)
    if len(plain) <= columns:
        return line
    if plain == line:
        return line[:columns]
    shown, position, index = "", 0, 0
    while index < len(line) and position < columns:
        if line[index] == "\x1b":
            end = line.index("m", index) + 1
            shown, index = shown + line[index:end], end
        else:
            shown, index, position = shown + line[index], index + 1, position + 1
    return f"{shown}\x1b[0m"
