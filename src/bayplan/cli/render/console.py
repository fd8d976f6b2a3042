"""A rich console for drawings and live views that removes control characters from what it prints."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from bayplan.dialects.kube.fields.terminal_text import clean


def console(**options: Any) -> Console:
    """A console without markup: brackets in texts are printed as they are."""
    return _CleanConsole(**{"markup": False, "emoji": False, "highlight": False, **options})


class _CleanConsole(Console):
    """Cleans text segments; control segments (colours, cursor moves) pass."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for one in super().render(renderable, options):
            yield one if one.control else Segment(clean(one.text), one.style)
