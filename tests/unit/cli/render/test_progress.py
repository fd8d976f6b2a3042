"""What a command says on standard error while it takes long."""

from __future__ import annotations

import io
import threading

from bayplan.cli.render.progress import CLEAR, Progress


class Screen(io.StringIO):
    """A terminal that says when something was written to it."""

    def __init__(self, terminal: bool = True) -> None:
        super().__init__()
        self.terminal, self.written = terminal, threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.written.set()
        return super().write(text)


def test_a_stage_that_takes_long_is_told_and_taken_away_from_a_terminal() -> None:
    screen = Screen()
    with Progress(screen, after=0.0).stage("reading nodes"):
        assert screen.written.wait(30)
    assert screen.getvalue() == f"{CLEAR}reading nodes …{CLEAR}"


def test_where_no_terminal_is_a_stage_is_one_line() -> None:
    screen = Screen(terminal=False)
    progress = Progress(screen, after=0.0)
    with progress.stage("reading nodes"):
        assert screen.written.wait(30)
    screen.written.clear()
    with progress.stage("deciding"):
        assert screen.written.wait(30)
    assert screen.getvalue() == "reading nodes …\ndeciding …\n"


def test_a_quick_command_says_nothing() -> None:
    screen = Screen()
    progress = Progress(screen, after=3600.0)
    with progress.stage("reading nodes"):
        pass
    assert list(progress.counted("nodes", range(2000))) == list(range(2000))
    assert screen.getvalue() == ""


def test_the_objects_read_so_far_are_counted() -> None:
    screen = Screen()
    read = []
    for item in Progress(screen, after=0.0).counted("nodes", range(1200)):
        read.append(item)
        assert item or screen.written.wait(30)
    assert read == list(range(1200))
    assert "reading 1,000 nodes …" in screen.getvalue()
    assert screen.getvalue().endswith(CLEAR)
