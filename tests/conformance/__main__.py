"""The command line of the conformance runner."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.conformance.known_differences import KNOWN_DIFFERENCES, read_known
from tests.conformance.registry import discover
from tests.conformance.runner import run

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(os.environ.get("CASES") or ROOT.parent / "shared" / "cases")
REPORT = ROOT / "build" / "conformance" / "report.txt"


def main(arguments: list[str] | None = None) -> int:
    """Run the case files asked for; 1 if any case fails that is not a known difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--cases", type=Path, default=CASES, metavar="DIR", help="default: %(default)s")
    parser.add_argument(
        "--only", default="*", metavar="GLOB", help="which family/file, e.g. 'kueue/placement*'"
    )
    parser.add_argument("--report", type=Path, default=REPORT, metavar="FILE", help="default: %(default)s")
    parser.add_argument(
        "--known", type=Path, default=KNOWN_DIFFERENCES, metavar="FILE", help="default: %(default)s"
    )
    options = parser.parse_args(arguments)
    return run(options.cases, options.only, discover(), read_known(options.known), options.report)


if __name__ == "__main__":
    sys.exit(main())
