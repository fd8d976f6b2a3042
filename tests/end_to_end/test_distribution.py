"""`make dist`: wheel and sdist that pass the checks of an index, and a wheel that works by itself."""

from __future__ import annotations

import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bayplan import __version__
from tests.support.make_targets import making

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.real, pytest.mark.minutes(2)]


@pytest.fixture(scope="module")
def built() -> Iterator[str]:
    """What `make dist` prints; it needs a package index."""
    with making("dist") as printed:
        yield printed


def test_the_wheel_runs_a_cluster_in_an_environment_that_has_nothing_else(built: str) -> None:
    assert f"bayplan {__version__}\n" in built
    assert "Job pretrain starts: 8 pods" in built


def test_wheel_and_sdist_pass_the_checks_of_an_index(built: str) -> None:
    assert built.count("PASSED") == 2


def test_the_wheel_has_the_package_and_nothing_else(built: str) -> None:
    with zipfile.ZipFile(ROOT / "dist" / f"bayplan-{__version__}-py3-none-any.whl") as wheel:
        tops = {name.split("/")[0] for name in wheel.namelist()}
    assert tops == {"bayplan", f"bayplan-{__version__}.dist-info"}


def test_the_sdist_has_what_building_and_testing_needs(built: str) -> None:
    with tarfile.open(ROOT / "dist" / f"bayplan-{__version__}.tar.gz") as sdist:
        names = {name.split("/")[1] for name in sdist.getnames() if "/" in name}
    assert {"src", "tests", "tools", "docs", "deploy", "requirements", "Makefile", "LICENSE"} <= names
