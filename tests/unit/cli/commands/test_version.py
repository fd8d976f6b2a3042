"""`bayplan version` and `--version`."""

from __future__ import annotations

import json
import platform

from click.testing import CliRunner

from bayplan import __version__
from bayplan.cli.commands.main import main


def test_both_ways_to_ask_name_the_version() -> None:
    for arguments in (["--version"], ["version"]):
        ran = CliRunner().invoke(main, arguments)
        assert ran.output.splitlines()[0] == f"bayplan {__version__}"


def test_the_version_as_json_names_python_and_the_installed_extras() -> None:
    found = json.loads(CliRunner().invoke(main, ["version", "-o", "json"]).output)
    assert found["version"] == __version__ and found["python"] == platform.python_version()
    assert set(found["extras"]) <= {"exact", "cel", "sim", "tracing"}
