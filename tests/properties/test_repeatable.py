"""The same question has the same answer, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.properties.digest import answers

ROOT = Path(__file__).parents[2]


def digest(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.properties.digest"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.long
def test_answers_do_not_depend_on_how_strings_hash() -> None:
    assert digest("0") == digest("1") == digest("4242")


def test_answers_do_not_depend_on_what_was_asked_before() -> None:
    assert answers(3) == answers(3)
