"""What a test needs and this machine lacks: skipped with a reason, but never where CI runs."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

LACKING = "this machine lacks something: "
"""How the reason of such a skip begins; the summary of a run repeats what follows, once."""


def lacking(reason: str) -> NoReturn:
    """Leave the test out; on a CI machine, which must have everything, fail it."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(f"{LACKING}{reason}")
