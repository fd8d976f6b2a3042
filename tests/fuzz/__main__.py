"""`python -m tests.fuzz`. The command is a module of its own, for processes that are started to find it."""

from __future__ import annotations

import sys

from tests.fuzz.command import main

if __name__ == "__main__":
    sys.exit(main())
