"""A stage for gangs on a real control plane: the real API server and controllers, kwok, and `bayplan run`."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bayplan.backends.remote.backend import RemoteBackend
from bayplan.backends.remote.kubeconfig import load
from bayplan.configuration.settings import EMPTY
from bayplan.dialects.api import Kind, Write
from tests.conformance.gang_steps_objects import NODES, PODS, Dialect, Object
from tests.conformance.gang_steps_stage import Holds, NotTaken, Stage, conditions
from tests.end_to_end.objects import eventually, namespace
from tests.end_to_end.test_run import rights, scheduler

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

NAMESPACE = "gangs"
PATIENCE = 15.0  # seconds until something has to be as expected
STAYS = 0.4  # and for so long it stays so
MOMENT = 0.1
FAILS_FOR = 1.0  # seconds in which a binding fails
POLICY = "bayplan-test-no-binding"
API = "admissionregistration.k8s.io"


class Real(Stage):
    """Things happen by themselves; what is expected is waited for."""

    def __init__(self, cluster: Cluster, dialect: Dialect) -> None:
        self.cluster = cluster
        self.remote = RemoteBackend(load(cluster.kubeconfig))
        self.failing: tuple[str, float] | None = None  # a pod, and when its bindings began to fail
        self.injected: tuple[Object, str] | None = None
        super().__init__(self.remote, dialect, NAMESPACE)
        while self.unsynced:
            self.remote.wait(MOMENT)
            self.take_in()
        self.left_alone = {name for plural, name in self.objects if plural == NODES.plural}

    def create(self, kind: Kind, *objects: Object) -> None:
        super().create(kind, *objects)
        if kind is NODES:
            self.until(lambda: [found["metadata"]["name"] for found in objects if not self._usable(found)])

    def pass_time(self) -> None:
        self.remote.wait(MOMENT)
        self.take_in()
        self._do_what_is_due()

    def until(self, holds: Holds, *, stays: bool = False) -> list[str]:
        deadline = time.monotonic() + PATIENCE
        while True:
            self.take_in()
            self._do_what_is_due()
            found = holds()
            if time.monotonic() > deadline or (not found and not stays):
                return found
            if not found:
                deadline, stays = 0.0, False
                time.sleep(STAYS)
            else:
                self.remote.wait(MOMENT)

    def fail_binding(self, pod: str, *, once: bool = True) -> None:
        """By a policy of the API server's; it is taken back a moment after somebody could have tried."""
        self.cluster.apply(*_policy(pod))
        eventually(lambda: self._is_denied(pod), "the policy is in force")
        self.failing = pod, 0.0 if once else math.inf

    def let_bind(self) -> None:
        if self.failing is not None:
            (pod, _), self.failing = self.failing, None
            kinds = f"validatingadmissionpolicybinding.{API},validatingadmissionpolicy.{API}"
            self.cluster.kubectl("delete", kinds, POLICY)
            eventually(lambda: not self._is_denied(pod), "the policy is no more")

    def _is_denied(self, pod: str) -> bool:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding?dryRun=All"
        return POLICY in self.remote.request("POST", path, _binding(pod), 10)[1].decode()

    def inject(self, pod: Object, watched: str) -> None:
        """As soon as the other one is there: nobody sees from outside when it is decided on."""
        self.injected = pod, watched

    def shows_turns(self) -> bool:
        return False

    def clear(self) -> None:
        """Leave nothing behind but what was there before."""
        self.let_bind()
        for kind, name in self.made:
            self.delete(kind, name, 0 if kind is PODS else None)

        def left() -> list[str]:
            gone = {PODS.plural, self.dialect.groups.plural}
            ours = [name for plural, name in self.objects if plural in gone]
            nodes = {name for plural, name in self.objects if plural == NODES.plural}
            return ours + sorted(nodes - self.left_alone)

        still = self.until(left)
        self.remote.close()
        assert still == []

    def _write(self, write: Write, *, may_exist: bool = False, may_lack: bool = False) -> None:
        """The API server hears of its own priority classes a moment after they are made."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return super()._write(write, may_exist=may_exist, may_lack=may_lack)
            except NotTaken as refused:
                if "no PriorityClass" not in str(refused) or time.monotonic() > deadline:
                    raise
                time.sleep(MOMENT)

    def _do_what_is_due(self) -> None:
        if self.injected is not None and self.pod(self.injected[1]) is not None:
            pod, self.injected = self.injected[0], None
            self.create(PODS, pod)
        if self.failing is not None and self.pod(self.failing[0]) is not None:
            name, since = self.failing
            now = time.monotonic()
            self.failing = name, since or now
            if since and now - since > FAILS_FOR:
                self.let_bind()

    def _usable(self, made: Object) -> bool:
        found = self.objects.get((NODES.plural, made["metadata"]["name"]))
        if found is None:
            return False
        taints = {taint["key"] for taint in found["spec"].get("taints") or ()}
        return conditions(found, "Ready")[0] == "True" and "node.kubernetes.io/not-ready" not in taints


@contextmanager
def served(cluster: Cluster, folder: Path, settings: str = "") -> Iterator[None]:
    """Our scheduler at work with the rights that it is installed with; the nodes of others are closed."""
    names = [one["metadata"]["name"] for one in cluster.get("nodes")["items"]]
    cluster.apply(*(namespace(name) for name in (NAMESPACE, "bayplan-system")), *rights())
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    remote = RemoteBackend(load(cluster.kubeconfig))
    with ExitStack() as stack:
        stack.callback(remote.close)
        eventually(lambda: remote.request("GET", account, b"", 10)[0] == 200, "pods can be made")
        if names:
            cluster.kubectl("cordon", *names)
            stack.callback(cluster.kubectl, "uncordon", *names)
        configuration = folder / "configuration.yaml"
        configuration.write_text(EMPTY + settings)
        options = ("--no-elect", "--config", str(configuration))
        process = stack.enter_context(scheduler(cluster, folder, *options))
        log = folder / "run.log"
        eventually(lambda: "serving" in log.read_text() or process.poll() is not None, "it is serving")
        assert process.poll() is None, log.read_text()
        yield


def _binding(pod: str) -> bytes:
    target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
    return json.dumps(body).encode()


def _policy(pod: str) -> list[Object]:
    """Nobody may bind this pod."""
    about = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
    }
    rule = f"request.namespace != '{NAMESPACE}' || request.name != '{pod}'"
    metadata = {"name": POLICY}
    return [
        {
            "apiVersion": f"{API}/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": metadata,
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [about]},
                "validations": [{"expression": rule, "message": "a plugin failed"}],
            },
        },
        {
            "apiVersion": f"{API}/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": metadata,
            "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
        },
    ]
