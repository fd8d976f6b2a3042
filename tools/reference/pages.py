"""The generated pages by file name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tools.reference import api_fields, commands, metrics, reasons

COMMAND = "make reference"

PAGES: Mapping[str, Callable[[], str]] = {
    "api-fields.md": api_fields.page,
    "commands.md": commands.page,
    "metrics.md": metrics.page,
    "reasons.md": reasons.page,
}
