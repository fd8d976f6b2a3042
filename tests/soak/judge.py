"""Judges the cluster by what the API says, event by event: what is used twice, torn, stuck or lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from tests.end_to_end.storm_checker import Checker, Object, Seen, gpus
from tests.soak.load import JOB_SET, NAME, QUEUED

OVER = ("Succeeded", "Failed")
ADMITTED = tuple(f"{NAME}-{family}-" for family in (QUEUED, JOB_SET))
"""How names of gangs begin whose pods are bound one by one, to places that were promised to all of them."""


@dataclass(slots=True)
class GangState:
    """The pods of one gang."""

    wanted: int
    there: dict[str, tuple[str, str]] = field(default_factory=dict)  # by uid: node and phase
    partial_since: float | None = None


class CalmClock:
    """Seconds in which nothing was broken: the rest of a gang cannot be bound without an API server."""

    def __init__(self) -> None:
        self._passed, self._since = 0.0, time.monotonic()
        self._broken = False

    def now(self) -> float:
        return self._passed if self._broken else self._passed + time.monotonic() - self._since

    def stop(self) -> None:
        self._passed, self._broken = self.now(), True

    def start(self) -> None:
        self._passed, self._since, self._broken = self.now(), time.monotonic(), False


class Judge:
    """Keeps what each node has and how far each gang is; notes every violation once."""

    def __init__(self, nodes: list[Object], queues: list[Object], partial_patience: float) -> None:
        self.room = {
            one["metadata"]["name"]: int(one["status"]["allocatable"]["nvidia.com/gpu"]) for one in nodes
        }
        self.promises = Checker(nodes, queues, partial_patience)
        self.patience = partial_patience
        self.used = Counter[str]()
        self.pods: dict[str, tuple[str, int]] = {}  # by uid: node and GPUs
        self.gangs: dict[str, GangState] = {}
        self.found: dict[str, str] = {}
        self.events = 0
        self.lock = threading.Lock()
        self.calm = CalmClock()
        self.began = time.monotonic()

    def take_pod(self, seen: Seen) -> None:
        """A pod counts on its node from its binding until it has ended or is gone."""
        pod, gone = seen.obj, seen.gone
        meta, spec = pod["metadata"], pod["spec"]
        name = (meta.get("labels") or {}).get(NAME)
        if name is None:
            return
        with self.lock:
            self.events += 1
            uid, node, phase = meta["uid"], spec.get("nodeName") or "", pod["status"].get("phase", "")
            if (before := self.pods.pop(uid, None)) is not None:
                self.used[before[0]] -= before[1]
            gang = self.gangs.setdefault(name, GangState(int(meta["labels"]["soak-pods"])))
            if gone:
                gang.there.pop(uid, None)
            else:
                gang.there[uid] = (node, phase)
            if not gone and not seen.unsure and node and phase not in OVER:
                self.pods[uid] = (node, gpus(pod))
                self.used[node] += gpus(pod)
                if self.used[node] > self.room.get(node, 0):
                    self._note(node, f"pods use {self.used[node]} of {self.room.get(node, 0)} GPUs")
            self._torn(name, gang)
            if not gang.there:
                del self.gangs[name]

    def take_workload(self, seen: Seen) -> None:
        """What admission has promised, by node and by quota."""
        with self.lock:
            self.events += 1
            for told in self.promises.judge([seen]):
                if "are promised" in told or " gave " in told or "holds" in told:
                    self._note("promised", told)
            if seen.gone:
                self.promises.gangs.pop(seen.obj["metadata"]["name"], None)

    def look(self) -> None:
        """What may not last: gangs that are bound in part."""
        with self.lock:
            for name, gang in self.gangs.items():
                self._torn(name, gang)

    def _torn(self, name: str, gang: GangState) -> None:
        """All pods of a gang are bound, or none.

        Pods of an admitted gang are bound as the Job controller makes them: one that it has not made is not
        missing.
        """
        alive = [node for node, phase in gang.there.values() if phase != "Failed"]
        bound = sum(bool(node) for node in alive)
        wanted = min(gang.wanted, len(alive)) if name.startswith(ADMITTED) else gang.wanted
        now = self.calm.now()
        if not 0 < bound < wanted:
            gang.partial_since = None
        elif gang.partial_since is None:
            gang.partial_since = now
        elif now - gang.partial_since > self.patience:
            self._note(name, f"has {bound} of {gang.wanted} pods bound for {now - gang.partial_since:.0f} s")
            gang.partial_since = now + 1e9  # once is enough

    def _note(self, about: str, told: str) -> None:
        at = time.monotonic() - self.began
        self.found.setdefault(f"{about}: {told}", f"{at:.0f} s")

    def violations(self) -> list[str]:
        with self.lock:
            return [f"{told} ({at})" for told, at in self.found.items()]
