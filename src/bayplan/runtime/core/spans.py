"""Spans around a step, a decision and a write, for a tracer; without one they cost nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from bayplan.dialects.api import Write, WriteOutcome


class Span(Protocol):
    """A piece of work that is being timed."""

    def note(self, **attributes: str | int | float) -> None:
        """Add what is known of it."""


class Spans(Protocol):
    """Makes spans. A span that begins within another one is a part of it."""

    enabled: bool  # whether it is worth while to find out what a span is about

    def span(self, name: str, **attributes: str | int | float) -> AbstractContextManager[Span]:
        """The block is one span; an error in it is recorded."""

    def submitted(self, write: Write) -> None:
        """A write begins, as a part of the current span."""

    def ended(self, outcome: WriteOutcome) -> None:
        """A write ended."""


class _NoSpan:
    def note(self, **attributes: str | int | float) -> None:
        """Nothing is recorded."""


class NoSpans:
    """No tracer."""

    enabled = False
    _nothing: AbstractContextManager[Span] = nullcontext(_NoSpan())

    def span(self, name: str, **attributes: str | int | float) -> AbstractContextManager[Span]:
        return self._nothing

    def submitted(self, write: Write) -> None:
        """Nothing is recorded."""

    def ended(self, outcome: WriteOutcome) -> None:
        """Nothing is recorded."""


NO_SPANS: Spans = NoSpans()
