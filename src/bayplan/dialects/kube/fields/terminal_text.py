"""Untrusted text made safe for a terminal: control characters are escaped.

Names, messages and annotations may contain escape sequences, carriage returns or bidirectional control
characters, which are shown as escapes instead of being interpreted.
"""

from __future__ import annotations

from bayplan.dialects.kube.fields.reader import printable


def clean(text: str) -> str:
    """The text with its line breaks, and with all other control characters escaped."""
    if text.isprintable():
        return text
    return "\n".join(printable(line) for line in text.split("\n"))


def clean_json(text: str) -> str:
    """The same for JSON text, which stays JSON of the same value."""
    if text.isprintable():
        return text
    return "".join(one if one == "\n" or one.isprintable() else _escape(one) for one in text)


def _escape(one: str) -> str:
    units = one.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
