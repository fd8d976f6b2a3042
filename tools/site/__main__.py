"""`python -m tools.site pages FOLDER` assembles the pages, `… check FOLDER` checks what was built of them."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.site.checks import faults, read_site
from tools.site.pages import assemble


def main(step: str, folder: Path) -> int:
    """Run one step; 0 if it succeeded."""
    if step == "pages":
        assemble(folder)
        return 0
    found = list(faults(folder))
    for sentence in found:
        print(sentence, file=sys.stderr)
    if not found:
        count = len(read_site(folder))
        print(f"{count} pages in {folder}: every link leads somewhere, and none loads from elsewhere.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
