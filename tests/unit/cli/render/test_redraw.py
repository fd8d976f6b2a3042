"""Frames on a terminal: drawn over each other, cut to its size, and coloured by the text of a column."""

from __future__ import annotations

import io
import os

import click
import pytest

from bayplan.cli.render.redraw import ERASE_BELOW, ERASE_LINE, HOME, Redraw, coloured, takes_colours

TABLE = ["NAME   STATE     WHY", "one    pending   full", "two    odd       -"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(*frames: list[str], columns: int = 80, lines: int = 24) -> str:
    screen = Terminal()
    redraw = Redraw(screen, lambda: os.terminal_size((columns, lines)))
    for frame in frames:
        redraw.draw(frame)
    return screen.getvalue()


def test_a_shorter_frame_erases_what_the_longer_one_left() -> None:
    assert drawn(["long", "two"], ["x"]).endswith(f"{HOME}x{ERASE_LINE}{ERASE_BELOW}")


def test_an_equal_frame_is_not_written_again() -> None:
    assert drawn(["same"], ["same"]) == drawn(["same"])


def test_a_frame_higher_than_the_terminal_says_how_much_is_left_out() -> None:
    assert "… 3 more lines" in drawn(["a", "b", "c", "d"], lines=2)


def test_a_line_is_cut_at_the_edge_with_its_colours_ended() -> None:
    text = drawn([f"ab{click.style('cdef', fg='red')}gh"], columns=4)
    assert text == f"{HOME}ab\x1b[31mcd\x1b[0m{ERASE_LINE}{ERASE_BELOW}"


def test_only_cells_with_a_known_text_are_coloured() -> None:
    shown = coloured(TABLE, "STATE", {"pending": "yellow", "full": "red"})
    assert shown == [TABLE[0], "one    \x1b[33mpending\x1b[0m   full", TABLE[2]]


def test_a_table_without_the_column_stays_as_it_is() -> None:
    assert coloured(TABLE, "PHASE", {"pending": "yellow"}) == TABLE


def test_there_are_colours_on_a_terminal_unless_they_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert takes_colours(Terminal()) and not takes_colours(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not takes_colours(Terminal())
