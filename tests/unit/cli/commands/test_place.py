"""`bayplan place` from the outside: what it reads, what it prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan import __version__
from tests.support.manifests import (
    FOUR,
    RACK,
    Write,
    data,
    gpu_job,
    place,
    rack_node,
    run,
    running_pod,
    shares,
    writer,
)

EXAMPLE = Path(__file__).parents[4] / "examples" / "01-place"


@pytest.fixture
def file(tmp_path: Path) -> Write:
    return writer(tmp_path)


@pytest.mark.parametrize(
    ("files", "expected", "status"),
    [
        (("cluster.yaml", "gangs.yaml"), "expected.txt", 0),
        (("cluster.yaml", "gangs.yaml", "too-big.yaml"), "expected-too-big.txt", 1),
    ],
)
def test_the_example_prints_what_it_says(files: tuple[str, ...], expected: str, status: int) -> None:
    result = place(*(EXAMPLE / name for name in files))
    assert result.exit_code == status
    assert result.stdout == (EXAMPLE / expected).read_text(encoding="utf-8")


def test_version_and_help() -> None:
    assert run("--version").stdout == f"bayplan {__version__}\n"
    assert "place" in run("--help").stdout
    assert "--strategy" in run("place", "--help").stdout
    assert run("plaice").exit_code == 2
    assert run("place").exit_code == 2


def test_gangs_see_what_earlier_ones_took(file: Write) -> None:
    wish = {"podset_required_topology": RACK}
    result = place(
        file(*FOUR, gpu_job("a", **wish), gpu_job("b", **wish), gpu_job("c", **wish)), options=("-o", "json")
    )
    assert result.exit_code == 1
    assert shares(result, 0) == {"x1": 1, "x2": 1}
    assert shares(result, 1) == {"x3": 1, "x4": 1}
    misfit = data(result)["gangs"][2]["misfit"]
    assert misfit["code"] == "no_room"
    assert misfit["message"].startswith('topology "inferred" doesn\'t allow to fit any of 2 pod(s)')
    assert misfit["excluded"]["resources"] == {"example.com/gpu": 4}
    assert data(result)["exitStatus"] == 1


def test_pods_that_run_take_room_wherever_they_come_from(file: Write) -> None:
    dump = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [*FOUR, running_pod("p", "x1", 4), running_pod("stray", "gone", 1)],
    }
    cluster = file(json.dumps(dump), name="cluster.json")
    result = place(cluster, file(gpu_job(podset_required_topology=RACK)), options=("-o", "json"))
    assert shares(result) == {"x3": 1, "x4": 1}
    assert "1 pod on nodes that are not in the input" in data(result)["notes"]


def test_typed_lists_several_json_values_and_stdin_are_read() -> None:
    nodes = {"kind": "NodeList", "items": [{k: v for k, v in each.items() if k != "kind"} for each in FOUR]}
    text = json.dumps(nodes) + "\n" + json.dumps(gpu_job())
    result = place("-", options=("-o", "json"), stdin=text.encode())
    assert result.exit_code == 0, result.stderr
    assert sum(shares(result).values()) == 2


def test_yaml_output_is_the_json_output(file: Write) -> None:
    path = file(*FOUR, gpu_job())
    as_json, as_yaml = (place(path, options=("-o", form)) for form in ("json", "yaml"))
    assert yaml.safe_load(as_yaml.stdout) == data(as_json)


def test_topology_and_flavor_objects_are_used(file: Write) -> None:
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "t"},
        "spec": {"levels": [{"nodeLabel": RACK}]},
    }
    flavor = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "ResourceFlavor",
        "metadata": {"name": "f"},
        "spec": {
            "nodeLabels": {RACK: "r2"},
            "nodeTaints": [{"key": "k", "effect": "NoSchedule"}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "topologyName": "t",
        },
    }
    result = place(file(*FOUR, topology, flavor, gpu_job()), options=("-o", "json"))
    assert data(result)["topology"] == {"name": "t", "levels": [RACK]}
    assert shares(result) == {"r2": 2}
    assert "2 nodes of another flavor" in data(result)["notes"]
    del flavor["spec"]["tolerations"]  # type: ignore[attr-defined]
    assert place(file(*FOUR, topology, flavor, gpu_job())).exit_code == 1


def test_where_the_lowest_level_is_a_rack_racks_are_counted(file: Write) -> None:
    racks = {"kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": RACK}]}}
    cordoned = rack_node("x5", "r2", spec={"unschedulable": True})
    busy = [running_pod("p1", "x3", 4), running_pod("p2", "x4", 4)]
    path = file(*FOUR, cordoned, *busy, racks, gpu_job(pods=3, podset_required_topology=RACK))
    result = place(path)
    assert result.exit_code == 1
    assert "found: 1 node cordoned" in result.stdout
    assert "found: of 2 racks: 1 with too little gpu left for one pod" in result.stdout
    assert "rack r1           8 of 8      2" in result.stdout


def test_a_leader_and_its_workers_are_drawn_together(file: Write) -> None:
    request = {"required": RACK, "podSetGroupName": "g"}
    workers = gpu_job()["spec"]["template"]
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {
            "podSets": [
                {"name": "leader", "count": 1, "topologyRequest": request, "template": {"spec": {}}},
                {"name": "workers", "count": 2, "topologyRequest": request, "template": workers},
            ]
        },
    }
    result = place(file(*FOUR, workload))
    assert result.exit_code == 0
    assert "leader: 1 pod, in one rack" in result.stdout
    assert "1 leader, 2 workers" in result.stdout


def test_two_topologies_need_a_choice(file: Write) -> None:
    def levels(name: str) -> dict[str, Any]:
        spec = {"levels": [{"nodeLabel": RACK}]}
        return {"kind": "Topology", "metadata": {"name": name}, "spec": spec}

    path = file(*FOUR, levels("a"), levels("b"), gpu_job())
    assert "choose one with --topology" in place(path).stderr
    assert place(path, options=("--topology", "b")).exit_code == 0
    assert "there is no Topology c; there are: a, b" in place(path, options=("--topology", "c")).stderr
    assert "there is no ResourceFlavor x" in place(path, options=("--flavor", "x")).stderr


def test_levels_come_from_labels_or_the_command_line(file: Write) -> None:
    labelled = [rack_node("x1"), rack_node("x2")]
    for each in labelled:
        each["metadata"]["labels"] |= {
            "topology.kubernetes.io/zone": "z",
            "cloud.google.com/gce-topology-block": "b",
            "unrelated.com/thing": "t",
            "my.org/room": "m",
        }
    path = file(*labelled, gpu_job(podset_preferred_topology="cloud.google.com/gce-topology-block"))
    inferred = data(place(path, options=("-o", "json")))["topology"]["levels"]
    assert inferred == [
        "topology.kubernetes.io/zone",
        "cloud.google.com/gce-topology-block",
        RACK,
        "kubernetes.io/hostname",
    ]
    told = place(path, options=("-o", "json", "--levels", "cloud.google.com/gce-topology-block"))
    assert data(told)["topology"]["levels"] == [
        "cloud.google.com/gce-topology-block",
        "kubernetes.io/hostname",
    ]


@pytest.mark.parametrize("strategy", ["best_fit", "least_free", "pack_racks", "most_free", "balanced"])
def test_every_strategy_places(file: Write, strategy: str) -> None:
    result = place(file(*FOUR, gpu_job(podset_preferred_topology=RACK)), options=("--strategy", strategy))
    assert result.exit_code == 0
    assert "placed: 2 pods" in result.stdout


def test_nodes_written_by_hand_may_be_brief(file: Write) -> None:
    brief = {"kind": "Node", "metadata": {"name": "x"}, "status": {"capacity": {"example.com/gpu": 8}}}
    result = place(file(brief, gpu_job()))
    assert result.exit_code == 0
    assert "note: 1 node assumed to be ready: it has no conditions" in result.stdout
    assert "note: 1 node assumed to hold 110 pods" in result.stdout
    assert "note: 1 node identified by name" in result.stdout


def test_other_kinds_are_noted_and_settled_workloads_left_alone(file: Write) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    done = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {"podSets": [{"name": "m", "count": 1}]},
        "status": {"admission": {}},
    }
    other = {"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload", "metadata": {"name": "w"}}
    result = place(file(*FOUR, gpu_job(), service, done, other))
    assert result.exit_code == 0
    assert "note: 1 object of kind Service not used" in result.stdout
    assert "note: 1 Workload not placed again" in result.stdout
    assert "note: 1 object of kind Workload not used" in result.stdout


def test_a_misfit_is_explained(file: Write) -> None:
    tainted = rack_node("x4", "r2", spec={"taints": [{"key": "bad", "effect": "NoSchedule"}]})
    cordoned = rack_node("x5", "r2", spec={"unschedulable": True})
    result = place(file(*FOUR[:3], tainted, cordoned, gpu_job(pods=3, podset_required_topology=RACK)))
    assert result.exit_code == 1
    assert "main: 3 pods of 4 gpu each, all in one rack" in result.stdout
    assert "rack r1 comes closest with room for 2 of 3 pods; it lacks 4 gpu" in result.stdout
    assert "of 5 nodes: 1 with the taint bad:NoSchedule, 1 cordoned" in result.stdout
    assert "try: prefer one rack instead of requiring it: that fits" in result.stdout
    assert "try: request 2 pods, which would fit in that rack" in result.stdout


def test_a_resource_that_no_node_has_is_named(file: Write) -> None:
    wanted = gpu_job()
    wanted["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"example.com/tpu": 1}
    result = place(file(*FOUR, wanted))
    assert result.exit_code == 1
    assert "no node offers any example.com/tpu" in result.stdout


def test_many_hosts_are_folded_unless_asked_for(file: Write) -> None:
    many = [rack_node(f"x{number:04}", f"r{number // 50:02}") for number in range(1000)]
    many += [
        running_pod(f"p{number}", f"x{number:04}", 1 + number // 50 % 3) for number in range(0, 1000, 50)
    ]
    path = file(json.dumps({"kind": "List", "items": [*many, gpu_job(pods=700)]}), name="many.json")
    result = place(path)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) < 80
    assert "more racks with pods" in result.stdout
    assert len(place(path, options=("--full",)).stdout.splitlines()) > 700


def test_a_gang_of_no_pods_is_placed_nowhere(file: Write) -> None:
    result = place(file(*FOUR, gpu_job(pods=0)), options=("-o", "json"))
    assert result.exit_code == 0
    assert shares(result) == {}
    assert place(file(*FOUR, gpu_job(pods=0))).exit_code == 0


def test_gangs_larger_than_any_cluster_do_not_fit(file: Write) -> None:
    result = place(file(*FOUR, gpu_job(pods=2**31 - 1)))
    assert result.exit_code == 1
    assert "has room for 4 of 2147483647 pods" in result.stdout


def test_a_pod_that_is_larger_than_any_node_is_told_the_largest(file: Write) -> None:
    """Room that others leave is no help, so none is asked for."""
    result = place(file(*FOUR, gpu_job("fat", gpu=5, podset_required_topology=RACK)))
    assert result.exit_code == 1
    told = [line.strip() for line in result.stdout.splitlines()]
    sentence = "no node that it may use is large enough for one pod of main: the largest, x1, has 4 of 5 gpu"
    assert any(sentence in line for line in told), told
    assert any("request less in each pod, at most 4 gpu, or add larger nodes" in line for line in told), told
    assert not any("free or add" in line or "lacks" in line for line in told), told
