"""Replicas of Bayplan behind their proxies: started, killed, stopped, and measured from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.end_to_end.admission_site import Site
from tests.soak.proxy import FaultProxy
from tests.soak.replica import OFFSET_FILE
from tests.support.listening import free_address

READY_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Sample:
    """A replica at a moment."""

    at: float
    replica: str
    life: int  # how often it has been started
    age: float  # seconds since then
    megabytes: float
    descriptors: int


@dataclass(slots=True)
class Replica:
    """One replica, whatever process it is at the moment."""

    name: str
    site: Site
    folder: Path
    proxy: FaultProxy
    hooks: str
    probes: str = ""
    life: int = 0
    began: float = 0.0
    process: subprocess.Popen[bytes] | None = None
    ended: list[str] = field(default_factory=list)  # processes that ended by themselves

    def start(self) -> None:
        """With the rights of the account, through the proxy."""
        self.life += 1
        self.probes = str(free_address())
        command = [sys.executable, "-m", "tests.soak.replica", "run", f"--namespace={self.site.namespace}"]
        command += [
            f"--kubeconfig={self._kubeconfig()}",
            f"--webhook-listen={self.hooks}",
            f"--listen={self.probes}",
        ]
        command += [f"--journal={self.folder / f'journal-{self.name}'}", "--log-format=json"]
        environment = os.environ | {OFFSET_FILE: str(self.clock)}
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.began = time.monotonic()

    @property
    def clock(self) -> Path:
        return self.folder / f"{self.name}.clock"

    def _kubeconfig(self) -> Path:
        given = json.loads(self.site.kubeconfig.read_text())
        given["clusters"][0]["cluster"]["server"] = self.proxy.url
        path = self.folder / f"{self.name}.kubeconfig"
        path.write_text(json.dumps(given))
        path.chmod(0o600)
        return path

    def is_ready(self) -> bool:
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://{self.probes}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """Without warning, and start it again."""
        assert self.process is not None
        self.note_end()
        self.process.kill()
        self.process.wait()
        self.start()

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(number)

    def note_end(self) -> None:
        """Start a process that ended by itself again, as a kubelet would; it is told in the report."""
        if self.process is not None and (status := self.process.poll()) is not None:
            self.ended.append(f"{self.name} ended by itself with status {status} after {self.age():.0f} s")
            self.start()

    def age(self) -> float:
        return time.monotonic() - self.began

    def sample(self, at: float) -> Sample | None:
        assert self.process is not None
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            files = len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))
        except OSError:
            return None
        kilobytes = next(
            (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")), 0
        )
        return Sample(at, self.name, self.life, self.age(), kilobytes / 1024, files)


@contextmanager
def replicas(site: Site, folder: Path, hooks: list[str]) -> Iterator[list[Replica]]:
    """One for each address of webhooks, and one of them ready."""
    pki = site.cluster.state / "pki"
    proxies = [FaultProxy(site.cluster.server, pki) for _ in hooks]
    found = []
    for proxy in proxies:
        proxy.__enter__()
    try:
        for number, (proxy, address) in enumerate(zip(proxies, hooks, strict=True)):
            found.append(Replica(f"replica-{number}", site, folder, proxy, address))
            found[-1].start()
        end = time.monotonic() + READY_SECONDS
        while not any(one.is_ready() for one in found):
            assert time.monotonic() < end, f"no replica is ready ({folder})"
            time.sleep(0.5)
        yield found
    finally:
        for one in found:
            if one.process is not None:
                one.process.kill()
                one.process.wait()
        for proxy in proxies:
            proxy.__exit__()
