"""A replica for test_election.py: leads if it can, and while it leads appends its name to a ConfigMap."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from bayplan.backends.remote.backend import connect
from bayplan.dialects.api import Kind
from bayplan.dialects.errors import ApiError
from bayplan.runtime.core.api_object import LEASE, ApiObject, WriteConflict
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.process.election import Election, ElectionThread, Timing
from bayplan.runtime.process.shutdown import stop_on_signal

TIMING = Timing(lease_seconds=8, renew_seconds=5.0, retry_seconds=0.5, call_seconds=2.0)
CALL_SECONDS = 2.0
CONFIG_MAP = Kind("", "v1", "ConfigMap", "configmaps")


def main(kubeconfig: str, namespace: str, identity: str, stop_itself_before_write: int) -> None:
    clock, stop = SystemClock(), threading.Event()
    backend = connect(Path(kubeconfig))
    lease = ApiObject(backend.request, LEASE, namespace, "bayplan")
    election = Election(lease, identity, clock, random.random, TIMING, say)
    log = ApiObject(backend.request, CONFIG_MAP, namespace, "written")
    thread = ElectionThread(election)
    writes, led = 0, False
    with stop_on_signal(stop):
        while not stop.wait(0.05):
            found = look(log)
            leads = election.is_leader(clock.monotonic())  # right before every batch of writes
            if leads != led:
                say("may write" if leads else "may not write")
            led = leads
            if leads and found is not None:
                writes += 1
                if writes == stop_itself_before_write:
                    say("stops")
                    os.kill(os.getpid(), signal.SIGSTOP)  # the worst moment there is
                say(append(log, found, identity))
    thread.stop()
    backend.close()
    say("ended")


def look(log: ApiObject) -> dict[str, Any] | None:
    """The ConfigMap; None if there was no answer, as after a sleep in the middle of the question."""
    try:
        return log.get(CALL_SECONDS)
    except ApiError:
        return None


def append(log: ApiObject, found: dict[str, Any], identity: str) -> str:
    """Add our name, on condition that nobody wrote since we looked; say what came of it."""
    names = (found.get("data") or {}).get("names", "")
    try:
        log.update({**found, "data": {"names": f"{names} {identity}".strip()}}, CALL_SECONDS)
    except WriteConflict:
        return "was refused"
    except ApiError:
        return "got no answer"
    return "wrote"


def say(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
