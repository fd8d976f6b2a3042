"""The dashboard of `bayplan up`: its address is there at once, its process begins with the first visitor.

It is a process of its own, so that pages do not slow down the loop, and it reads the cluster through its API.
"""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

from bayplan.backends.embedded.http.kubeconfig import CONTEXT

CHECK_SECONDS = 0.2
END_SECONDS = 5.0
AGAIN_SECONDS = 2.0  # before a process that ended is started again


class DashboardProcess:
    """Listens, and starts the dashboard when a connection comes."""

    def __init__(self, kubeconfig: Path, port: int) -> None:
        self._socket = socket.create_server(("127.0.0.1", port), backlog=128)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._command = [
            *(sys.executable, "-m", "bayplan", "dashboard", "--kubeconfig", str(kubeconfig)),
            *("--context", CONTEXT, "--listen", self.address, "--socket", str(self._socket.fileno())),
        ]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dashboard", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    def stop(self) -> None:
        """End the process and stop listening."""
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            if select.select([self._socket], [], [], CHECK_SECONDS)[0]:
                self._serve()

    def _serve(self) -> None:
        """Run the dashboard until it or `bayplan up` ends. It ends when its standard input does."""
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(self._socket.fileno(),),
            start_new_session=True,  # Ctrl-C is for `bayplan up`, which ends this process itself
        )
        while process.poll() is None and not self._stop.wait(CHECK_SECONDS):
            continue
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._stop.wait(AGAIN_SECONDS)
