"""A storm on a real control plane: those who watch it, bind, submit and delete, all through the API alone."""

from __future__ import annotations

import http.client
import json
import random
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bayplan.backends.fake_controllers.binding import Binder
from bayplan.backends.remote.backend import connect
from tests.end_to_end.objects import Object
from tests.end_to_end.storm_checker import Seen, stands

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"
PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
NODES = "/api/v1/nodes"
OK, STALE = 200, 410
PAUSE = 0.2


class Unanswered(Exception):
    """The API server said no, or nothing."""


@dataclass(frozen=True, slots=True)
class Api:
    """The API as its administrator sees it, without any code of Bayplan's."""

    server: str
    trust: ssl.SSLContext

    @classmethod
    def of(cls, cluster: Cluster) -> Api:
        trust = ssl.create_default_context(cafile=str(cluster.authority))
        pki = cluster.state / "pki"
        trust.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        return cls(urlsplit(cluster.server).netloc, trust)

    @contextmanager
    def asked(self, method: str, path: str, body: Object | None = None) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection(self.server, context=self.trust, timeout=60)
        try:
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, {"Content-Type": "application/json"})
            yield connection.getresponse()
        except (OSError, http.client.HTTPException, ValueError) as trouble:
            raise Unanswered(f"{method} {path}: {trouble}") from trouble
        finally:
            connection.close()

    def ask(self, method: str, path: str, body: Object | None = None) -> Object:
        with self.asked(method, path, body) as answer:
            found: Object = json.loads(answer.read())
            if answer.status >= 300:
                raise Unanswered(f"{method} {path}: {answer.status} {found.get('reason')}")
            return found

    def listed(self, path: str) -> tuple[list[Object], int]:
        """What there is of a kind, and the version of that list."""
        found = self.ask("GET", path)
        kind = found["kind"].removesuffix("List")
        version = int(found["metadata"]["resourceVersion"])
        return [{"kind": kind, **one} for one in found["items"] or ()], version

    def items(self, path: str) -> list[Object]:
        return self.listed(path)[0]

    def create(self, path: str, obj: Object) -> None:
        """As a user would who tries again until it worked; one attempt may have been lost on its way back."""
        while True:
            try:
                self.ask("POST", path, obj)
            except Unanswered as trouble:
                if "AlreadyExists" in str(trouble):
                    return
                time.sleep(PAUSE)
            else:
                return


# ── watching and binding ──────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Recorder:
    """Writes down every state of one kind of objects that the API tells about."""

    api: Api
    path: str
    began: float
    seen: list[Seen] = field(default_factory=list)
    last: dict[str, Object] = field(default_factory=dict)  # by uid: what was told of it last
    version: int = 0  # up to where everything was told
    stale: bool = True  # the server no longer knows what came after that
    take: Callable[[Seen], None] | None = None  # gets each state, instead of the list

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                if self.stale:
                    self._list()
                self._watch(stop)
            except Unanswered:
                time.sleep(PAUSE)

    def _list(self) -> None:
        """Begin anew. What happened unseen is judged kindly: it did so right after we last looked."""
        found, version = self.api.listed(self.path)
        there = {one["metadata"]["uid"] for one in found}
        for uid in [*(self.last.keys() - there)]:
            self._note(self.version, self.last[uid], gone=True)
        changed = [one for one in found if self._known_version(one) != _version(one)]
        for one in changed:
            if (known := self.last.get(one["metadata"]["uid"])) is not None:
                self._note(self.version, known, unsure=True)
        for one in sorted(changed, key=_version):
            self._note(_version(one), one)
        self.version, self.stale = version, False

    def _known_version(self, obj: Object) -> int:
        known = self.last.get(obj["metadata"]["uid"])
        return _version(known) if known else 0

    def _watch(self, stop: threading.Event) -> None:
        where = f"{self.path}?watch=1&timeoutSeconds=20&resourceVersion={self.version}"
        with self.api.asked("GET", where) as answer:
            self.stale = answer.status == STALE
            for line in () if answer.status != OK else answer:
                event = json.loads(line)
                if event["type"] == "ERROR" or stop.is_set():
                    self.stale = True
                    return
                self.version = _version(event["object"])
                self._note(self.version, event["object"], gone=event["type"] == "DELETED")
        time.sleep(0 if answer.status == OK else PAUSE)

    def _note(self, version: int, obj: Object, *, gone: bool = False, unsure: bool = False) -> None:
        (self.take or self.seen.append)(Seen(version, time.monotonic() - self.began, obj, gone, unsure))
        self.last[obj["metadata"]["uid"]] = obj
        if gone:
            del self.last[obj["metadata"]["uid"]]


def _version(obj: Object) -> int:
    return int(obj["metadata"]["resourceVersion"])


@contextmanager
def meanwhile(*works: Callable[[threading.Event], Any]) -> Iterator[threading.Event]:
    """Do these things in threads of their own; what went wrong in one is raised at the end."""
    stop, troubles = threading.Event(), list[BaseException]()

    def guarded(work: Callable[[threading.Event], Any]) -> None:
        try:
            work(stop)
        except BaseException as trouble:  # raised again below
            troubles.append(trouble)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield stop
    finally:
        stop.set()
        for thread in threads:
            thread.join(70)
    for trouble in troubles:
        raise trouble


def bind_all(cluster: Cluster, stop: threading.Event) -> None:
    """Play kube-scheduler."""
    with ExitStack() as stack:
        backend = connect(cluster.kubeconfig)
        stack.callback(backend.close, 1.0)
        binder = Binder(backend)
        while not stop.is_set():
            due = binder.step(time.monotonic())
            backend.wait(min(0.5, max(0.02, due - time.monotonic())))


# ── people ────────────────────────────────────────────────────────────────────────────────────────


def submit_all(
    api: Api, given: Sequence[tuple[str, Object]], dice: random.Random, pause: float, stop: threading.Event
) -> None:
    """Users: one job after the other, with a pause of about that many seconds between them."""
    for path, job in given:
        if stop.wait(dice.uniform(0, 2 * pause)):
            return
        api.create(path, job)


def delete_some(api: Api, dice: random.Random, pods: int, pause: float, stop: threading.Event) -> None:
    """Somebody who deletes a pod of a running gang every now and then, up to a number.

    The Job controller takes its time, longer each time, to make another, and the gang keeps its places.
    """
    for _ in range(pods):
        if stop.wait(dice.uniform(0, 2 * pause)):
            return
        with suppress(Unanswered):
            if running := [one for one in api.items(PODS) if stands(one) and one["spec"].get("nodeName")]:
                api.ask("DELETE", f"{PODS}/{dice.choice(running)['metadata']['name']}")
