"""Replicas of Bayplan behind their proxies: started, killed, stopped, and measured from outside."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.end_to_end.admission_site import Site
from tests.soak.proxy import FaultProxy
from tests.soak.replica import OFFSET_FILE
from tests.support.listening import free_address

READY_SECONDS = 120.0
UNREADY_PROBES = 3
"""Failed probes in a row until no webhook is sent to a replica: as in the Deployment that `install` makes."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A replica at a moment."""

    at: float
    replica: str
    life: int  # how often it has been started, or became or ceased to be the leader
    age: float  # seconds since then
    leads: bool
    megabytes: float
    descriptors: int
    watches: int  # open at the API server


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
    leads: bool = False
    in_role: float = 0.0  # since when it leads or stands by
    failed_probes: int = 0
    process: subprocess.Popen[bytes] | None = None
    ended: list[str] = field(default_factory=list)  # processes that ended by themselves
    lock: threading.RLock = field(default_factory=threading.RLock)  # of `process`

    @property
    def clock(self) -> Path:
        return self.folder / f"{self.name}.clock"

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def journal(self) -> Path:
        return self.folder / f"journal-{self.name}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        """With the rights of the account, through the proxy."""
        with self.lock:
            self.life += 1
            self.probes = str(free_address())
            command = [sys.executable, "-m", "tests.soak.replica", "run"]
            command += [f"--namespace={self.site.namespace}", f"--kubeconfig={self._kubeconfig()}"]
            command += [f"--webhook-listen={self.hooks}", f"--listen={self.probes}"]
            command += [f"--journal={self.journal}", "--log-format=json"]
            environment = os.environ | {OFFSET_FILE: str(self.clock)}
            # Its log goes through a pipe: a limit on the size of its files is to concern the journal alone.
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment
            )
            threading.Thread(target=self._copy_log, args=(self.process,), daemon=True).start()
            self.began, self.failed_probes = time.monotonic(), UNREADY_PROBES
            self.leads, self.in_role = False, self.began

    def _copy_log(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout, self.log.open("ab", buffering=0) as log:
            for line in process.stdout:
                log.write(line)

    def _kubeconfig(self) -> Path:
        given = json.loads(self.site.kubeconfig.read_text())
        given["clusters"][0]["cluster"]["server"] = self.proxy.url
        path = self.folder / f"{self.name}.kubeconfig"
        path.write_text(json.dumps(given))
        path.chmod(0o600)
        return path

    def is_ready(self, query: str = "") -> bool:
        """Whether it leads and knows all objects; with a query, whether it is ready apart from a check."""
        try:
            opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with opener.open(f"http://{self.probes}/readyz{query}", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def probe(self) -> None:
        """As a kubelet does: after some failures no webhook is sent to it, until it is ready again."""
        self.failed_probes = 0 if self.is_ready("?exclude=leader") else self.failed_probes + 1

    @property
    def serves(self) -> bool:
        return self.failed_probes < UNREADY_PROBES

    def kill(self) -> None:
        """Without warning, and start it again."""
        with self.lock:
            self.note_end()
            assert self.process is not None
            self.process.kill()
            self.process.wait()
            self.start()

    def signal(self, number: signal.Signals) -> None:
        with self.lock:
            if self.process is not None and self.process.poll() is None:
                self.process.send_signal(number)

    def limit_files(self, size: int) -> None:
        """From now on no file that it writes may grow beyond this size; needs no privileges."""
        with self.lock:
            if self.process is not None and self.process.poll() is None:
                _, most = resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
                resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, most))

    def note_end(self) -> None:
        """Start a process that ended by itself again, as a kubelet would; it is told in the report."""
        with self.lock:
            if self.process is not None and (status := self.process.poll()) is not None:
                told = f"{self.name} ended by itself with status {status} after {self.age():.0f} s"
                self.ended.append(told)
                self.start()

    def end(self) -> None:
        """For good."""
        with self.lock:
            if self.process is not None:
                self.process.kill()
                self.process.wait()

    def age(self) -> float:
        return time.monotonic() - self.began

    def sample(self, at: float) -> Sample | None:
        """A leader has more objects and connections than a standby: it is compared with itself only."""
        if (leads := self.is_ready()) != self.leads:
            self.leads, self.in_role, self.life = leads, time.monotonic(), self.life + 1
        age = time.monotonic() - self.in_role
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
            files = len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
        except OSError:
            return None
        lines = (line.split() for line in status.splitlines())
        kilobytes = next((int(words[1]) for words in lines if words[0] == "VmRSS:"), 0)
        return Sample(at, self.name, self.life, age, leads, kilobytes / 1024, files, self.proxy.watches)


@contextmanager
def replicas(site: Site, folder: Path, hooks: list[str]) -> Iterator[list[Replica]]:
    """One for each address of webhooks, and one of them ready."""
    with ExitStack() as stack:
        found: list[Replica] = []
        for number, address in enumerate(hooks):
            proxy = stack.enter_context(FaultProxy(site.cluster.server, site.cluster.state / "pki"))
            found.append(Replica(f"replica-{number}", site, folder, proxy, address))
            stack.callback(found[-1].end)
            found[-1].start()
        end = time.monotonic() + READY_SECONDS
        while not any(one.is_ready() for one in found):
            assert time.monotonic() < end, (
                f"no replica is ready ({folder}): {found[0].log.read_text()[-2000:]}"
            )
            time.sleep(0.5)
        for one in found:
            one.probe()
        yield found
