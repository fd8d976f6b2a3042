"""Segments on a real control plane: annotations on a pod template, and each segment in a rack of its own.

Jobs and JobSets have their real controllers; PyTorchJobs are operated by the test. The scheduler, the grouper
and the webhooks have only the rights that they are installed with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from bayplan.backends.fake_controllers.crds import schemaless_crd
from bayplan.configuration.settings import EMPTY
from bayplan.dialects.kai.api.names import POD_GROUP, QUEUE, TOPOLOGY
from bayplan.dialects.kai.grouper.owner_kinds import BY_NAME
from tests.end_to_end.admission_site import GPU, POOL, RACK, Site, installed, running
from tests.end_to_end.objects import Object, eventually, kwok_node
from tools.controlplane.plan import Trouble

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

ZONE = "example.com/zone"
GROUPS, TOPOLOGIES = f"{POD_GROUP.plural}.{POD_GROUP.group}", f"{TOPOLOGY.plural}.{TOPOLOGY.group}"
QUEUES = f"{QUEUE.plural}.{QUEUE.group}"
TRAINING = BY_NAME["kubeflow.org", "PyTorchJob"]
TYPE, INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
COMPLETION = "batch.kubernetes.io/job-completion-index"
IN_ONE_ZONE = {"kai.scheduler/topology": "hall", "kai.scheduler/topology-required-placement": ZONE}
IN_RACKS = {
    "bayplan.dev/run-seconds": "100000",
    "kai.scheduler/segment-size": "4",
    "kai.scheduler/segment-topology-required-placement": RACK,
}
CHOSEN = "segments-settings"
"""The namespace of the ConfigMap with defaults by kind."""
HALL = {"z1": ("r1", "r2", "r3", "r4"), "z2": ("r5", "r6", "r7")}


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A zone of four racks and one of three, each of three hosts for two pods; ours are at work."""
    folder = tmp_path_factory.mktemp("segments")
    config = folder / "configuration.yaml"
    config.write_text(f"{EMPTY}grouper: {{defaults: {CHOSEN}/by-kind}}\n")
    cluster.apply(
        schemaless_crd(TRAINING), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": CHOSEN}}
    )
    roles = ("scheduler", "grouper", "webhooks")
    with installed(cluster, "segments-test", folder, roles=roles, config=config) as found:
        found.add_hosts(*hosts())
        levels = [{"nodeLabel": level} for level in (ZONE, RACK)]
        hall = {"apiVersion": TOPOLOGY.api_version, "kind": "Topology", "metadata": {"name": "hall"}}
        found.apply({**hall, "spec": {"levels": levels}})
        with running(found, folder / "run", "--roles=scheduler,grouper", f"--config={config}"):
            yield found
        found.kubectl("delete", TOPOLOGIES, "--all")
    cluster.kubectl("delete", "crd", f"{TRAINING.plural}.{TRAINING.group}")
    cluster.kubectl("delete", "namespace", CHOSEN, "--wait=false")


@pytest.fixture(autouse=True)
def swept(site: Site) -> Iterator[None]:
    yield
    jobs = f"jobs,jobsets,{TRAINING.plural}"
    site.kubectl("delete", jobs, "--all", "-n", "default", "--cascade=background")
    site.kubectl("delete", "pods", "--all", "-n", "default", "--grace-period=0", "--force")
    site.kubectl("delete", GROUPS, "--all", "-n", "default")


def hosts() -> list[Object]:
    return [
        kwok_node(f"{zone}-{rack}-h{host}", 4, **{POOL: "segments", ZONE: zone, RACK: rack})
        for zone, racks in HALL.items()
        for rack in racks
        for host in (1, 2, 3)
    ]


def template(notes: Mapping[str, str]) -> Object:
    limits = {GPU: "2"}
    container = {"name": "main", "image": "none", "resources": {"requests": limits, "limits": limits}}
    spec = {"restartPolicy": "Never", "schedulerName": "bayplan", "containers": [container]}
    return {"metadata": {"annotations": dict(notes)}, "spec": {**spec, "nodeSelector": {POOL: "segments"}}}


def made(version: str, kind: str, name: str, notes: Mapping[str, str], spec: Object) -> Object:
    meta = {"name": name, "namespace": "default", "annotations": dict(notes)}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def training(name: str, replicas: int, notes: Mapping[str, str], **spec: Any) -> Object:
    types = {"Worker": {"replicas": replicas, "template": template(notes)}}
    return made(
        TRAINING.api_version, TRAINING.kind, name, IN_ONE_ZONE, {"pytorchReplicaSpecs": types, **spec}
    )


class Operator:
    """What the operator of PyTorchJobs does: a pod for each number, and another when one is gone."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.name = site, name
        found = site.cluster.get(TRAINING.plural, name, "-n", "default")
        self.specs = found["spec"]["pytorchReplicaSpecs"]["Worker"]
        uid = found["metadata"]["uid"]
        kind = {"apiVersion": TRAINING.api_version, "kind": TRAINING.kind}
        self.owner = {**kind, "name": name, "uid": uid, "controller": True}

    def operate(self, count: int = 0) -> None:
        there = {pod["metadata"]["name"] for pod in pods_of(self.site, self.name)}
        names = [f"{self.name}-worker-{number}" for number in range(count or self.specs["replicas"])]
        lacking = [self._pod(name) for name in names if name not in there]
        if lacking:
            listed = {"apiVersion": "v1", "kind": "List", "items": lacking}
            self.site.kubectl("create", "-f", "-", stdin=json.dumps(listed))

    def _pod(self, name: str) -> Object:
        made = self.specs["template"]
        labels = {TYPE: "worker", INDEX: name.rpartition("-")[2]}
        meta = {**made["metadata"], "name": name, "namespace": "default", "labels": labels}
        meta["ownerReferences"] = [self.owner]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": made["spec"]}


def pods_of(site: Site, name: str) -> list[Object]:
    found: list[Object] = site.cluster.get("pods", "-n", "default")["items"]
    return [pod for pod in found if pod["metadata"]["name"].startswith(f"{name}-")]


def places(site: Site, name: str, label: str = INDEX) -> dict[int, str]:
    """The host of every number that has one."""
    return {
        int(pod["metadata"]["labels"][label]): pod["spec"]["nodeName"]
        for pod in pods_of(site, name)
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    }


def uids_of(site: Site, name: str) -> dict[int, str]:
    return {int(pod["metadata"]["labels"][INDEX]): pod["metadata"]["uid"] for pod in pods_of(site, name)}


def check_segments(found: dict[int, str], size: int = 4) -> set[str]:
    """Each segment is in one rack; the zones of all."""
    for first in range(0, len(found), size):
        racks = {found[number].split("-")[1] for number in range(first, first + size) if number in found}
        assert len(racks) == 1, (first, found)
    return {host.split("-")[0] for host in found.values()}


def group_of(site: Site, name: str) -> Object:
    """The group of a job; nothing as long as there is none."""
    found: list[Object] = site.cluster.get(GROUPS, "-n", "default")["items"]
    return next((one for one in found if f"-{name}-" in one["metadata"]["name"]), {})


def told(site: Site, name: str) -> str:
    said = (group_of(site, name).get("status") or {}).get("schedulingConditions") or [{}]
    return str(said[0].get("message", ""))


def test_sixteen_workers_in_four_racks_of_one_zone_and_then_a_host_dies(site: Site) -> None:
    site.apply(training("tensor", 16, IN_RACKS))
    operator = Operator(site, "tensor")
    operator.operate(8)
    eventually(
        lambda: "0 pods of sub-group worker-2 are there while 4 are required" in told(site, "tensor"),
        "it waits and says so",
    )
    assert places(site, "tensor") == {}
    operator.operate()
    eventually(lambda: len(places(site, "tensor")) == 16, "all have a host")
    before = places(site, "tensor")
    assert check_segments(before) == {"z1"}
    group = group_of(site, "tensor")
    parts = {one["name"]: one for one in group["spec"]["subGroups"]}
    assert set(parts) == {"worker", *(f"worker-{number}" for number in range(4))}
    asked = {"topology": "hall", "requiredTopologyLevel": RACK}
    assert parts["worker-3"]["topologyConstraint"] == asked and parts["worker-3"]["minMember"] == 4
    eventually(lambda: group_of(site, "tensor")["status"].get("running") == 16, "the group says that it runs")
    assert group_of(site, "tensor")["status"]["resourcesStatus"]["allocated"] == {GPU: "32"}

    lost = before[5]
    site.kubectl("delete", "node", lost)

    def replaced() -> bool:
        operator.operate()
        now = places(site, "tensor")
        return len(now) == 16 and lost not in now.values()

    eventually(replaced, "whoever was there is elsewhere")
    after = places(site, "tensor")
    assert check_segments(after) == {"z1"}
    moved = {number for number in before if before[number] != after[number]}
    assert moved == {number for number, host in before.items() if host == lost}, "nobody else moved"
    site.add_hosts(*(one for one in hosts() if one["metadata"]["name"] == lost))


def test_elastic_segments_hold_nobody_up_and_come_together_when_there_is_room(site: Site) -> None:
    names = [one["metadata"]["name"] for one in hosts()]
    open_ = {f"z2-{rack}-h{host}" for rack in ("r5", "r6") for host in (1, 2)}
    site.kubectl("cordon", *(name for name in names if name not in open_))
    try:
        site.apply(training("elastic", 12, IN_RACKS, elasticPolicy={"minReplicas": 8, "maxReplicas": 12}))
        Operator(site, "elastic").operate()
        eventually(lambda: len(places(site, "elastic")) == 8, "the minimum runs without the rest")
        assert set(places(site, "elastic")) == set(range(8))
        parts = {one["name"]: one["minMember"] for one in group_of(site, "elastic")["spec"]["subGroups"]}
        assert parts == {"worker": 8, "worker-0": 4, "worker-1": 4, "worker-2": 0}
        site.kubectl("uncordon", *(name for name in names if "-r7-" in name))
        eventually(lambda: len(places(site, "elastic")) == 12, "the rest follows")
        assert check_segments(places(site, "elastic")) == {"z2"}
    finally:
        site.kubectl("uncordon", *names)


def test_elastic_pods_leave_the_rack_for_those_of_their_job_that_lost_a_host(site: Site) -> None:
    names = [one["metadata"]["name"] for one in hosts()]
    open_ = {"z2-r5-h1", "z2-r5-h2", "z2-r5-h3", "z2-r6-h1", "z2-r6-h2"}
    site.kubectl("cordon", *(name for name in names if name not in open_))
    lost = ""
    try:
        site.apply(training("spare", 12, IN_RACKS, elasticPolicy={"minReplicas": 8, "maxReplicas": 12}))
        operator = Operator(site, "spare")
        operator.operate()
        eventually(lambda: len(places(site, "spare")) == 10, "two run beside the minimum")
        before, uids = places(site, "spare"), uids_of(site, "spare")
        lost = next(host for number, host in before.items() if number < 8 and "-r5-" in host)
        site.kubectl("delete", "node", lost)

        def mended() -> bool:
            operator.operate()
            now = places(site, "spare")
            return lost not in now.values() and set(range(8)) <= set(now)

        eventually(mended, "what the job cannot do without runs again")
        after = places(site, "spare")
        moved = {number for number in range(8) if before[number] != after[number]}
        anew = {number for number, uid in uids_of(site, "spare").items() if uids[number] != uid}
        assert moved == {number for number in range(8) if before[number] == lost}, "nobody else moved"
        assert moved == {number for number in anew if number < 8}, "nor was started again"
        assert {after[number].split("-")[1] for number in moved} == {"r5"}
    finally:
        site.kubectl("uncordon", *(name for name in names if name != lost))
        site.add_hosts(*(one for one in hosts() if one["metadata"]["name"] == lost))


def test_an_elastic_segment_whose_pods_come_later_is_together_too(site: Site) -> None:
    site.apply(training("later", 12, IN_RACKS, elasticPolicy={"minReplicas": 8, "maxReplicas": 12}))
    operator = Operator(site, "later")
    operator.operate(8)
    eventually(lambda: len(places(site, "later")) == 8, "the minimum runs before the rest exists")
    for count in range(9, 13):
        operator.operate(count)
    eventually(lambda: len(places(site, "later")) == 12, "the rest follows")
    assert len(check_segments(places(site, "later"))) == 1


def test_a_bad_size_is_told_on_group_and_pods(site: Site) -> None:
    site.apply(training("wrong", 4, {**IN_RACKS, "kai.scheduler/segment-size": "0"}))
    Operator(site, "wrong").operate()
    eventually(lambda: "invalid segment size 0" in told(site, "wrong"), "the group says what is wrong")

    def said() -> list[str]:
        conditions = [one for pod in pods_of(site, "wrong") for one in pod["status"].get("conditions") or ()]
        return [one.get("message", "") for one in conditions if one["type"] == "PodScheduled"]

    eventually(lambda: sum("invalid segment size 0" in one for one in said()) == 4, "and so do the pods")
    assert places(site, "wrong") == {}
    uid = group_of(site, "wrong")["metadata"]["uid"]
    selector = f"involvedObject.uid={uid},reason=FailedScheduling"
    assert site.cluster.get("events", "-n", "default", f"--field-selector={selector}")["items"]


def test_a_job_has_segments_and_its_pods_are_told_theirs(site: Site) -> None:
    counts = {"parallelism": 8, "completions": 8, "completionMode": "Indexed"}
    spec = {**counts, "template": template({**IN_RACKS, **IN_ONE_ZONE})}
    site.apply(made("batch/v1", "Job", "indexed", IN_ONE_ZONE, spec))
    eventually(lambda: len(places(site, "indexed", COMPLETION)) == 8, "all have a host")
    assert len(check_segments(places(site, "indexed", COMPLETION))) == 1
    for pod in pods_of(site, "indexed"):
        segment = str(int(pod["metadata"]["labels"][COMPLETION]) // 4)
        variables = {one["name"]: one.get("value") for one in pod["spec"]["containers"][0]["env"]}
        assert variables["KAI_SEGMENT_INDEX"] == segment
        assert pod["metadata"]["annotations"]["kai.scheduler/segment-index"] == segment
        assert pod["metadata"]["labels"]["kai.scheduler/subgroup-name"].endswith(f"-{segment}")


def test_a_job_set_whose_pods_are_numbered_by_a_label_has_segments(site: Site) -> None:
    counts = {"parallelism": 8, "completions": 8, "completionMode": "Indexed"}
    notes = {**IN_RACKS, **IN_ONE_ZONE, "kai.scheduler/pod-index-label": COMPLETION}
    inner = {"spec": {**counts, "template": template(notes)}}
    parts = [{"name": "workers", "replicas": 1, "template": inner}]
    site.apply(made("jobset.x-k8s.io/v1alpha2", "JobSet", "many", {}, {"replicatedJobs": parts}))
    eventually(lambda: len(places(site, "many", COMPLETION)) == 8, "all have a host")
    check_segments(places(site, "many", COMPLETION))


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], "cycle detected in subgroups"),
        ([{"name": "a"}, {"name": "a"}], "duplicate subgroup name a"),
        ([{"name": "a", "parent": "b"}], "parent b of a was not found"),
    ],
)
def test_a_group_that_makes_no_tree_is_refused(site: Site, parts: list[Object], why: str) -> None:
    body = made(POD_GROUP.api_version, "PodGroup", "loop", {}, {"minMember": 1, "subGroups": parts})
    with pytest.raises(Exception, match=why):
        site.apply(body)


def test_queues_whose_parents_go_round_in_a_circle_say_so_until_they_do_not(site: Site) -> None:
    def queue(name: str, **spec: Any) -> Object:
        return {"apiVersion": QUEUE.api_version, "kind": QUEUE.kind, "metadata": {"name": name}, "spec": spec}

    def active(name: str) -> str:
        path = '{.status.conditions[?(@.type=="Active")].status} {.status.conditions[*].reason}'
        return site.kubectl("get", QUEUES, name, "-o", f"jsonpath={path}").strip()

    with pytest.raises(
        Exception, match="a queue cannot be its own parent: name the queue that it is a part of"
    ):
        site.apply(queue("own", parentQueue="own"))
    site.apply(queue("one", parentQueue="two"), queue("two", parentQueue="one"))
    try:
        eventually(lambda: active("one") == active("two") == "False ParentQueuesInCircle", "both say so")
        site.apply(queue("two"))
        eventually(lambda: active("one") == active("two") == "True Ready", "both say that it is over")
    finally:
        site.kubectl("delete", QUEUES, "one", "two")


def test_defaults_by_kind_come_from_one_config_map_and_what_is_changed_by_hand_stays(site: Site) -> None:
    def defaults(*entries: Object, text: str = "") -> None:
        data = {"types": text or json.dumps(entries)}
        meta = {"name": "by-kind", "namespace": CHOSEN}
        site.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data})

    def preemptibility(name: str) -> str:
        return str((group_of(site, name).get("spec") or {}).get("preemptibility", "none"))

    def warnings() -> list[str]:
        found = site.cluster.get("events", "-n", CHOSEN)["items"]
        return [one["message"] for one in found if one["reason"] == "DefaultsIgnored"]

    def train(name: str) -> None:
        site.apply(training(name, 2, IN_RACKS))
        Operator(site, name).operate()
        eventually(lambda: len(places(site, name)) == 2, f"the pods of {name} have hosts")

    defaults({"typeName": TRAINING.kind, "preemptibility": "perhaps"})
    eventually(lambda: bool(warnings()), "what is wrong is said")
    assert warnings() == [
        f"ConfigMap {CHOSEN}/by-kind: types[0].preemptibility must be preemptible or non-preemptible, "
        'not "perhaps"'
    ]
    train("first")
    assert preemptibility("first") == "none"
    defaults({"typeName": TRAINING.kind, "preemptibility": "non-preemptible"})
    train("second")
    assert (preemptibility("first"), preemptibility("second")) == ("none", "non-preemptible")
    second = group_of(site, "second")["metadata"]["name"]
    change = json.dumps({"spec": {"queue": "urgent", "preemptibility": "preemptible"}})
    site.kubectl("patch", GROUPS, second, "-n", "default", "--type=merge", "-p", change)
    site.apply(training("second", 4, IN_RACKS))
    eventually(lambda: group_of(site, "second")["spec"]["minMember"] == 4, "the group grows with its job")
    spec = group_of(site, "second")["spec"]
    assert (spec["queue"], spec["preemptibility"]) == ("urgent", "preemptible")
    account = f"--as=system:serviceaccount:{site.namespace}:bayplan"
    assert site.kubectl("auth", "can-i", "watch", "configmaps/by-kind", "-n", CHOSEN, account) == "yes\n"
    for where in (CHOSEN, "default"):
        with pytest.raises(Trouble, match="forbidden"):
            site.kubectl("get", "configmaps", "-n", where, account)
    with pytest.raises(Trouble):
        site.kubectl("auth", "can-i", "watch", "configmaps/by-kind", "-n", "default", account)
