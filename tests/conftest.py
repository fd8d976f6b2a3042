"""The real control plane: one for all tests of a run that want it, wherever they are."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.lacking import lacking
from tools.controlplane.build import build, unavailable
from tools.controlplane.plan import DEFAULT_KUBE, cache_root

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

SKIPPED = pytest.StashKey[str]()
REAL = "control plane"
"""The group of all tests that share the real control plane: with several workers, one worker has them all."""

IN_MEMORY = {"test_embedded_kubectl.py", "test_examples_embedded.py", "test_up.py"}
"""End-to-end tests that need no real control plane."""


class Sharing(LoadScopeScheduling):  # type: ignore[misc]
    """Several workers share the tests: those of a file stay together, and so do all on the control plane."""

    def _split_scope(self, nodeid: str) -> str:
        path = PurePosixPath(nodeid.partition("::")[0])
        real = {"end_to_end", "conversations"} & set(path.parts) and path.name not in IN_MEMORY
        return REAL if real else str(path)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Sharing:
    return Sharing(config, log)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker hands over what the summary is to say."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[REAL] = session.config.stash.get(SKIPPED, "")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended."""
    if reason := getattr(node, "workeroutput", {}).get(REAL, ""):
        node.config.stash[SKIPPED] = reason


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say once why the tests on a real control plane did not run."""
    if reason := config.stash.get(SKIPPED, None):
        terminalreporter.write_line(f"Skipped what needs a real control plane. {reason}")


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane of version KUBE; BAYPLAN_CLUSTER names the state folder of one that runs already."""
    from tools.controlplane.cluster import attach
    from tools.controlplane.start import control_plane

    if running := os.environ.get("BAYPLAN_CLUSTER"):
        yield attach(Path(running))
        return
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    if reason := unavailable(kube):
        request.config.stash[SKIPPED] = reason
        lacking(f"no real control plane: {reason}")
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        build(kube, out=sys.stderr)  # the first time takes long: show how far it is
    with control_plane(kube, tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="session")
def program() -> str:
    """kubectl: the one of the control plane if it is built, else any."""
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    built = cache_root() / kube / "kubectl"
    found = str(built) if built.exists() else shutil.which("kubectl")
    if found is None:
        lacking("kubectl is not installed")
    return found
