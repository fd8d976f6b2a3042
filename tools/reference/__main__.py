"""`python -m tools.reference docs/reference`: write every generated page."""

from __future__ import annotations

import sys
from pathlib import Path

from bayplan.assembly import job_kinds_reference, settings_reference
from tools.reference.pages import PAGES


def main(folder: Path) -> None:
    """Write the pages into a folder, and name them."""
    settings_reference.write(folder)
    job_kinds_reference.write(folder)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
    for name in (settings_reference.PAGE, settings_reference.EXAMPLE, job_kinds_reference.PAGE, *PAGES):
        print(folder / name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
