"""The remote backend against a real kube-apiserver: reads, writes, rights, and a breaking network."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct

from bayplan.backends.crds import DEFINITIONS
from bayplan.backends.remote.access import Access, InlineOrFile
from bayplan.backends.remote.backend import RemoteBackend, connect
from bayplan.backends.remote.kubeconfig import load
from bayplan.backends.remote.reflector import WatchTimeouts
from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.errors import Forbidden, Misconfigured, NotServed, Unauthorised
from tests.end_to_end.breaker import Breaker
from tests.end_to_end.objects import kwok_node, kwok_pod

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

LONG = 60.0
NOBODY = "00000000-0000-0000-0000-000000000000"


class Meta(Struct, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None


class Spec(Struct, gc=False, rename="camel"):
    node_name: str = ""


class Pod(Struct, gc=False):
    metadata: Meta
    spec: Spec


PODS = Kind("", "v1", "Pod", "pods", wire=Pod)
NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
SECRETS = Kind("", "v1", "Secret", "secrets")
BAYS = Kind("test.bayplan.dev", "v1", "Bay", "bays", optional=True)


class Session:
    """A backend and everything it told."""

    def __init__(self, backend: RemoteBackend, log: list[str]) -> None:
        self.backend, self.log = backend, log
        self.events: list[Event] = []
        self.outcomes: list[WriteOutcome] = []

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + LONG
        while not holds():
            assert time.monotonic() < deadline, f"not within {LONG:.0f} s: {what}; log: {self.log[-5:]}"
            self.backend.wait(0.1)
            self.events += self.backend.events()
            self.outcomes += self.backend.outcomes()

    def synced(self, kind: Kind, times: int = 1) -> None:
        def count() -> int:
            return sum(event.happened is Happened.SYNCED and event.kind == kind for event in self.events)

        self.until(lambda: count() >= times, f"{kind.plural} synced {times} times")

    def write(self, *writes: Write) -> list[WriteOutcome]:
        before = len(self.outcomes)
        self.backend.submit(writes)
        self.until(lambda: len(self.outcomes) >= before + len(writes), "the writes end")
        return self.outcomes[before:]

    def ended(self, write: Write) -> Ended:
        return self.write(write)[0].ended


@contextmanager
def session(access: Access, *kinds: Kind, patience: WatchTimeouts | None = None) -> Iterator[Session]:
    log: list[str] = []
    backend = RemoteBackend(access, log=log.append, patience=patience or WatchTimeouts(absent_pause=0.3))
    try:
        backend.watch(kinds)
        yield Session(backend, log)
    finally:
        backend.close(5)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"remote-{abs(hash(request.node.name)) % 10**8}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="module")
def two_nodes(cluster: Cluster) -> Iterator[list[str]]:
    names = ["remote-1", "remote-2"]
    cluster.apply(*(kwok_node(name) for name in names))
    yield names
    cluster.kubectl("delete", "node", *names)


def admin(cluster: Cluster) -> Access:
    return load(cluster.kubeconfig)


def create_pod(namespace: str, name: str) -> Write:
    return Write(Verb.CREATE, PODS, namespace, name, {"spec": kwok_pod(namespace, name, {})["spec"]})


def binding(namespace: str, name: str, node_name: str, **more: Any) -> Write:
    body = {"target": {"apiVersion": "v1", "kind": "Node", "name": node_name}}
    return Write(Verb.CREATE, PODS, namespace, name, body, "binding", **more)


def label(namespace: str, name: str, value: str, **more: Any) -> Write:
    return Write(Verb.MERGE_PATCH, PODS, namespace, name, {"metadata": {"labels": {"l": value}}}, **more)


# ── reading ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("streams", [True, False])
def test_what_exists_and_what_happens_is_reported(
    cluster: Cluster, namespace: str, two_nodes: list[str], streams: bool
) -> None:
    patience = WatchTimeouts(stream_lists=streams, page=3)
    kind = replace(PODS, field_selector=f"metadata.namespace={namespace}")
    with session(admin(cluster), patience=patience) as ours:
        ours.write(*(create_pod(namespace, f"p{number}") for number in range(8)))
        ours.backend.watch([kind])
        ours.synced(kind)
        seen = [event.object.metadata.name for event in ours.events if event.happened is Happened.SEEN]
        assert sorted(seen) == [f"p{number}" for number in range(8)]
        assert all(isinstance(event.object, Pod) for event in ours.events[:8])
        ours.write(
            binding(namespace, "p0", two_nodes[0]), Write(Verb.DELETE, PODS, namespace, "p1", grace_seconds=0)
        )
        ours.until(
            lambda: any(e.object and e.object.spec.node_name == two_nodes[0] for e in ours.events),
            "p0 is bound",
        )
        ours.until(lambda: any(e.happened is Happened.GONE for e in ours.events), "p1 is gone")
        assert next(e for e in ours.events if e.happened is Happened.GONE).object.metadata.name == "p1"
        assert ours.log == []


def test_an_optional_kind_comes_and_goes_with_its_definition(cluster: Cluster, namespace: str) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "bays", "singular": "bay", "kind": "Bay"}
    body = {"spec": {"group": BAYS.group, "scope": "Namespaced", "names": names, "versions": [version]}}
    definition = Write(Verb.CREATE, DEFINITIONS, "", "bays.test.bayplan.dev", body)
    with session(admin(cluster), BAYS) as ours:
        ours.synced(BAYS)
        assert "does not serve bays of test.bayplan.dev/v1" in ours.log[0]
        try:
            assert ours.ended(definition) is Ended.DONE
            ours.synced(BAYS, 2)
            bay = Write(Verb.APPLY, BAYS, namespace, "b", {"spec": {"rows": 3}})
            ours.until(lambda: ours.ended(bay) is Ended.DONE, "the definition takes effect")
            ours.until(lambda: any(e.object for e in ours.events), "the bay is seen")
            assert ours.events[-1].object["spec"] == {"rows": 3}
        finally:
            assert ours.ended(replace(definition, verb=Verb.DELETE, body={})) is Ended.DONE
        ours.until(lambda: any(e.happened is Happened.GONE for e in ours.events), "the bay is gone")
        ours.synced(BAYS, 3)


def test_a_kind_that_is_missing_is_an_error(cluster: Cluster) -> None:
    with (
        session(admin(cluster), replace(BAYS, optional=False)) as ours,
        pytest.raises(NotServed, match="bays of"),
    ):
        ours.until(lambda: False, "an error")


# ── who we are ─────────────────────────────────────────────────────────────────────────────────────


def test_connecting_with_a_kubeconfig(cluster: Cluster) -> None:
    log: list[str] = []
    connect(cluster.kubeconfig, log=log.append).close()
    assert log == [f"{cluster.server} is Kubernetes v{cluster.kube}"]
    with pytest.raises(Misconfigured, match="choose one of"):
        connect(cluster.kubeconfig, "elsewhere")


def test_tokens_work_and_wrong_ones_are_told(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(cluster.token_of("admin"))
    access = replace(admin(cluster), certificate=None, token=InlineOrFile("tokenFile", path=path))
    with session(access, NODES) as ours:
        ours.synced(NODES)
    path.write_text("wrong")
    with session(access, NODES) as ours, pytest.raises(Unauthorised, match="does not accept the credentials"):
        ours.until(lambda: False, "an error")


def test_impersonation_is_judged_by_the_server(cluster: Cluster) -> None:
    access = replace(
        admin(cluster), impersonation=(("Impersonate-User", "jane"), ("Impersonate-Group", "dev"))
    )
    with (
        session(access, SECRETS) as ours,
        pytest.raises(Forbidden, match=r'User "jane" cannot (list|watch) resource "secrets"'),
    ):
        ours.until(lambda: False, "an error")
    masters = replace(
        access, impersonation=(("Impersonate-User", "j"), ("Impersonate-Group", "system:masters"))
    )
    with session(masters, NODES) as ours:
        ours.synced(NODES)


def test_another_authority_does_not_do(cluster: Cluster) -> None:
    access = replace(admin(cluster), authority=None)
    with session(access, NODES) as ours, pytest.raises(Misconfigured, match="cannot be trusted"):
        ours.until(lambda: False, "an error")


# ── writing ────────────────────────────────────────────────────────────────────────────────────────


def test_every_verb_under_its_precondition(cluster: Cluster, namespace: str, two_nodes: list[str]) -> None:
    spec = kwok_pod(namespace, "p", {})["spec"]
    status = {"status": {"message": "m"}}
    with session(admin(cluster)) as ours:
        made = ours.write(create_pod(namespace, "p"))[0]
        uid, version = made.object.metadata.uid, made.object.metadata.resource_version
        bind = binding(namespace, "p", two_nodes[0])
        patch = label(namespace, "p", "x")
        on_pod = [
            patch,
            replace(patch, verb=Verb.APPLY),
            replace(patch, verb=Verb.UPDATE, body={"spec": spec}),
            replace(patch, subresource="status", body=status),
            replace(patch, verb=Verb.CREATE, subresource="eviction", body={}),
            replace(patch, verb=Verb.DELETE, body={}),
            bind,
        ]
        for write in on_pod:
            if write.subresource != "eviction":  # the server itself tries that again for 10 s
                assert ours.ended(replace(write, uid=NOBODY)) is Ended.GONE, write
            assert ours.ended(replace(write, version="1")) is Ended.CONFLICT, write
        assert ours.ended(create_pod(namespace, "p")) is Ended.CONFLICT
        assert ours.ended(replace(patch, uid=uid, version=version)) is Ended.DONE
        assert ours.ended(replace(patch, verb=Verb.APPLY, uid=uid)) is Ended.DONE
        assert ours.ended(replace(patch, subresource="status", body=status, uid=uid)) is Ended.DONE
        bound = ours.write(replace(bind, uid=uid))[0]
        assert (bound.ended, bound.status, bound.object) == (Ended.DONE, 201, None)  # it answers a Status
        assert ours.ended(replace(bind, uid=uid)) is Ended.CONFLICT
        assert ours.ended(replace(patch, verb=Verb.DELETE, body={}, uid=uid, grace_seconds=0)) is Ended.DONE


def test_what_cannot_be_written_is_told_apart(cluster: Cluster, namespace: str) -> None:
    with session(admin(cluster)) as ours:
        assert ours.ended(label(namespace, "nobody", "x")) is Ended.GONE
        assert ours.ended(binding(namespace, "nobody", "n")) is Ended.GONE
        assert ours.ended(Write(Verb.DELETE, PODS, namespace, "nobody")) is Ended.GONE
        assert ours.ended(create_pod("no-such-namespace", "p")) is Ended.GONE
        assert ours.ended(Write(Verb.CREATE, PODS, namespace, "p", {"spec": {}})) is Ended.REFUSED
        assert ours.ended(Write(Verb.CREATE, BAYS, namespace, "b", {})) is Ended.REFUSED
    with session(load(cluster.kubeconfig_of("bayplan"))) as ours:
        outcome = ours.write(Write(Verb.CREATE, SECRETS, namespace, "s"))[0]
        assert (outcome.ended, outcome.status) == (Ended.REFUSED, 403)
        assert 'User "bayplan" cannot create resource "secrets"' in outcome.message


def test_an_eviction_against_a_budget_is_refused(
    cluster: Cluster, namespace: str, two_nodes: list[str]
) -> None:
    budget = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"l": "x"}}}
    with session(admin(cluster)) as ours:
        ours.write(create_pod(namespace, "p"))
        ours.write(label(namespace, "p", "x"), Write(Verb.CREATE, budget, namespace, "b", {"spec": spec}))
        ours.write(binding(namespace, "p", two_nodes[0]))
        evict = Write(Verb.CREATE, PODS, namespace, "p", {}, "eviction")
        cluster.kubectl("wait", "-n", namespace, "--for=condition=Ready", "--timeout=120s", "pod/p")
        outcome = ours.write(evict)[0]
        assert (outcome.ended, outcome.status) == (Ended.REFUSED, 429)


# ── a network that keeps breaking ──────────────────────────────────────────────────────────────────


def believed(events: list[Event]) -> dict[str, str]:
    """Who exists, by the events alone; checks that for each object they make a possible story."""
    alive: dict[str, tuple[str, int]] = {}
    for event in events:
        if event.happened is Happened.SYNCED:
            continue
        meta = event.object.metadata
        before = alive.get(meta.name)
        if event.happened is Happened.GONE:
            assert before is not None and before[0] == meta.uid
            del alive[meta.name]
        else:
            assert before is None or (before[0] == meta.uid and before[1] < int(meta.resource_version))
            alive[meta.name] = meta.uid, int(meta.resource_version)
    return {name: str(version) for name, (_, version) in alive.items()}


@pytest.mark.parametrize("streams", [True, False])
def test_nothing_is_lost_or_told_twice_while_connections_break(
    cluster: Cluster, namespace: str, streams: bool
) -> None:
    chance = random.Random(7)
    kind = replace(PODS, field_selector=f"metadata.namespace={namespace}")
    patience = WatchTimeouts(
        stream_lists=streams, page=7, first_pause=0.01, longest_pause=0.1, steady_seconds=0
    )
    with Breaker(int(cluster.server.rpartition(":")[2]), 7) as breaker, session(admin(cluster)) as hand:
        far = replace(admin(cluster), server=f"https://127.0.0.1:{breaker.address.port}")
        with session(far, kind, patience=patience) as ours:
            names = [f"p{number}" for number in range(40)]
            for _ in range(15):
                writes = [_any_write(chance, namespace, name) for name in chance.sample(names, 20)]
                hand.write(*writes)
                breaker.cut()
                ours.until(lambda: True, "")
                ours.events += ours.backend.events()
            listed = cluster.get("pods", "-n", namespace)["items"]
            real = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in listed}
            ours.until(lambda: believed(ours.events) == real, f"events agree with the list: {real}")
            assert breaker.cuts > 5
            assert len(real) > 5


def _any_write(chance: random.Random, namespace: str, name: str) -> Write:
    verb = chance.choice("ccppd")
    if verb == "c":
        return create_pod(namespace, name)
    if verb == "p":
        return label(namespace, name, str(chance.random()))
    return Write(Verb.DELETE, PODS, namespace, name, grace_seconds=0)
