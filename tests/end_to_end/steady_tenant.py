"""A tenant who does nothing wrong: one gang after the other, and how long each waits."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.end_to_end.hostile_tenant import Tenant, rack_job
from tests.end_to_end.objects import Object

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOME = "alice"
PAUSE_SECONDS = 0.3
GIVES_UP_SECONDS = 90.0


@dataclass(slots=True)
class Waited:
    """A gang: when it was submitted, what was tried meanwhile, and how long until all its pods were bound."""

    name: str
    during: str
    seconds: float


@dataclass(slots=True)
class SteadyTenant:
    """Submits gangs in a thread of its own, and deletes those that ran."""

    cluster: Cluster
    during: str = "before"
    waited: list[Waited] = field(default_factory=list)
    error: BaseException | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held while a gang is under way; whoever takes it keeps the next one from being submitted."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="steady-tenant", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Finish the gang under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(GIVES_UP_SECONDS + 60.0)
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                number += 1
                with self.turn:
                    self.waited.append(self._one(f"steady-{number}"))
                time.sleep(PAUSE_SECONDS)
        except BaseException as error:
            self.error = error

    def _one(self, name: str) -> Waited:
        tenant, during = Tenant(self.cluster, HOME), self.during
        tenant.create(rack_job(name, HOME, queue=HOME))
        began = time.monotonic()
        while not self._bound(name) and time.monotonic() < began + GIVES_UP_SECONDS:
            time.sleep(PAUSE_SECONDS)
        found = Waited(name, during, time.monotonic() - began)
        tenant.kubectl("delete", "job", name, "--wait=false")
        return found

    def _bound(self, name: str) -> bool:
        pods: list[Object] = self.cluster.get("pods", "-n", HOME, "-l", f"job-name={name}")["items"]
        return len(pods) == 2 and all(one["spec"].get("nodeName") for one in pods)
