"""`bayplan completion`: scripts that a shell accepts, and what they complete."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from bayplan.cli.commands.completion import SHELLS
from bayplan.cli.commands.main import COMMANDS, main


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_printed_that_the_shell_accepts(shell: str) -> None:
    ran = CliRunner().invoke(main, ["completion", shell])
    assert ran.exit_code == 0 and f"_BAYPLAN_COMPLETE={shell}_complete" in ran.output
    if program := shutil.which(shell):
        subprocess.run([program, "-n"], input=ran.output, text=True, check=True)


def completed(words: str) -> set[str]:
    environment = {
        **os.environ, "_BAYPLAN_COMPLETE": "bash_complete", "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }  # fmt: skip
    script = "from bayplan.cli.commands.main import main; main(prog_name='bayplan')"
    ran = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return {line.partition(",")[2] for line in ran.stdout.splitlines()}


def test_commands_subcommands_and_options_are_completed() -> None:
    assert completed("bayplan ") == set(COMMANDS)
    assert completed("bayplan list ") == {"gangs", "queues", "topologies"}
    assert "--all-namespaces" in completed("bayplan list gangs --")
