"""Statuses of queues are accepted by the API, read back unchanged, and not written twice."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from bayplan.backends.definitions import define
from bayplan.backends.embedded.api.options import Options
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields import queues
from bayplan.dialects.kueue.status import queue_status
from bayplan.model.change import FlavorSeen, NamespaceQueueSeen, QueuedGangSeen, QueueSeen, QuotaNodeSeen
from bayplan.model.queued_gang import Admission
from bayplan.model.quota import Flavor
from bayplan.model.summary import SharedSummary, Summaries
from bayplan.state.admission.state import AdmissionState
from bayplan.state.reports.summaries import summaries
from tests.support.admission_worlds import demand
from tests.support.kueue_api import GROUP, PARAMETERS, made, quota
from tests.support.kueue_workloads import NOW
from tests.unit.assembly.test_kueue_crds import of, place, put
from tests.unit.backends.embedded.storage.test_store import Object, store_at

STRICT = Options(validation="Strict")


@pytest.fixture
def store() -> Store:
    found = store_at()
    define(found)
    return found


def summaries_of(queue: Object, local: Object, cohort: Object) -> Summaries:
    """Summaries with one gang that uses more than the nominal quota of the queue."""
    state = AdmissionState()
    state.apply(FlavorSeen(Flavor("default-flavor")))
    state.apply(QuotaNodeSeen(queues.quota_node(Field(cohort))))
    state.apply(QueueSeen(queues.queue(Field(queue))))
    state.apply(NamespaceQueueSeen(queues.namespace_queue(Field(local))))
    gang = demand("a", cpu=10_500, entrance=("default", "lq"), admitted=True, given="cq")
    assert gang.admission is not None
    given = replace(gang.admission.pod_sets[0], flavors={"cpu": "default-flavor"})
    state.apply(QueuedGangSeen(replace(gang, admission=Admission("cq", (given,)))))
    return summaries(state)


def written(store: Store, obj: Object, status: Object | None) -> Object:
    assert status is not None
    namespace, name = place(obj)
    return store.update(of(obj["kind"]), namespace, name, {**obj, "status": status}, "status", STRICT)


def test_statuses_are_accepted_as_they_are(store: Store) -> None:
    spec = {"resourceGroups": quota(), "cohortName": "team", "namespaceSelector": {}}
    queue = put(store, made("ClusterQueue", "cq", spec))
    local = put(store, made("LocalQueue", "lq", {"clusterQueue": "cq"}))
    cohort = put(store, made("Cohort", "team", {"resourceGroups": quota(3)}))
    told = summaries_of(queue, local, cohort)
    after = written(store, queue, queue_status.cluster_queue(queue, told.queues["cq"], NOW))
    assert after["status"]["flavorsUsage"][0]["resources"] == [
        {"name": "cpu", "total": "10500m", "borrowed": "1500m"}
    ]
    assert queue_status.cluster_queue(after, told.queues["cq"], NOW + 60) is None
    after = written(
        store, local, queue_status.local_queue(local, told.namespace_queues["default", "lq"], NOW)
    )
    assert after["status"]["reservingWorkloads"] == 1
    assert queue_status.local_queue(after, told.namespace_queues["default", "lq"], NOW + 60) is None
    endless = SharedSummary("team", share=inf)
    after = written(store, cohort, queue_status.cohort(cohort, endless, NOW))
    assert queue_status.cohort(after, endless, NOW + 60) is None


def test_a_check_reports_whether_its_configuration_exists(store: Store) -> None:
    spec = {"controllerName": f"{GROUP}/provisioning-request", "parameters": PARAMETERS}
    check = put(store, made("AdmissionCheck", "prov-check", spec))
    for configs, active in (((), "False"), (("prov",), "True")):
        check = written(store, check, queue_status.admission_check(check, configs, NOW))
        assert [told["status"] for told in check["status"]["conditions"]] == [active]
        assert queue_status.admission_check(check, configs, NOW + 60) is None
