"""How many seeds a property is tried with that draws its own random numbers."""

from __future__ import annotations

import os


def seeds(few: int, many: int) -> int:
    """Few for every change; many with HYPOTHESIS_PROFILE=thorough, as `make test-long` has it."""
    return many if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else few
