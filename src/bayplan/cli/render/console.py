"""The way out to a terminal for tables, drawings and live views, which are cleaned like any other text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from bayplan.dialects.kube.fields.terminal_text import clean


def console(**options: Any) -> Console:
    """A console for tables, drawings and live views; brackets in a text are no markup."""
    return _CleanConsole(**{"markup": False, "emoji": False, "highlight": False, **options})


class _CleanConsole(Console):
    """Cleans what is shown, but not what it says to the terminal itself: colours, and where to write."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for one in super().render(renderable, options):
            yield one if one.control else Segment(clean(one.text), one.style)
