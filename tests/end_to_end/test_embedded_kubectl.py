"""An unmodified kubectl and the cluster in memory: everything a demonstration needs."""

from __future__ import annotations

import json
import os
import secrets
import stat
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.http.server import ApiServer
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.fake_controllers.controller_manager import FakeControllerManager
from bayplan.dialects.api import Kind
from tests.end_to_end.objects import eventually, job_spec, kwok_node
from tests.support.api_objects import pod

Object = dict[str, Any]

PODS = Kind("", "v1", "Pod", "pods")
SECONDS = 300
"""Until a command counts as hung, also on a machine that does much else."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A cluster in memory, and kubectl in front of it."""

    program: str
    kubeconfig: Path
    home: Path
    store: Store
    lock: threading.RLock

    def kubectl(self, *arguments: str, stdin: str | None = None, fails: bool = False) -> str:
        """What kubectl prints; with `fails`, what it complains about."""
        done = subprocess.run(
            [self.program, *arguments],
            input=stdin,
            env={"PATH": os.environ["PATH"], "HOME": str(self.home), "KUBECONFIG": str(self.kubeconfig)},
            text=True,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        assert bool(done.returncode) is fails, f"kubectl {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stderr if fails else done.stdout

    def apply(self, *objects: Object) -> str:
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self.kubectl("apply", "-f", "-", stdin=json.dumps(listed))

    def get(self, *arguments: str) -> Any:
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))


@pytest.fixture(scope="module")
def machine(program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    letters = "bcdfghjklmnpqrstvwxz2456789"
    store = new_store(
        time.time, lambda: str(uuid.uuid4()), lambda: "".join(secrets.choice(letters) for _ in range(5))
    )
    lock = threading.RLock()
    face = ApiServer(store, lock).start()
    folder = tmp_path_factory.mktemp("kubectl")
    face.write_kubeconfig(folder / "kubeconfig")
    with playing(store, lock):
        yield Machine(program, folder / "kubeconfig", folder, store, lock)
    face.stop()


class playing:  # noqa: N801 — reads as a verb
    """Kubelets and job controllers, for as long as it lasts."""

    def __init__(self, store: Store, lock: threading.RLock) -> None:
        self._crew = FakeControllerManager(EmbeddedBackend(store, lock))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._play, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(SECONDS)

    def _play(self) -> None:
        while not self._over.is_set():
            self._crew.step(time.time())
            self._crew.backend.wait(0.05)


def unscheduled_pod(name: str, **spec: Any) -> Object:
    return pod(name, labels={"app": name}, **{"schedulerName": "by-hand", **spec})


def test_the_kubeconfig_is_for_its_owner_only(machine: Machine) -> None:
    assert stat.S_IMODE(machine.kubeconfig.stat().st_mode) == 0o600


def test_discovery(machine: Machine) -> None:
    assert "v1.35" in machine.kubectl("version")
    kinds = machine.kubectl("api-resources", "-o", "name").split()
    assert {"pods", "jobs.batch", "customresourcedefinitions.apiextensions.k8s.io"} <= set(kinds)
    assert "batch/v1" in machine.kubectl("api-versions").split()


def test_apply_get_and_apply_again(machine: Machine) -> None:
    created = machine.apply(kwok_node("apply-n1", rack="r1"), unscheduled_pod("apply-p1"))
    assert "node/apply-n1 created" in created and "pod/apply-p1 created" in created
    assert "unchanged" in machine.apply(unscheduled_pod("apply-p1"))
    changed = unscheduled_pod("apply-p1", containers=[{"name": "main", "image": "train:2"}])
    changed["metadata"]["labels"] = {"other": "label"}
    assert "configured" in machine.apply(changed)
    found = machine.get("pod", "apply-p1")
    assert found["metadata"]["labels"] == {"other": "label"}
    assert found["spec"]["containers"][0]["image"] == "train:2"
    head, row = machine.kubectl("get", "pod", "apply-p1", "-o", "wide").splitlines()
    assert head.split()[:4] == ["NAME", "READY", "STATUS", "RESTARTS"]
    assert row.split()[:4] == ["apply-p1", "0/1", "Pending", "0"]
    assert "apply-n1" in machine.kubectl("get", "nodes", "-l", "rack=r1")
    assert machine.kubectl("get", "pods", "-l", "none=such") == ""
    machine.kubectl("delete", "pod/apply-p1", "node/apply-n1")


def test_a_diff_shows_what_an_apply_would_change(machine: Machine) -> None:
    machine.apply(unscheduled_pod("diff"))
    changed = json.dumps(unscheduled_pod("diff", containers=[{"name": "main", "image": "train:9"}]))
    done = subprocess.run(
        [machine.program, "diff", "-f", "-"],
        input=changed,
        env={"PATH": os.environ["PATH"], "HOME": str(machine.home), "KUBECONFIG": str(machine.kubeconfig)},
        text=True,
        capture_output=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 1 and "+  - image: train:9" in done.stdout
    machine.kubectl("delete", "pod", "diff")


def test_describe_tells_events(machine: Machine) -> None:
    machine.apply(unscheduled_pod("described"))
    uid = machine.get("pod", "described")["metadata"]["uid"]
    about = {"apiVersion": "v1", "kind": "Pod", "name": "described", "namespace": "default", "uid": uid}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "described.1", "namespace": "default"},
        "involvedObject": about,
        "reason": "Misfit",
        "message": "no rack has room",
        "type": "Warning",
        "source": {"component": "bayplan"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
    machine.kubectl("create", "-f", "-", stdin=json.dumps(event))
    assert "no rack has room" in machine.kubectl("describe", "pod", "described")
    assert "no rack has room" in machine.kubectl("events", "--for", "pod/described")
    assert "pod/described" in machine.kubectl("get", "events")
    assert machine.get("events.v1.events.k8s.io", "described.1")["note"] == "no rack has room"
    machine.kubectl("delete", "pod", "described")


def test_create_sends_protobuf_and_is_understood(machine: Machine) -> None:
    machine.kubectl("create", "namespace", "made")
    machine.kubectl("create", "configmap", "c", "-n", "made", "--from-literal=a=b")
    machine.kubectl("create", "secret", "generic", "s", "-n", "made", "--from-literal=p=w")
    machine.kubectl("create", "deployment", "d", "-n", "made", "--image=web:1", "--replicas=3", "--port=80")
    machine.kubectl("create", "job", "j", "-n", "made", "--image=train:1", "--", "sleep", "1")
    machine.kubectl("create", "quota", "q", "-n", "made", "--hard=pods=3,requests.cpu=2")
    machine.kubectl("create", "pdb", "b", "-n", "made", "--selector=a=b", "--min-available=50%")
    assert machine.get("configmap", "c", "-n", "made")["data"] == {"a": "b"}
    assert machine.get("secret", "s", "-n", "made")["data"] == {"p": "dw=="}
    deployment = machine.get("deployment", "d", "-n", "made")["spec"]
    assert deployment["replicas"] == 3
    container = deployment["template"]["spec"]["containers"][0]
    assert container["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
    job = machine.get("job", "j", "-n", "made")["spec"]["template"]["spec"]
    assert job["containers"][0]["command"] == ["sleep", "1"]
    assert machine.get("quota", "q", "-n", "made")["spec"]["hard"] == {"pods": "3", "requests.cpu": "2"}
    assert machine.get("pdb", "b", "-n", "made")["spec"]["minAvailable"] == "50%"
    machine.kubectl("delete", "namespace", "made")
    assert "not found" in machine.kubectl("get", "namespace", "made", fails=True)


def test_a_job_runs_and_can_be_waited_for(machine: Machine) -> None:
    machine.apply(kwok_node("job-n1"))
    spec = job_spec(2, {"run-seconds": "1"})
    machine.apply({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "two"}, "spec": spec})
    eventually(lambda: len(machine.get("pods", "-l", "job-name=two")["items"]) == 2, "two pods are made")
    with machine.lock:
        for found in machine.store.list(PODS, "default", labels="job-name=two").items:
            name, target = found["metadata"]["name"], {"target": {"name": "job-n1"}}
            machine.store.connect(PODS, "default", name, "binding", target)
    machine.kubectl("wait", "--for=condition=Complete", "--timeout=20s", "job/two")
    assert machine.kubectl("get", "job", "two").splitlines()[1].split()[:3] == ["two", "Complete", "2/2"]
    machine.kubectl("delete", "job", "two")
    eventually(lambda: not machine.get("pods", "-l", "job-name=two")["items"], "its pods go with it")
    machine.kubectl("delete", "node", "job-n1")


def test_a_watch_sees_what_happens(machine: Machine) -> None:
    process = subprocess.Popen(
        [machine.program, "get", "configmaps", "-w", "--output-watch-events", "-l", "watched=yes"],
        env={"PATH": os.environ["PATH"], "HOME": str(machine.home), "KUBECONFIG": str(machine.kubeconfig)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        time.sleep(1.0)  # kubectl lists before it watches; what is made before is shown too
        machine.kubectl("create", "configmap", "seen", "--from-literal=a=b")
        machine.kubectl("label", "configmap", "seen", "watched=yes")
        machine.kubectl("annotate", "configmap", "seen", "note=1")
        machine.kubectl("delete", "configmap", "seen")
        lines = [process.stdout.readline().split() for _ in range(4)]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert [line[0] for line in lines] == ["EVENT", "ADDED", "MODIFIED", "DELETED"]
    assert lines[1][1:3] == ["seen", "1"]


def test_patch_label_annotate_scale_and_edit_by_replace(machine: Machine) -> None:
    machine.kubectl("create", "deployment", "web", "--image=web:1")
    machine.kubectl("scale", "deployment", "web", "--replicas=5")
    machine.kubectl("label", "deployment", "web", "tier=front")
    machine.kubectl("annotate", "deployment", "web", "note=x")
    image = {"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}}
    for form, patch in (
        ("json", [{"op": "add", "path": "/spec/paused", "value": True}]),
        ("strategic", image),
        ("merge", {"spec": {"minReadySeconds": 3}}),
    ):
        machine.kubectl("patch", "deployment", "web", f"--type={form}", "-p", json.dumps(patch))
    found = machine.get("deployment", "web")
    assert found["metadata"]["labels"] == {"app": "web", "tier": "front"}
    spec = found["spec"]
    assert (spec["replicas"], spec["paused"], spec["minReadySeconds"]) == (5, True, 3)
    assert spec["template"]["spec"]["containers"][0]["image"] == "web:2"
    assert found["metadata"]["generation"] == 5
    found["spec"]["replicas"] = 6
    machine.kubectl("replace", "-f", "-", stdin=json.dumps(found))
    assert "modified" in machine.kubectl("replace", "-f", "-", stdin=json.dumps(found), fails=True)
    machine.kubectl("set", "image", "deployment/web", "web=web:3")
    machine.kubectl("delete", "deployment", "web")


def test_cordon_taint_and_drain(machine: Machine) -> None:
    machine.apply(
        kwok_node("drain-n1"),
        unscheduled_pod("drained", nodeName="drain-n1", terminationGracePeriodSeconds=1),
    )
    machine.kubectl("cordon", "drain-n1")
    assert "SchedulingDisabled" in machine.kubectl("get", "node", "drain-n1")
    machine.kubectl("uncordon", "drain-n1")
    machine.kubectl("taint", "node", "drain-n1", "a=b:NoSchedule")
    taint = {"key": "a", "value": "b", "effect": "NoSchedule"}
    assert machine.get("node", "drain-n1")["spec"]["taints"] == [taint]
    machine.kubectl("taint", "node", "drain-n1", "a-")
    machine.kubectl("drain", "drain-n1", "--force", "--timeout=20s")
    assert "not found" in machine.kubectl("get", "pod", "drained", fails=True)
    assert "drain-n1" in machine.kubectl("describe", "node", "drain-n1")
    machine.kubectl("delete", "node", "drain-n1")


def test_a_kind_of_ones_own(machine: Machine) -> None:
    fields = {"size": {"type": "integer", "minimum": 1}, "unit": {"type": "string", "default": "GPU"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}
    columns = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version |= {"additionalPrinterColumns": columns, "subresources": {"status": {}}}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "asks.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {"plural": "asks", "kind": "Ask", "shortNames": ["as"]},
            "versions": [version],
        },
    }
    machine.apply(definition)
    machine.kubectl("wait", "--for=condition=Established", "--timeout=10s", "crd/asks.example.dev")
    ask = {"apiVersion": "example.dev/v1", "kind": "Ask", "metadata": {"name": "big"}, "spec": {"size": 9}}
    machine.apply(ask)
    machine.apply({**ask, "spec": {"size": 10}})
    assert machine.get("ask", "big")["spec"] == {"size": 10, "unit": "GPU"}
    assert machine.kubectl("get", "as").split() == ["NAME", "SIZE", "big", "10"]
    assert "size\t<integer>" in machine.kubectl("explain", "ask.spec")
    wrong = json.dumps({**ask, "metadata": {"name": "none"}, "spec": {"size": 0}})
    complaint = machine.kubectl("create", "-f", "-", stdin=wrong, fails=True)
    assert "spec.size in body should be greater than or equal to 1" in complaint
    unknown = json.dumps({**ask, "metadata": {"name": "none"}, "spec": {"sise": 1}})
    assert 'unknown field "spec.sise"' in machine.kubectl("create", "-f", "-", stdin=unknown, fails=True)
    machine.kubectl("delete", "crd", "asks.example.dev")
    assert "could not find the requested resource" in machine.kubectl("get", "asks", fails=True)


def test_gangs_in_every_version(machine: Machine) -> None:
    def made(version: str, kind: str, name: str, **spec: Any) -> Object:
        about = {"apiVersion": f"scheduling.k8s.io/{version}", "kind": kind, "metadata": {"name": name}}
        return {**about, "spec": spec}

    policy = {"gang": {"minCount": 2}}
    reference = {"workloadName": "new", "podGroupTemplateName": "a"}
    group = made("v1beta1", "PodGroup", "late", schedulingPolicy=policy)
    gangs = (
        made("v1alpha1", "Workload", "old", podGroups=[{"name": "a", "policy": policy}]),
        made("v1beta1", "Workload", "new", podGroupTemplates=[{"name": "a", "schedulingPolicy": policy}]),
        made(
            "v1alpha2",
            "PodGroup",
            "early",
            schedulingPolicy=policy,
            podGroupTemplateRef={"workload": reference},
        ),
        group,
    )
    assert machine.apply(*gangs).count("created") == 4
    assert machine.apply(*gangs).count("unchanged") == 4
    group["spec"]["schedulingPolicy"] = {"gang": {"minCount": 3}}
    assert "configured" in machine.apply(group)
    assert machine.kubectl("get", "workloads", "-o", "wide").split()[:5] == [
        "NAME",
        "GROUPS",
        "AGE",
        "new",
        "a",
    ]
    rows = [line.split()[:4] for line in machine.kubectl("get", "podgroups").splitlines()]
    assert rows[1:] == [["early", "Gang", "new", "Pending"], ["late", "Gang", "<none>", "Pending"]]
    assert "Min Count:  3" in machine.kubectl("describe", "podgroup", "late")
    assert "schedulingPolicy" in machine.kubectl("explain", "podgroup.spec")
    assert "podGroupName" in machine.kubectl("explain", "pod.spec.schedulingGroup")
    none = json.dumps({"spec": {"schedulingPolicy": {"gang": {"minCount": 0}}}})
    told = machine.kubectl("patch", "podgroup", "late", "-p", none, fails=True)
    assert "spec.schedulingPolicy.gang.minCount: Required value" in told
    machine.kubectl("delete", "workload/old", "workload/new", "podgroup/early", "podgroup/late")


def test_explain_and_server_side_dry_run(machine: Machine) -> None:
    told = machine.kubectl("explain", "pod.spec.containers.resources")
    assert "limits" in told and "requests" in told
    machine.kubectl("create", "-f", "-", "--dry-run=server", stdin=json.dumps(unscheduled_pod("never")))
    assert "not found" in machine.kubectl("get", "pod", "never", fails=True)
    wrong = unscheduled_pod("never")
    wrong["spec"]["containers"] = [{"name": "main", "image": "x", "imag": "y"}]
    complaint = machine.kubectl("create", "-f", "-", stdin=json.dumps(wrong), fails=True)
    assert 'unknown field "spec.containers[0].imag"' in complaint


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "logs": (("logs", "refused"), "logs are not kept"),
    "exec": (("exec", "refused", "--", "ls"), "commands cannot be run"),
    "port-forward": (("port-forward", "refused", "8080:80"), "ports cannot be forwarded"),
    "apply": (("apply", "--server-side", "-f", "-"), "leave out --server-side"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_served_says_so(machine: Machine, what: str) -> None:
    machine.apply(kwok_node("refused-n1"), unscheduled_pod("refused", nodeName="refused-n1"))
    eventually(lambda: machine.get("pod", "refused")["status"]["phase"] == "Running", "the pod runs")
    arguments, sentence = REFUSED[what]
    stdin = json.dumps(unscheduled_pod("refused")) if what == "apply" else None
    assert sentence in machine.kubectl(*arguments, stdin=stdin, fails=True)
    machine.kubectl("delete", "pod/refused", "node/refused-n1", "--force", "--grace-period=0")


def test_without_the_token_nobody_is_let_in(machine: Machine, tmp_path: Path) -> None:
    stranger = json.loads(machine.kubeconfig.read_text())
    stranger["users"][0]["user"]["token"] = "guessed"
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(stranger))
    other = Machine(machine.program, path, tmp_path, machine.store, machine.lock)
    complaint = other.kubectl("get", "pods", fails=True)
    assert "must be logged in" in complaint or "Unauthorized" in complaint
