"""Every test is in one tier, each tier has a target that runs it, and a run says what it left out."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.missing_parts import LACKING, lacking
from tests.tiers import CONTROL_PLANE, FAST, LONG, REAL, TIERS, not_run, shuffled, tier_of

ROOT = Path(__file__).parents[1]
LINE = re.compile(r"^(test\S*): .*?\n((?:\t.*\n)+)", re.MULTILINE)


@pytest.mark.parametrize(
    ("marks", "fixtures", "tier"),
    [
        ((), (), FAST),
        (("parametrize",), ("tmp_path", "program"), FAST),
        (("real",), (), REAL),
        ((), ("site", "cluster", CONTROL_PLANE), REAL),
        (("long",), (), LONG),
        (("long", "real"), (CONTROL_PLANE,), LONG),
    ],
)
def test_a_test_is_in_one_tier(marks: tuple[str, ...], fixtures: tuple[str, ...], tier: str) -> None:
    assert tier_of(marks, fixtures) == tier


def test_a_fixture_that_is_called_cluster_and_is_in_memory_makes_no_test_real() -> None:
    assert tier_of((), ("cluster",)) == FAST


def test_every_tier_has_a_target_that_runs_it_and_ci_runs_them_all() -> None:
    recipes = dict(LINE.findall((ROOT / "Makefile").read_text(encoding="utf-8")))
    targets = {name: told.partition(":")[0].removeprefix("make ") for name, told in TIERS.items()}
    assert [name for name, target in targets.items() if f"--tier {name}" not in recipes[target]] == []
    command = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()[-1].split()
    assert {"check", targets[FAST], targets[REAL], f"{targets[LONG]}-slice"} <= set(command)
    assert f"--tier {LONG}" in recipes[f"{targets[LONG]}-slice"]


def test_contributing_says_which_tier_a_test_belongs_to() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(\w+)` \| `(make [\w-]+)` \|", text, re.MULTILINE) == [
        (name, told.partition(":")[0]) for name, told in TIERS.items()
    ]


def test_what_a_machine_lacks_is_told_once_with_the_number_of_tests() -> None:
    reason = f"Skipped: {LACKING}No real control plane: install Go"
    assert not_run([reason, reason, "Skipped: the extra cel is not installed"]) == [
        "Tests that were not run: 2. No real control plane: install Go"
    ]


def test_what_a_machine_lacks_skips_a_test_and_fails_it_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="lacks something: no kubectl"):
        lacking("no kubectl")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no kubectl"):
        lacking("no kubectl")


def test_a_shuffled_order_depends_on_the_seed_alone_and_keeps_files_together(
    request: pytest.FixtureRequest,
) -> None:
    items = request.session.items
    once = shuffled(items, 7)
    assert once == shuffled(items, 7)
    assert set(once) == set(items)
    files = [item.nodeid.partition("::")[0] for item in once]
    changes = sum(one != other for one, other in pairwise(files))
    assert changes == len(set(files)) - 1
