"""The dashboard beside `bayplan up` or `bayplan run`: a process of its own, behind a socket open at once.

Pages then do not slow down the loop: the dashboard reads the cluster through its API.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence

from bayplan.runtime.webhooks.http_server import Address

CHECK_SECONDS = 0.2
END_SECONDS = 5.0
AGAIN_SECONDS = 2.0  # before a process that ended is started again


class DashboardProcess:
    """Listens, runs `bayplan dashboard` with some options, and starts it again when it ends."""

    def __init__(self, address: Address, options: Sequence[str], *, is_quiet: bool, is_lazy: bool) -> None:
        """Raises OSError if it cannot listen. A lazy one starts the process with the first connection."""
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        self._socket = socket.create_server((address.host, address.port), family=family, backlog=128)
        self.address = Address(address.host, self._socket.getsockname()[1])
        self._command = [
            *(sys.executable, "-m", "bayplan", "dashboard", *options),
            *("--listen", str(self.address), "--socket", str(self._socket.fileno())),
        ]
        self._out = subprocess.DEVNULL if is_quiet else None
        self._is_lazy, self.is_running = is_lazy, False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def check(self) -> str:
        """Empty if the process runs, else what is wrong; for /readyz."""
        return "" if self.is_running or self._is_lazy else "the process of the dashboard has ended"

    def stop(self) -> None:
        """End the process and stop listening."""
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self._is_lazy or select.select([self._socket], [], [], CHECK_SECONDS)[0]:
                self._serve()

    def _serve(self) -> None:
        """Run the dashboard until it or this process ends. It ends when its standard input does."""
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=self._out,
            stderr=self._out,
            pass_fds=(self._socket.fileno(),),
            start_new_session=True,  # Ctrl-C is for this process, which then ends the other one
        )
        self.is_running = True
        while process.poll() is None and not self._stop.wait(CHECK_SECONDS):
            continue
        self.is_running = False
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._stop.wait(AGAIN_SECONDS)
