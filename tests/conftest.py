"""Tiers of tests, and the real control plane that tests of one process share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from bayplan.runtime.process.gc_tuning import collect_rarely
from tests.support.missing_parts import lacking
from tests.tiers import FAST, TIERS, longest_first, not_run, sample, shuffled, tier_of_test
from tools.controlplane.build import build, unavailable
from tools.controlplane.plan import DEFAULT_KUBE, cache_root

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

settings.register_profile("any machine", deadline=None)  # a slow machine is no mistake
settings.load_profile("any machine")

RUNNING = pytest.StashKey[str]()
"""The tier of the test that runs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=list(TIERS), help="; ".join(f"{name}: {told}" for name, told in TIERS.items())
    )
    parser.addoption("--shuffle", type=int, metavar="SEED", help="a random order, the same for a seed")
    parser.addoption("--one-in", type=int, default=1, metavar="N", help="one of N tests of the tier")


def pytest_configure(config: pytest.Config) -> None:
    """A CI machine has every extra, so that no test is left out there for want of one."""
    if config.getoption("tier") == FAST:
        collect_rarely()  # as in a process of the product
    # A shell lets what it runs in the background ignore SIGINT, and processes that tests start inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    missing = [
        name
        for name in ("cel_expr_python", "cryptography", "highspy", "matplotlib")
        if find_spec(name) is None
    ]
    if os.environ.get("CI") == "true" and missing:
        pytest.exit(f"not installed: {', '.join(missing)}; run `make venv`", returncode=1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier that was asked for, in the order in which they are to start."""
    if tier := config.getoption("tier"):
        kept = sample([item for item in items if tier_of_test(item) == tier], config.getoption("one_in"))
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept
    seed = config.getoption("shuffle")
    items[:] = longest_first(items) if seed is None else shuffled(items, seed)


def pytest_collection_finish() -> None:
    """Exempt modules and collected tests from garbage collection, which would visit them each time."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[RUNNING] = tier_of_test(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count conformance cases, and say once for each thing that this machine lacks what was not run."""
    ended = [report for outcome in ("passed", "failed") for report in terminalreporter.getreports(outcome)]
    tallies = [value for report in ended for name, value in report.user_properties if name == "cases"]
    if tallies:
        passed, failed = (sum(counts) for counts in zip(*tallies, strict=True))
        terminalreporter.write_line(f"Conformance: {passed} cases passed, {failed} failed")
    skipped = terminalreporter.getreports("skipped")
    for line in not_run(str(report.longrepr[2]) for report in skipped if isinstance(report.longrepr, tuple)):
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def control_plane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A control plane of version KUBE; BAYPLAN_CLUSTER names the state folder of one that runs already."""
    from tools.controlplane import start
    from tools.controlplane.cluster import attach

    if request.config.stash[RUNNING] == FAST:
        pytest.fail("a test asks for the control plane while it runs: mark it with pytest.mark.real")
    if running := os.environ.get("BAYPLAN_CLUSTER"):
        yield attach(Path(running))
        return
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    if reason := unavailable(kube):
        lacking(f"No real control plane: {reason}")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        build(kube, out=sys.stderr)  # the first time takes long: show how far it is
    with start.control_plane(kube, tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="session")
def cluster(control_plane: Cluster) -> Cluster:
    """The control plane, under the name that tests of it use."""
    return control_plane


@pytest.fixture(scope="session")
def program() -> str:
    """kubectl: the one of the control plane if it is built, else any."""
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    built = cache_root() / kube / "kubectl"
    found = str(built) if built.exists() else shutil.which("kubectl")
    if found is None:
        lacking(
            "Kubectl is needed to ask the embedded API server; install it, or run `make control-plane` once"
        )
    return found
