"""What the tests of commands have in common."""

from __future__ import annotations

import pytest

from bayplan.cli.render import progress


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine would add what a command is doing to what it says."""
    monkeypatch.setattr(progress, "LOGGED_AFTER", 3600.0)
