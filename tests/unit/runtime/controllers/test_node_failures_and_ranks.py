"""A node of ranked pods fails, with ungating: surviving ranks stay, the lost one moves."""

from __future__ import annotations

from bayplan.dialects.kueue.names.annotations import TOPOLOGY_GATE
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.state.cluster.topology_state import TopologyState
from tests.support.failing_nodes import LIMIT, PLAIN_PODS, World
from tests.support.queued_cluster import Object, queued_workload

INDEX = "batch.kubernetes.io/job-completion-index"


def ranked(world: World, name: str, gang: str, rank: int) -> None:
    """A job creates a pod, and it waits to be ungated."""
    notes = {"kueue.x-k8s.io/workload": gang, "kueue.x-k8s.io/podset-unconstrained-topology": "true"}
    labels = {INDEX: str(rank), "kueue.x-k8s.io/podset": "main"}
    meta = {"name": name, "namespace": "ml", "annotations": notes, "labels": labels}
    gates = [{"name": TOPOLOGY_GATE}]
    spec: Object = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": gates}
    world.store.create(PLAIN_PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}, "ml")
    world.store.patch(PLAIN_PODS, "ml", name, {"status": {"phase": "Pending"}}, subresource="status")
    world.pass_time(2)


def told(world: World, name: str) -> str:
    spec = world.store.get(PLAIN_PODS, "ml", name)["spec"]
    return str((spec.get("nodeSelector") or {}).get(HOSTNAME, ""))


def start(world: World, gang: str) -> list[str]:
    """A gang of four ranked pods on whole hosts; returns the host of each rank."""
    asked = queued_workload(gang, 4, 4)
    asked["spec"]["podSets"][0]["topologyRequest"] = {"unconstrained": True, "podIndexLabel": INDEX}
    world.cluster.submit(asked)
    world.pass_time()
    for rank in range(4):
        ranked(world, f"{gang}-{rank}", gang, rank)
    hosts = [told(world, f"{gang}-{rank}") for rank in range(4)]
    for rank, on in enumerate(hosts):
        target = {"apiVersion": "v1", "kind": "Node", "name": on}
        world.store.connect(PLAIN_PODS, "ml", f"{gang}-{rank}", "binding", {"target": target})
        world.store.patch(
            PLAIN_PODS, "ml", f"{gang}-{rank}", {"status": {"phase": "Running"}}, subresource="status"
        )
    world.pass_time()
    return hosts


def test_a_lost_rank_goes_to_the_replacement_and_the_others_stay() -> None:
    world = World(others=[UngatingController(0.0)])
    hosts = start(world, "train")
    assert hosts == list(world.places("train"))
    world.fail(hosts[1])
    world.pass_time(LIMIT)
    (fresh,) = set(world.places("train")) - set(hosts)
    world.store.patch(PLAIN_PODS, "ml", "train-1", {"status": {"phase": "Failed"}}, subresource="status")
    ranked(world, "train-1-again", "train", 1)
    assert told(world, "train-1-again") == fresh
    assert [told(world, f"train-{rank}") for rank in (0, 2, 3)] == [hosts[0], hosts[2], hosts[3]]


def test_a_pod_sent_to_a_cordoned_node_is_failed_once_and_its_successor_goes_elsewhere() -> None:
    world = World(others=[UngatingController(0.0)])
    hosts = start(world, "train")
    world.store.patch(PLAIN_PODS, "ml", "train-1", {"status": {"phase": "Failed"}}, subresource="status")
    ranked(world, "train-1-again", "train", 1)  # sent to its old host, and then:
    assert told(world, "train-1-again") == hosts[1]
    world.change(hosts[1], {"unschedulable": True})
    world.pass_time(2)
    assert world.store.get(PLAIN_PODS, "ml", "train-1-again")["status"]["phase"] == "Failed"
    ranked(world, "train-1-at-last", "train", 1)
    (fresh,) = set(world.places("train")) - set(hosts)
    assert told(world, "train-1-at-last") == fresh
    world.pass_time(60)
    pods = world.store.list(PLAIN_PODS, "ml").items
    failed = [pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Failed"]
    assert failed == ["train-1", "train-1-again"]


def test_a_host_that_is_no_more_is_not_the_block_of_its_name() -> None:
    cluster = TopologyState(Topology("hall", ("block", HOSTNAME)))
    cluster.load([Node("n1", {"block": "b1", HOSTNAME: "n1"}, {"cpu": 1})])
    supply = cluster.snapshot()
    assert supply.leaf(("n1",), usable=False) == supply.leaf(("b1", "n1"), usable=False) == 0
    assert supply.leaf(("b1",), usable=False) is None
