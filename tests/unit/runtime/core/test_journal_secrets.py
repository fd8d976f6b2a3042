"""Secrets in users' jobs are not in the journal, whichever controller reads the job."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.fake_controllers.manifests import GPU
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.workloads import decode_workload
from bayplan.dialects.kueue.names import api_kinds
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.provisioning.controller import ProvisioningController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.runtime.core.loop import Loop
from tests.support.api_objects import job
from tests.support.job_world import JobWorld

SECRET = "s3cr3t"
Object = dict[str, Any]


@pytest.fixture
def journal() -> MemoryJournal:
    return MemoryJournal()


@pytest.fixture
def world(journal: MemoryJournal) -> JobWorld:
    """A cluster where all controllers write one journal."""
    made = JobWorld()
    made.backend = EmbeddedBackend(made.store)
    roles = (
        AdmissionController(),
        ProvisioningController(),
        JobsController(),
        UngatingController(0.0),
        NodeHealthController(),
        PodGrouperController(),
        SchedulerController(),
    )
    made.loop = Loop(made.backend, roles, journal)
    return made


def template(**spec: Any) -> Object:
    probe = {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}}
    container = {
        "name": "main",
        "image": "example.com/train",
        "command": ["sh", "-c", f"login {SECRET}"],
        "args": [f"--token={SECRET}"],
        "env": [{"name": "TOKEN", "value": SECRET}],
        "livenessProbe": probe,
        "lifecycle": {"preStop": {"exec": {"command": ["logout", SECRET]}}},
        "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}},
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "initContainers": [container | {"name": "i"}],
        **spec,
    }
    return {"metadata": {"annotations": {"example.com/token": SECRET}}, "spec": spec}


def annotated_job(name: str, pods: int, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    notes = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"env": "{SECRET}"}}'}
    return job(name, template(**spec), pods, namespace="default", labels=labels or {}, annotations=notes)


def test_environments_commands_and_annotations_of_jobs_are_not_in_the_journal(
    world: JobWorld, journal: MemoryJournal
) -> None:
    queued = {"kueue.x-k8s.io/queue-name": "main"}
    world.create(annotated_job("fits", 2, queued))
    world.create(annotated_job("waits", 60, queued))
    world.create(annotated_job("ours", 2, schedulerName="bayplan"))
    pod = template(schedulerName="bayplan")
    world.create({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {"name": "alone", **pod["metadata"]}})
    world.pass_time(30.0)
    workload = world.workloads()[0]["spec"]
    world.make(api_kinds.WORKLOADS, "by-hand", {"queueName": "main", "podSets": workload["podSets"]})
    world.pass_time(30.0)
    written = b"".join(journal.lines)
    for name in (b"fits", b"waits", b"ours", b"alone", b"by-hand"):
        assert name in written
    assert SECRET.encode() not in written


def digest(change: dict[str, Any], **spec: Any) -> str:
    made = template(**spec)
    made["spec"]["containers"] = [made["spec"]["containers"][0] | change]
    pod_sets = [{"name": "main", "count": 2, "template": made}]
    workload = {"metadata": {"name": "w", "namespace": "default"}, "spec": {"podSets": pod_sets}}
    return decode_workload(Field(workload)).shape


def test_workloads_are_alike_if_they_ask_for_the_same_whatever_their_containers_are_told() -> None:
    first = digest({})
    assert digest({"env": [], "args": [], "command": ["other"]}) == first
    assert digest({"resources": {"requests": {GPU: "2"}, "limits": {GPU: "2"}}}) != first
    assert digest({}, nodeSelector={"a": "b"}) != first
    assert digest({}, tolerations=[{"operator": "Exists"}]) != first
    assert len(first) == 64
