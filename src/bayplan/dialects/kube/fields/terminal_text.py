"""Text that others wrote, made harmless for a terminal: escapes in place of whatever could steer one.

Names, messages and annotations may hold escape sequences, carriage returns or marks that turn the direction
of reading. A terminal shows them as what they are, and nothing else happens.
"""

from __future__ import annotations

from bayplan.dialects.kube.fields.reader import printable


def clean(text: str) -> str:
    """The text, with its line breaks and without any other control character."""
    if text.isprintable():
        return text
    return "\n".join(printable(line) for line in text.split("\n"))


def clean_json(text: str) -> str:
    """The same for JSON that is written already: it stays JSON of the same value."""
    if text.isprintable():
        return text
    return "".join(one if one == "\n" or one.isprintable() else _escape(one) for one in text)


def _escape(one: str) -> str:
    units = one.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
