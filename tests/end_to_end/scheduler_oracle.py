"""The real kube-scheduler asked about random pods in random clusters, and its answers held against ours.

python -m tests.end_to_end.scheduler_oracle --pairs 2000 --keep pairs.xz
python -m tests.end_to_end.scheduler_oracle --again pairs.xz
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from tests.end_to_end.scheduler_pairs import Obj, Pair, disagreement, keeping, kept, telling
from tests.properties.fit_worlds import NAMESPACES, random_pod, world
from tools.controlplane import components, processes
from tools.controlplane.build import build
from tools.controlplane.cluster import Cluster
from tools.controlplane.components import Site
from tools.controlplane.plan import DEFAULT_KUBE, SCHEDULER, switches
from tools.controlplane.start import control_plane

NAME = "oracle"
"""The scheduler's name, so that pods of others are left alone."""

PATIENCE = 60.0
SETTLING = 0.3
"""Seconds until what the API server has is known to the scheduler, too."""

POLL = 0.02
PODS_PER_WORLD = 16
STORAGE = "/apis/storage.k8s.io/v1"
LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": "/api/v1/pods",
    "services": "/api/v1/services",
    "claims": "/api/v1/persistentvolumeclaims",
    "volumes": "/api/v1/persistentvolumes",
    "classes": f"{STORAGE}/storageclasses",
    "csinodes": f"{STORAGE}/csinodes",
}
OUR_NAMES = re.compile(r"w\d+-")
SELECTED = "volume.kubernetes.io/selected-node"


class Refused(Exception):
    """The API server did not do what it was asked."""


class Api:
    """A connection to the API server, as the administrator."""

    def __init__(self, cluster: Cluster) -> None:
        trust = ssl.create_default_context(cafile=str(cluster.authority))
        pki = cluster.state / "pki"
        trust.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        port = cluster.ports["kube-apiserver"]
        self.kube = cluster.kube
        self.wire = http.client.HTTPSConnection("127.0.0.1", port, context=trust, timeout=30)

    def ask(self, verb: str, path: str, body: Obj | None = None, *, fine: tuple[int, ...] = ()) -> Obj:
        """The answer; Refused unless it is a success or one of the fine ones."""
        text = json.dumps(body) if body is not None else None
        kind = "application/merge-patch+json" if verb == "PATCH" else "application/json"
        self.wire.request(verb, path, text, {"Content-Type": kind})
        answer = self.wire.getresponse()
        found: Obj = json.loads(answer.read() or b"{}")
        if answer.status >= 300 and answer.status not in fine:
            raise Refused(f"{verb} {path}: {answer.status} {found.get('message')}")
        return found

    def close(self) -> None:
        self.wire.close()

    def items(self, kind: str) -> list[Obj]:
        found: list[Obj] = self.ask("GET", LISTS[kind])["items"]
        return found

    def create(self, kind: str, obj: Obj, *, fine: tuple[int, ...] = ()) -> Obj:
        namespace = obj["metadata"].get("namespace")
        path = LISTS[kind]
        if namespace:
            folder, name = path.rsplit("/", 1)
            path = f"{folder}/namespaces/{namespace}/{name}"
        return self.ask("POST", path, obj, fine=fine)

    def delete(self, kind: str, obj: Obj) -> None:
        meta = obj["metadata"]
        folder, name = LISTS[kind].rsplit("/", 1)
        place = f"{folder}/namespaces/{meta['namespace']}/{name}" if meta.get("namespace") else LISTS[kind]
        self.ask("DELETE", f"{place}/{meta['name']}", {"gracePeriodSeconds": 0}, fine=(404,))


@contextmanager
def scheduler(cluster: Cluster) -> Iterator[None]:
    """A kube-scheduler of its own name, with the default profile, beside whatever else runs."""
    site = Site(cluster.state, cluster.ports, switches(cluster.kube))
    arguments = components.scheduler(site)
    plain = cluster.state / "kube-scheduler.json"
    settings = json.loads(plain.read_text()) | {"profiles": [{"schedulerName": NAME}]}
    path = cluster.state / f"{NAME}.json"
    path.write_text(json.dumps(settings))
    arguments = [one for one in arguments if not one.startswith("--config=")] + [f"--config={path}"]
    program = build(cluster.kube, (SCHEDULER,))[SCHEDULER.name]
    log = cluster.state / "logs" / f"{NAME}.log"
    process = processes.start(NAME, [str(program), *arguments], log, os.environ, dies_with_us=True)
    try:
        ready = f"https://127.0.0.1:{cluster.ports[SCHEDULER.name]}/readyz"
        processes.wait_until(partial(components.answers, site, ready), process, PATIENCE)
        yield
    finally:
        processes.stop(process)


def until(found: Callable[[], bool], what: str) -> None:
    """Wait for what somebody else has to do."""
    deadline = time.monotonic() + PATIENCE
    while not found():
        if time.monotonic() > deadline:
            raise Refused(f"not within {PATIENCE:.0f} s: {what}")
        time.sleep(POLL)


# ── a world in the cluster ─────────────────────────────────────────────────────────────────────────


def set_up(api: Api, made: Obj) -> None:
    """Create everything that a world is made of, and wait until controllers are done with it."""
    for kind in ("classes", "nodes", "csinodes", "volumes", "claims", "services", "pods"):
        for obj in made[kind]:
            api.create(kind, _without_fate(kind, obj), fine=(409,) if kind == "classes" else ())
    until(lambda: _settled(api), "nodes and volumes are what they are going to be")
    time.sleep(SETTLING)


def _without_fate(kind: str, obj: Obj) -> Obj:
    """An object without what a controller has to say of it."""
    if kind == "claims":
        meta = {key: value for key, value in obj["metadata"].items() if key != "annotations"}
        return obj | {"metadata": meta}
    return obj


def _settled(api: Api) -> bool:
    for node in api.items("nodes"):
        taints = {taint["key"] for taint in node["spec"].get("taints") or []}
        if "node.kubernetes.io/not-ready" in taints:
            return False
        if bool(node["spec"].get("unschedulable")) != ("node.kubernetes.io/unschedulable" in taints):
            return False
    if any(volume["status"].get("phase") == "Pending" for volume in api.items("volumes")):
        return False
    waiting = [claim for claim in api.items("claims") if claim["status"].get("phase") != "Bound"]
    return not any(claim["spec"].get("volumeName") for claim in waiting)


def tear_down(api: Api) -> None:
    """Remove it all again."""
    for kind in ("pods", "services", "claims", "volumes", "csinodes", "nodes"):
        for obj in _ours(api, kind):
            api.delete(kind, obj)
        if kind in ("pods", "claims", "volumes"):
            until(lambda kind=kind: not _ours(api, kind), f"no {kind} are left")  # type: ignore[misc]


def _ours(api: Api, kind: str) -> list[Obj]:
    """What belongs to a world: by namespace, or else by name."""
    found = []
    for obj in api.items(kind):
        meta = obj["metadata"]
        if meta["namespace"] in NAMESPACES if "namespace" in meta else OUR_NAMES.match(meta["name"]):
            found.append(obj)
    return found


def picture(api: Api) -> Obj:
    """Everything as it is now."""
    found: Obj = {kind: [telling(obj) for obj in api.items(kind)] for kind in LISTS}
    found["namespaces"] = {
        obj["metadata"]["name"]: obj["metadata"].get("labels", {})
        for obj in api.ask("GET", "/api/v1/namespaces")["items"]
    }
    nodes = {node["metadata"]["name"] for node in found["nodes"]}
    over = ("Succeeded", "Failed")
    running = [one for one in found["pods"] if one["spec"].get("nodeName") in nodes]
    found["pods"] = [one for one in running if one["status"].get("phase") not in over]
    found["services"] = [one for one in found["services"] if one["spec"].get("selector")]
    return found


# ── asking ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Answer:
    """Where a pod goes, or what it is told; whether a volume is being made for it, which never ends here."""

    node: str = ""
    told: str = ""
    made: bool = False


def ask(api: Api, wanted: Obj) -> tuple[Pair, Answer]:
    """Submit a pod and wait until the scheduler has made up its mind."""
    before = picture(api)
    stored = api.create("pods", wanted)
    path = f"/api/v1/namespaces/{wanted['metadata']['namespace']}/pods/{wanted['metadata']['name']}"
    answers: list[Answer] = []

    def answered() -> bool:
        now = api.ask("GET", path)
        conditions = now["status"].get("conditions") or []
        refused = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"]
        if node := now["spec"].get("nodeName"):
            answers.append(Answer(node))
        elif refused:
            answers.append(Answer(told=refused[0]["message"]))
        elif node := _selected(api, wanted):
            answers.append(Answer(node, made=True))
        return bool(answers)

    until(answered, f"{wanted['metadata']['name']} is bound or refused")
    answer = answers[0]
    return Pair(before, telling(stored), answer.node, answer.told, api.kube), answer


def _claims(api: Api, wanted: Obj) -> list[Obj]:
    names = {
        volume["persistentVolumeClaim"]["claimName"]
        for volume in wanted["spec"].get("volumes") or []
        if "persistentVolumeClaim" in volume
    }
    place = wanted["metadata"]["namespace"]
    if not names:
        return []
    everything = api.items("claims")
    return [c for c in everything if c["metadata"]["name"] in names and c["metadata"]["namespace"] == place]


def _selected(api: Api, wanted: Obj) -> str:
    """The node that a volume is to be made for, if one is."""
    notes = [claim["metadata"].get("annotations") or {} for claim in _claims(api, wanted)]
    found = [note[SELECTED] for note in notes if SELECTED in note]
    return found[0] if found else ""


def clean_up(api: Api, wanted: Obj, answer: Answer, *, stays: bool) -> None:
    """Let a bound pod run, or remove it. A claim whose volume never comes forgets where it was to be made."""
    if answer.node and stays and not answer.made:
        return
    api.delete("pods", wanted)
    if not answer.made:
        return
    for claim in _claims(api, wanted):
        meta = claim["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/persistentvolumeclaims/{meta['name']}"
        api.ask("PATCH", path, {"metadata": {"annotations": {SELECTED: None}}})
    time.sleep(4 * SETTLING)  # the scheduler looks once a second whether the volume has come


def pairs(cluster: Cluster, number: int, seed: int = 0) -> Iterator[Pair]:
    """So many pairs. An answer that differs from ours is asked for once more: caches may have been behind."""
    with closing(Api(cluster)) as api:
        _make_namespaces(api)
        tear_down(api)
        with scheduler(cluster):
            yield from _asked(api, number, seed)


def _make_namespaces(api: Api) -> None:
    for name, labels in NAMESPACES.items():
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        api.ask("POST", "/api/v1/namespaces", body, fine=(409,))
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        until(lambda path=account: api.ask("GET", path, fine=(404,)).get("kind") == "ServiceAccount", account)  # type: ignore[misc]


def _asked(api: Api, number: int, seed: int) -> Iterator[Pair]:
    while number > 0:
        made = world(seed, f"w{seed}-")
        random = Random(seed)
        try:
            set_up(api, made)
            for count in range(min(PODS_PER_WORLD, number)):
                yield _pair(api, random, made, f"w{seed}-p{count}")
        finally:
            tear_down(api)
        number, seed = number - PODS_PER_WORLD, seed + 1


def _pair(api: Api, random: Random, made: Obj, name: str) -> Pair:
    wanted = random_pod(random, made, name)
    wanted["spec"]["schedulerName"] = NAME
    stays = random.random() < 0.5
    pair, answer = ask(api, wanted)
    if disagreement(pair):
        clean_up(api, wanted, answer, stays=False)
        time.sleep(2 * SETTLING)
        until(lambda: _settled(api), "all is settled again")
        pair, answer = ask(api, wanted | {"metadata": wanted["metadata"] | {"name": f"{name}-again"}})
        wanted["metadata"]["name"] = f"{name}-again"
    clean_up(api, wanted, answer, stays=stays)
    return pair


# ── command line ───────────────────────────────────────────────────────────────────────────────────


def compared(found: Iterator[Pair]) -> Iterator[Pair]:
    """Tell how the comparison goes, pair by pair."""
    bound = refused = wrong = 0
    reasons: Counter[str] = Counter()
    for number, pair in enumerate(found, start=1):
        bound += bool(pair.node)
        refused += not pair.node
        if pair.told:
            told = pair.told.split(": ", 1)[1].split(". ")[0]
            reasons.update(part.lstrip("0123456789 ") for part in told.split(", "))
        if difference := disagreement(pair):
            wrong += 1
            _tell(f"pair {number}, {pair.pod['metadata']['name']}: {difference}")
        if number % 100 == 0:
            _tell(f"{number} pairs: {bound} bound, {refused} refused, {wrong} differ")
        yield pair
    _tell(f"{bound + refused} pairs: {bound} bound, {refused} refused, {wrong} differ")
    for reason, count in reasons.most_common():
        _tell(f"  {count:5} pods told: {reason}")


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Ask anew, or compare with answers that were kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="write pairs and answers here")
    parser.add_argument("--again", type=Path, help="compare with these answers; no cluster is needed")
    given = parser.parse_args()
    if given.again:
        return any(map(disagreement, list(compared(kept(given.again)))))
    with control_plane(os.environ.get("KUBE") or DEFAULT_KUBE, out=sys.stderr) as cluster:
        found = pairs(cluster, given.pairs, given.seed)
        listed = list(compared(keeping(given.keep, found) if given.keep else found))
    return any(map(disagreement, listed))


if __name__ == "__main__":
    sys.exit(main())
