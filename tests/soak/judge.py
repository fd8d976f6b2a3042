"""Judges the cluster by what the API says, event by event: what is used twice, torn, stuck or lost."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.end_to_end.storm import OK, STALE, Api, Unanswered
from tests.end_to_end.storm_checker import Checker, Object, Seen, gpus
from tests.soak.load import NAME

PAUSE = 0.2
OVER = ("Succeeded", "Failed")


@dataclass(slots=True)
class Watch:
    """Follows one kind of objects and hands each state on, once."""

    api: Api
    path: str
    take: Callable[[Object, bool, int], None]  # the object, whether it is gone, its version
    version: int = 0
    known: dict[str, Object] = field(default_factory=dict)  # by uid
    stale: bool = True

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                if self.stale:
                    self._list()
                self._watch(stop)
            except Unanswered:
                time.sleep(PAUSE)

    def _list(self) -> None:
        found, self.version = self.api.listed(self.path)
        there = {one["metadata"]["uid"]: one for one in found}
        for uid in [*(self.known.keys() - there.keys())]:
            self._hand_on(self.known[uid], gone=True)
        for one in there.values():
            self._hand_on(one)
        self.stale = False

    def _watch(self, stop: threading.Event) -> None:
        where = f"{self.path}?watch=1&timeoutSeconds=20&resourceVersion={self.version}"
        with self.api.asked("GET", where) as answer:
            self.stale = answer.status == STALE
            for line in () if answer.status != OK else answer:
                event = json.loads(line)
                if event["type"] == "ERROR" or stop.is_set():
                    self.stale = True
                    return
                self._hand_on(event["object"], gone=event["type"] == "DELETED")
        time.sleep(0 if answer.status == OK else PAUSE)

    def _hand_on(self, obj: Object, *, gone: bool = False) -> None:
        uid, version = obj["metadata"]["uid"], int(obj["metadata"]["resourceVersion"])
        self.version = max(self.version, version)
        if gone:
            self.known.pop(uid, None)
        else:
            self.known[uid] = obj
        self.take(obj, gone, version)


@dataclass(slots=True)
class GangState:
    """The pods of one gang."""

    wanted: int
    there: dict[str, tuple[str, str]] = field(default_factory=dict)  # by uid: node and phase
    partial_since: float | None = None


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
        self.began = time.monotonic()

    def take_pod(self, pod: Object, gone: bool, _: int) -> None:
        """A pod counts on its node from its binding until it has ended or is gone."""
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
            if not gone and node and phase not in OVER:
                self.pods[uid] = (node, gpus(pod))
                self.used[node] += gpus(pod)
                if self.used[node] > self.room.get(node, 0):
                    self._note(node, f"pods use {self.used[node]} of {self.room.get(node, 0)} GPUs")
            self._torn(name, gang)
            if not gang.there:
                del self.gangs[name]

    def take_workload(self, workload: Object, gone: bool, version: int) -> None:
        """What admission has promised, by node and by quota."""
        with self.lock:
            self.events += 1
            seen = Seen(version, time.monotonic() - self.began, {**workload, "kind": "Workload"}, gone)
            for told in self.promises.judge([seen]):
                if "are promised" in told or " gave " in told or "holds" in told:
                    self._note("promised", told)
            if gone:
                self.promises.gangs.pop(workload["metadata"]["name"], None)

    def look(self) -> None:
        """What may not last: gangs that are bound in part."""
        with self.lock:
            for name, gang in self.gangs.items():
                self._torn(name, gang)

    def _torn(self, name: str, gang: GangState) -> None:
        bound = sum(bool(node) and phase != "Failed" for node, phase in gang.there.values())
        now = time.monotonic()
        if not 0 < bound < gang.wanted:
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
