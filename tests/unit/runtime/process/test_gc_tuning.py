"""Long-running processes collect garbage rarely."""

from __future__ import annotations

import gc

import pytest
from click.testing import CliRunner

from bayplan.cli.commands.main import main
from bayplan.runtime.process import gc_tuning


@pytest.mark.parametrize(
    "command", [["run", "--kubeconfig", "nowhere"], ["up", "--nodes", "1", "--no-mix", "--for", "0"]]
)
def test_garbage_is_looked_for_rarely(command: list[str]) -> None:
    before = gc.get_threshold()
    try:
        CliRunner().invoke(main, command)
        assert gc.get_threshold() == (gc_tuning.YOUNG, gc_tuning.MIDDLE, gc_tuning.OLD)
    finally:
        gc.set_threshold(*before)
