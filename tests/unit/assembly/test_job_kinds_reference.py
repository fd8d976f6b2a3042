"""The reference of job kinds."""

from __future__ import annotations

from pathlib import Path

from bayplan.assembly import job_kinds_reference
from bayplan.dialects.jobs.kinds import KINDS

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def test_the_reference_of_job_kinds_is_up_to_date() -> None:
    again = f"write it again: {job_kinds_reference.COMMAND}"
    found = (REFERENCE / job_kinds_reference.PAGE).read_text(encoding="utf-8")
    assert found == job_kinds_reference.page(), again


def test_the_reference_names_every_kind_that_can_be_queued(tmp_path: Path) -> None:
    job_kinds_reference.write(tmp_path)
    text = (tmp_path / job_kinds_reference.PAGE).read_text(encoding="utf-8")
    assert all(f"| {kind} |" in text for kind in KINDS)
