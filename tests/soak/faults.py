"""The faults: each breaks one thing for a while and mends it again, and says what it did.

They are called from the main thread: what they start again ends with the thread that started it.
"""

from __future__ import annotations

import json
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from bayplan.assembly.webhooks import AUTHORITY_NAME, SECRET_NAME
from bayplan.runtime.webhooks.certificates import (
    RENEW_BEFORE,
    SERVING_DAYS,
    Certificates,
    read,
    read_authorities,
    renewed,
)
from tests.end_to_end.admission_site import RACK
from tests.end_to_end.storm import NODES, Api
from tests.soak.replicas import READY_SECONDS, Replica
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import APISERVER, ETCD, Trouble
from tools.controlplane.start import restart

DOWN = "bayplan.dev/node"
LEASE_SECONDS = 20.0
"""Longer than the Lease lasts."""
CLOCK_OFFSETS = (-3600, -30, 30, 3600)
STATUSES = (429, 500, 503)
KUBECTL_TRIES, KUBECTL_PAUSE = 30, 2.0


@dataclass(slots=True)
class Stage:
    """What faults act on."""

    cluster: Cluster
    api: Api
    replicas: list[Replica]
    dice: random.Random
    seconds: float  # how long a fault lasts
    violations: list[str] = field(default_factory=list)  # what did not recover from a fault


def kill_leader(stage: Stage) -> str:
    """`kill -9` of the replica that decides."""
    leader = _leader(stage)
    leader.kill()
    return f"killed {leader.name}, the leader"


def kill_standby(stage: Stage) -> str:
    """`kill -9` of the other one."""
    other = _standby(stage)
    other.kill()
    return f"killed {other.name}, the standby"


def kill_replica(stage: Stage) -> str:
    """`kill -9` of any replica."""
    replica = stage.dice.choice(stage.replicas)
    replica.kill()
    return f"killed {replica.name}"


def stop_leader(stage: Stage) -> str:
    """SIGSTOP until its Lease has passed to the other replica, then SIGCONT: it must not write any more."""
    leader, seconds = _leader(stage), stage.seconds + LEASE_SECONDS
    leader.signal(signal.SIGSTOP)
    time.sleep(seconds)
    leader.signal(signal.SIGCONT)
    return f"stopped {leader.name}, the leader, for {seconds:.0f} s"


def kill_server(stage: Stage) -> str:
    stage.cluster = restart(stage.cluster, APISERVER, stage.dice.uniform(0, 3))
    return "killed kube-apiserver"


def kill_store(stage: Stage) -> str:
    """Its files stay."""
    stage.cluster = restart(stage.cluster, ETCD, stage.dice.uniform(0, 3))
    return "killed etcd"


def lose_rack(stage: Stage) -> str:
    """All hosts of a rack are not ready, and come back."""
    nodes = [one for one in stage.api.items(NODES) if RACK in one["metadata"]["labels"]]
    rack = stage.dice.choice(sorted({one["metadata"]["labels"][RACK] for one in nodes}))
    names = [one["metadata"]["name"] for one in nodes if one["metadata"]["labels"][RACK] == rack]
    _kubectl(stage, "annotate", "node", *names, "--overwrite", f"{DOWN}=down")
    time.sleep(2 * stage.seconds)
    _kubectl(stage, "annotate", "node", *names, f"{DOWN}-")
    return f"lost rack {rack} for {2 * stage.seconds:.0f} s"


def jump_clock(stage: Stage) -> str:
    """The wall clock of the leader is wrong for a while."""
    replica, offset = _leader(stage), stage.dice.choice(CLOCK_OFFSETS)
    replica.clock.write_text(str(offset))
    time.sleep(stage.seconds)
    replica.clock.write_text("0")
    return f"set the clock of {replica.name}, the leader, by {offset:+d} s for {stage.seconds:.0f} s"


def slow_server(stage: Stage) -> str:
    for replica in stage.replicas:
        replica.proxy.delay = 2.0
    time.sleep(stage.seconds)
    for replica in stage.replicas:
        replica.proxy.delay = 0.0
    return f"API latency of 2 s for {stage.seconds:.0f} s"


def refusing_server(stage: Stage) -> str:
    status = stage.dice.choice(STATUSES)
    for replica in stage.replicas:
        replica.proxy.status = status
    time.sleep(stage.seconds)
    for replica in stage.replicas:
        replica.proxy.status = 0
    return f"answered every request with {status} for {stage.seconds:.0f} s"


def fill_disk(stage: Stage) -> str:
    """The leader cannot write to its journal.

    Not a small file system, which takes privileges to mount: a limit on the size of the files that the
    process writes, set to 0. A write then fails as on a full disk, with another error number.
    """
    leader = _leader(stage)
    leader.limit_files(0)
    time.sleep(stage.seconds)
    leader.limit_files(resource.RLIM_INFINITY)
    if "cannot be written" not in leader.log.read_text(errors="replace"):
        stage.violations.append(f"{leader.name} did not log that its journal cannot be written")
    return f"the disk of the journal of {leader.name}, the leader, was full for {stage.seconds:.0f} s"


def expire_certificate(stage: Stage) -> str:
    """The certificate of the webhooks is about to expire; a replica that starts renews it."""
    namespace = stage.replicas[0].site.namespace
    kept = stage.cluster.get("secret", AUTHORITY_NAME, "-n", namespace)
    served = read(stage.cluster.get("secret", SECRET_NAME, "-n", namespace))
    assert served is not None
    names = [f"bayplan-webhooks.{namespace}.svc", f"bayplan-webhooks.{namespace}.svc.cluster.local"]
    early = time.time() - (SERVING_DAYS - RENEW_BEFORE + timedelta(days=1)).total_seconds()
    old = renewed(Certificates(read_authorities(kept), None), [*names, "127.0.0.1"], early).served
    _kubectl(
        stage, "patch", "secret", SECRET_NAME, "-n", namespace, "--type=merge",
        "-p", json.dumps({"data": old.data()}),
    )  # fmt: skip
    other = _standby(stage)
    other.kill()
    _wait_ready(stage, other)
    now = read(stage.cluster.get("secret", SECRET_NAME, "-n", namespace))
    if now is None or now.expires <= old.expires:
        stage.violations.append("the certificate of the webhooks was not renewed before its end")
    return f"brought the end of the certificate near, and killed {other.name}, the standby"


def empty_certificate(stage: Stage) -> str:
    """The Secret of the certificate loses its data; a replica that starts makes another certificate.

    The Secret itself stays: to create one is not among the rights of the account.
    """
    namespace = stage.replicas[0].site.namespace
    _kubectl(stage, "patch", "secret", SECRET_NAME, "-n", namespace, "--type=merge", "-p", '{"data": null}')
    other = _standby(stage)
    other.kill()
    _wait_ready(stage, other)
    return f"emptied the Secret of the certificate, and killed {other.name}, the standby"


Fault = Callable[[Stage], str]
FAULTS: tuple[Fault, ...] = (
    kill_leader, kill_standby, stop_leader, kill_server, kill_store, lose_rack, jump_clock, slow_server,
    refusing_server, fill_disk, expire_certificate, empty_certificate,
)  # fmt: skip
KILLS: tuple[Fault, ...] = (kill_replica, kill_server, kill_store)


def settled(stage: Stage) -> None:
    """Wait until a replica leads again: the next fault is to find everything at work."""
    end = time.monotonic() + READY_SECONDS
    while not any(one.is_ready() for one in stage.replicas):
        if time.monotonic() > end:
            stage.violations.append(f"no replica leads {READY_SECONDS:.0f} s after a fault")
            return
        time.sleep(0.5)


def _wait_ready(stage: Stage, replica: Replica) -> None:
    end = time.monotonic() + READY_SECONDS
    while not replica.is_ready("?exclude=leader"):
        if time.monotonic() > end:
            stage.violations.append(f"{replica.name} is not ready {READY_SECONDS:.0f} s after its start")
            return
        time.sleep(0.5)


def _leader(stage: Stage) -> Replica:
    """The replica that holds the Lease; the first one that is ready if that cannot be read."""
    with suppress(Trouble, subprocess.SubprocessError, json.JSONDecodeError):
        for lease in stage.cluster.get("leases", "-n", stage.replicas[0].site.namespace)["items"]:
            holder = str(lease["spec"].get("holderIdentity") or "").split("_")
            for replica in stage.replicas:
                if str(replica.pid) in holder:
                    return replica
    ready = [replica for replica in stage.replicas if replica.is_ready()]
    return (ready or stage.replicas)[0]


def _standby(stage: Stage) -> Replica:
    leader = _leader(stage)
    return next(one for one in stage.replicas if one is not leader)


def _kubectl(stage: Stage, *arguments: str) -> None:
    """Again and again, as an administrator would."""
    for _ in range(KUBECTL_TRIES):
        try:
            stage.cluster.kubectl(*arguments)
        except Trouble as trouble:
            failure = str(trouble)
            time.sleep(KUBECTL_PAUSE)
        else:
            return
    stage.violations.append(f"kubectl failed {KUBECTL_TRIES} times: {failure}")
