"""A cluster in memory with running and pending gangs, and its dashboard, all in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, job
from bayplan.backends.remote.backend import connect
from bayplan.cli.commands.dashboard_source import DashboardSource
from bayplan.cli.watching.journal_timeline import JournalTimeline
from bayplan.cli.watching.watched import WatchedCluster
from bayplan.configuration.settings import DEFAULTS
from bayplan.dashboard.hub import SnapshotHub
from bayplan.dashboard.server import DashboardServer
from bayplan.dialects.kueue.names.annotations import PREFERRED, REQUIRED
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.journal import FileJournal
from bayplan.runtime.webhooks.http_server import Address
from tests.support.listening import free_address

FOREVER = 3600.0
GANGS: tuple[tuple[str, int, int, dict[str, str]], ...] = (
    ("pretrain", 8, 8, {REQUIRED: RACK}),
    ("finetune", 4, 8, {PREFERRED: RACK}),
    ("sweep", 16, 1, {}),
    ("flagship", 32, 8, {REQUIRED: BLOCK}),
    ("patient", 30, 8, {REQUIRED: BLOCK}),
    ("giant", 40, 8, {REQUIRED: BLOCK}),
)
RUNNING, WAITING = ("pretrain", "finetune", "sweep", "flagship"), ("patient", "giant")


@dataclass(slots=True)
class Site:
    """The cluster, and the dashboard that watches it through the cluster's API."""

    cluster: LocalCluster
    kubeconfig: Path
    address: Address
    journal: Path
    hub: SnapshotHub = field(default_factory=SnapshotHub)
    errors: list[str] = field(default_factory=list)
    server: DashboardServer | None = None
    source: DashboardSource | None = None
    timeline: JournalTimeline | None = None
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _reader: threading.Thread | None = None
    _forecaster: threading.Thread | None = None
    _close: Callable[[float], None] | None = None

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def open(self) -> None:
        """Start the dashboard, as a new process would: with a new hub at the same address."""
        backend = connect(self.kubeconfig)
        self._close, self._stop, self.hub = backend.close, threading.Event(), SnapshotHub()
        contained = Containment(lambda sentence, error, **facts: self.errors.append(f"{sentence} {error!r}"))
        self.source = DashboardSource(
            WatchedCluster(backend, SystemClock(), containment=contained), self.hub, contained
        )
        self._thread = threading.Thread(target=self.source.run, args=(self._stop,), daemon=True)
        self._thread.start()
        self._forecaster = threading.Thread(target=self.source.forecasts.run, args=(self._stop,), daemon=True)
        self._forecaster.start()
        self.timeline = JournalTimeline(self.journal, DEFAULTS, SystemClock(), self.source.maker.ids)
        self._reader = threading.Thread(target=self.timeline.run, args=(self._stop,), daemon=True)
        self._reader.start()
        self.server = DashboardServer(self.hub, self.source, self.address, timeline=self.timeline)

    def close(self) -> None:
        assert self.server is not None and self._thread is not None and self._close is not None
        self.server.stop()
        self._stop.set()
        self._thread.join()
        if self._reader is not None:
            self._reader.join()
        if self._forecaster is not None:
            self._forecaster.join()
        self._close(0)


@contextmanager
def dashboard_site(folder: Path, shape: ClusterShape = ClusterShape(2, 4, 8, 8)) -> Iterator[Site]:  # noqa: B008
    """The gangs of GANGS on two blocks of four racks of eight hosts, and their dashboard."""
    cluster = LocalCluster(shape, SystemClock(), journal=FileJournal(folder / "journal"))
    cluster.start(folder / "kubeconfig")
    site = Site(cluster, folder / "kubeconfig", free_address(), folder / "journal")
    try:
        for name, pods, gpus, notes in GANGS:
            cluster.submit(job(name, pods, gpus, notes, FOREVER))
        site.open()
        yield site
        site.close()
    finally:
        cluster.stop()
    assert not site.errors, site.errors
    assert cluster.error is None
