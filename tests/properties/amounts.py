"""How many seeds a property is tried with that draws its own random numbers."""

from __future__ import annotations

import os


def seeds(few: int, many: int) -> int:
    """Few for every change; many where HYPOTHESIS_PROFILE asks for a longer look, as `make test-long` does."""
    return many if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else few
