"""The faults: each breaks one thing for a while and mends it again, and says what it did."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bayplan.assembly.webhooks import SECRET_NAME
from tests.end_to_end.admission_site import RACK
from tests.end_to_end.storm import NODES, Api, Unanswered
from tests.soak.replicas import Replica
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import APISERVER, ETCD, Trouble
from tools.controlplane.start import restart

DOWN = "bayplan.dev/node"


@dataclass(slots=True)
class Stage:
    """What faults act on."""

    cluster: Cluster
    api: Api
    replicas: list[Replica]
    dice: random.Random
    seconds: float  # how long a fault lasts
    journal_disk: Path | None  # a small file system for the journal of the first replica, if there is one


def kill_leader(stage: Stage) -> str:
    """`kill -9` of the replica that decides."""
    leader = _leader(stage)
    leader.kill()
    return f"killed {leader.name}"


def kill_standby(stage: Stage) -> str:
    """`kill -9` of the other one."""
    other = next(one for one in stage.replicas if one is not _leader(stage))
    other.kill()
    return f"killed {other.name}, which stood by"


def stop_leader(stage: Stage) -> str:
    """SIGSTOP until its Lease has passed to the other replica, then SIGCONT: it must not write any more."""
    leader = _leader(stage)
    leader.signal(signal.SIGSTOP)
    time.sleep(stage.seconds + 20)
    leader.signal(signal.SIGCONT)
    return f"stopped {leader.name} for {stage.seconds + 20:.0f} s"


def kill_server(stage: Stage) -> str:
    stage.cluster = restart(stage.cluster, APISERVER, stage.dice.uniform(0, 3))
    return "killed kube-apiserver"


def kill_store(stage: Stage) -> str:
    """Its files stay."""
    stage.cluster = restart(stage.cluster, ETCD, stage.dice.uniform(0, 3))
    return "killed etcd"


def lose_rack(stage: Stage) -> str:
    """All hosts of a rack fall silent, and come back."""
    nodes = [one for one in stage.api.items(NODES) if RACK in one["metadata"]["labels"]]
    rack = stage.dice.choice(sorted({one["metadata"]["labels"][RACK] for one in nodes}))
    names = [one["metadata"]["name"] for one in nodes if one["metadata"]["labels"][RACK] == rack]
    _kubectl(stage, "annotate", "node", *names, "--overwrite", f"{DOWN}=down")
    time.sleep(stage.seconds + 60)
    _kubectl(stage, "annotate", "node", *names, f"{DOWN}-")
    return f"lost rack {rack} for {stage.seconds + 60:.0f} s"


def jump_clock(stage: Stage) -> str:
    """The wall clock of one replica is wrong for a while."""
    replica, offset = stage.dice.choice(stage.replicas), stage.dice.choice((-3600, -30, 30, 3600))
    replica.clock.write_text(str(offset))
    time.sleep(stage.seconds)
    replica.clock.write_text("0")
    return f"the clock of {replica.name} was off by {offset} s"


def slow_server(stage: Stage) -> str:
    for replica in stage.replicas:
        replica.proxy.delay = 2.0
    time.sleep(stage.seconds)
    for replica in stage.replicas:
        replica.proxy.delay = 0.0
    return f"API latency of 2 s for {stage.seconds:.0f} s"


def refusing_server(stage: Stage) -> str:
    status = stage.dice.choice((429, 500, 503))
    for replica in stage.replicas:
        replica.proxy.status = status
    time.sleep(min(stage.seconds, 20.0))
    for replica in stage.replicas:
        replica.proxy.status = 0
    return f"status {status} for {min(stage.seconds, 20.0):.0f} s"


def fill_disk(stage: Stage) -> str:
    """No byte is left where the first replica writes its journal."""
    assert stage.journal_disk is not None
    filler = stage.journal_disk / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as out:
        while True:
            out.write(b"0" * 65536)
    time.sleep(stage.seconds)
    filler.unlink()
    return f"the disk of the journal was full for {stage.seconds:.0f} s"


def drop_certificate(stage: Stage) -> str:
    """The certificate of the webhooks is lost, as if it had expired; replicas make a new one."""
    _kubectl(stage, "delete", "secret", SECRET_NAME, "-n", stage.replicas[0].site.namespace)
    time.sleep(stage.seconds)
    return "deleted the certificate of the webhooks"


FAULTS: tuple[Callable[[Stage], str], ...] = (
    kill_leader, kill_leader, kill_standby, stop_leader, kill_server, kill_store, lose_rack, jump_clock,
    slow_server, refusing_server, drop_certificate,
)  # fmt: skip


def _leader(stage: Stage) -> Replica:
    """The replica that holds a Lease; the first one if that cannot be read."""
    with suppress(Trouble, subprocess.SubprocessError, json.JSONDecodeError):
        leases = stage.cluster.get("leases", "-n", stage.replicas[0].site.namespace)["items"]
        for one in leases:
            holder = str(one["spec"].get("holderIdentity") or "")
            for replica in stage.replicas:
                if replica.process is not None and str(replica.process.pid) in holder:
                    return replica
    ready = [replica for replica in stage.replicas if replica.is_ready()]
    return (ready or stage.replicas)[0]


def _kubectl(stage: Stage, *arguments: str) -> None:
    """Again and again, as an administrator would."""
    for _ in range(30):
        try:
            stage.cluster.kubectl(*arguments)
        except (Trouble, Unanswered):
            time.sleep(2.0)
        else:
            return
