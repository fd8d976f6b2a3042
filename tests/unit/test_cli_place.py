"""`bayplan place` from the outside: what it prints, and that no input makes it fall over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from bayplan import __version__
from bayplan.cli.main import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-place"
RACK = "cloud.com/topology-rack"


def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def place(*files: str | Path, options: tuple[str, ...] = (), stdin: bytes | None = None) -> Result:
    named = [part for file in files for part in ("-f", file)]
    return run("place", *named, *options, stdin=stdin)


def node(name: str, rack: str = "r1", **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {RACK: rack, "kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": "8", "example.com/gpu": "4", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    } | more


def job(name: str = "job", pods: object = 2, gpu: object = 4, **annotations: Any) -> dict[str, Any]:
    notes = {f"kueue.x-k8s.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": pods,
            "template": {
                "metadata": {"annotations": notes},
                "spec": {"containers": [{"resources": {"limits": {"example.com/gpu": gpu}}}]},
            },
        },
    }


def pod(name: str, on: str, gpu: int) -> dict[str, Any]:
    containers = [{"resources": {"limits": {"example.com/gpu": gpu}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": on, "containers": containers},
    }


FOUR = [node("x1"), node("x2"), node("x3", "r2"), node("x4", "r2")]


@pytest.fixture
def file(tmp_path: Path) -> Any:
    """Writes objects (as YAML documents) or raw text and bytes to a file."""

    def write(*content: Any, name: str = "in.yaml") -> Path:
        path = tmp_path / name
        if content and isinstance(content[0], bytes):
            path.write_bytes(content[0])
        elif content and isinstance(content[0], str):
            path.write_text(content[0], encoding="utf-8")
        else:
            path.write_text(yaml.safe_dump_all(content), encoding="utf-8")
        return path

    return write


def data(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def shares(result: Result, gang: int = 0, pod_set: int = 0) -> dict[str, int]:
    domains = data(result)["gangs"][gang]["podSets"][pod_set]["assignment"]["domains"]
    return {"/".join(domain["values"]): domain["count"] for domain in domains}


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


def test_gangs_see_what_earlier_ones_took(file: Any) -> None:
    wish = {"podset_required_topology": RACK}
    result = place(file(*FOUR, job("a", **wish), job("b", **wish), job("c", **wish)), options=("-o", "json"))
    assert result.exit_code == 1
    assert shares(result, 0) == {"x1": 1, "x2": 1}
    assert shares(result, 1) == {"x3": 1, "x4": 1}
    misfit = data(result)["gangs"][2]["misfit"]
    assert misfit["code"] == "no_room"
    assert misfit["message"].startswith('topology "inferred" doesn\'t allow to fit any of 2 pod(s)')
    assert misfit["excluded"]["resources"] == {"example.com/gpu": 4}
    assert data(result)["exitStatus"] == 1


def test_pods_that_run_take_room_wherever_they_come_from(file: Any) -> None:
    dump = {"apiVersion": "v1", "kind": "List", "items": [*FOUR, pod("p", "x1", 4), pod("stray", "gone", 1)]}
    cluster = file(json.dumps(dump), name="cluster.json")
    result = place(cluster, file(job(podset_required_topology=RACK)), options=("-o", "json"))
    assert shares(result) == {"x3": 1, "x4": 1}
    assert "1 pod on nodes that are not in the input" in data(result)["notes"]


def test_typed_lists_several_json_values_and_stdin_are_read() -> None:
    nodes = {"kind": "NodeList", "items": [{k: v for k, v in each.items() if k != "kind"} for each in FOUR]}
    text = json.dumps(nodes) + "\n" + json.dumps(job())
    result = place("-", options=("-o", "json"), stdin=text.encode())
    assert result.exit_code == 0, result.stderr
    assert sum(shares(result).values()) == 2


def test_yaml_output_is_the_json_output(file: Any) -> None:
    path = file(*FOUR, job())
    as_json, as_yaml = (place(path, options=("-o", form)) for form in ("json", "yaml"))
    assert yaml.safe_load(as_yaml.stdout) == data(as_json)


def test_topology_and_flavor_objects_are_used(file: Any) -> None:
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
    result = place(file(*FOUR, topology, flavor, job()), options=("-o", "json"))
    assert data(result)["topology"] == {"name": "t", "levels": [RACK]}
    assert shares(result) == {"r2": 2}
    assert "2 nodes of another flavor" in data(result)["notes"]
    del flavor["spec"]["tolerations"]  # type: ignore[attr-defined]
    assert place(file(*FOUR, topology, flavor, job())).exit_code == 1


def test_two_topologies_need_a_choice(file: Any) -> None:
    def levels(name: str) -> dict[str, Any]:
        spec = {"levels": [{"nodeLabel": RACK}]}
        return {"kind": "Topology", "metadata": {"name": name}, "spec": spec}

    path = file(*FOUR, levels("a"), levels("b"), job())
    assert "choose one with --topology" in place(path).stderr
    assert place(path, options=("--topology", "b")).exit_code == 0
    assert "there is no Topology c; there are: a, b" in place(path, options=("--topology", "c")).stderr
    assert "there is no ResourceFlavor x" in place(path, options=("--flavor", "x")).stderr


def test_levels_come_from_labels_or_the_command_line(file: Any) -> None:
    labelled = [node("x1"), node("x2")]
    for each in labelled:
        each["metadata"]["labels"] |= {
            "topology.kubernetes.io/zone": "z",
            "cloud.google.com/gce-topology-block": "b",
            "unrelated.com/thing": "t",
            "my.org/room": "m",
        }
    path = file(*labelled, job(podset_preferred_topology="cloud.google.com/gce-topology-block"))
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


@pytest.mark.parametrize("strategy", ["best_fit", "least_free", "most_free", "balanced"])
def test_every_strategy_places(file: Any, strategy: str) -> None:
    result = place(file(*FOUR, job(podset_preferred_topology=RACK)), options=("--strategy", strategy))
    assert result.exit_code == 0
    assert "placed: 2 pods" in result.stdout


def test_nodes_written_by_hand_may_be_brief(file: Any) -> None:
    brief = {"kind": "Node", "metadata": {"name": "x"}, "status": {"capacity": {"example.com/gpu": 8}}}
    result = place(file(brief, job()))
    assert result.exit_code == 0
    assert "note: 1 node taken as ready: no conditions stated" in result.stdout
    assert "note: 1 node taken to hold 110 pods" in result.stdout
    assert "note: 1 node known by name" in result.stdout


def test_other_kinds_are_noted_and_settled_workloads_left_alone(file: Any) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    done = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {"podSets": [{"name": "m", "count": 1}]},
        "status": {"admission": {}},
    }
    other = {"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "Workload", "metadata": {"name": "w"}}
    result = place(file(*FOUR, job(), service, done, other))
    assert result.exit_code == 0
    assert "note: 1 object of kind Service not used" in result.stdout
    assert "note: 1 Workload not placed again" in result.stdout
    assert "note: 1 object of kind Workload not used" in result.stdout


def test_a_misfit_is_explained(file: Any) -> None:
    tainted = node("x4", "r2", spec={"taints": [{"key": "bad", "effect": "NoSchedule"}]})
    cordoned = node("x5", "r2", spec={"unschedulable": True})
    result = place(file(*FOUR[:3], tainted, cordoned, job(pods=3, podset_required_topology=RACK)))
    assert result.exit_code == 1
    assert "main: 3 pods of 4 gpu each, all in one rack" in result.stdout
    assert "rack r1 comes closest with room for 2 of 3 pods; it lacks 4 gpu" in result.stdout
    assert "of 5 nodes: 1 with the taint bad:NoSchedule, 1 cordoned" in result.stdout
    assert "try: prefer one rack instead of requiring it: that fits" in result.stdout
    assert "try: ask for 2 pods, which would fit in that rack" in result.stdout


def test_a_resource_that_no_node_has_is_named(file: Any) -> None:
    wanted = job()
    wanted["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"example.com/tpu": 1}
    result = place(file(*FOUR, wanted))
    assert result.exit_code == 1
    assert "no node offers any example.com/tpu" in result.stdout


def test_many_hosts_are_folded_unless_asked_for(file: Any) -> None:
    many = [node(f"x{number:04}", f"r{number // 50:02}") for number in range(1000)]
    many += [pod(f"p{number}", f"x{number:04}", 1 + number // 50 % 3) for number in range(0, 1000, 50)]
    path = file(json.dumps({"kind": "List", "items": [*many, job(pods=700)]}), name="many.json")
    result = place(path)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) < 80
    assert "more racks with pods" in result.stdout
    assert len(place(path, options=("--full",)).stdout.splitlines()) > 700


BAD_FILES: dict[str, tuple[Any, str]] = {
    "empty": ("", "is empty"),
    "only comments": ("# nothing\n---\n", "is empty"),
    "YAML syntax": ("kind: Node\nmetadata: {name: [}\n", "line 2, column 19: is not YAML"),
    "tabs": ("kind:\n\t- x\n", "line 2"),
    "JSON syntax": ('{"kind": "Node",\n "metadata" {}}', "line 2"),
    "binary": (b"\x89PNG\r\n\xff\xfe", "is not text: byte 0 (0x89) is not UTF-8"),
    "null bytes": ("kind: \0Node", "is not YAML"),
    "a cycle": ("kind: List\nitems: &a\n  - *a\n", "alias that contains itself"),
    "a cycle of mappings": ("kind: Node\nmetadata: &m\n  labels: *m\n", "alias that contains itself"),
    "a bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{c}: &{c} [{','.join([f'*{p}'] * 9)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True)
        )
        + "kind: List\nitems: *i\n",
        "aliases make more than",
    ),
    "deep YAML": ("kind: " + "[" * 50_000, "nested too deeply"),
    "deep YAML in blocks": ("- " * 50_000, "nested too deeply"),
    "deep JSON": ('{"kind": ' + "[" * 200_000, "nested too deeply"),
    "unknown tag": ("kind: !!python/object:os.system x", "is not YAML"),
    "a long number": ("kind: Node\nspec: " + "9" * 5000, "cannot be read"),
    "a long number in JSON": ('{"kind": "Node", "spec": ' + "9" * 5000 + "}", "too long"),
    "a scalar": ("just text", "must be an object, not text"),
    "a list of scalars": ("[1, 2]", "must be an object, not a number"),
    "no kind": ("metadata: {name: x}", "kind: must be set"),
    "kind is a number": ("kind: 7", "kind: 7: must be text"),
    "items is text": ("kind: List\nitems: none", "items: "),
    "metadata is a list": ("kind: Node\nmetadata: []", "metadata: a list of 0: must be a mapping"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_named_with_the_reason(file: Any, name: str) -> None:
    content, why = BAD_FILES[name]
    path = file(content, name="bad.yaml")
    result = place(path, file(*FOUR, job(), name="good.yaml"))
    assert result.exit_code == 2, result.output
    assert why in result.stderr
    assert str(path) in result.stderr
    assert "Traceback" not in result.output
    assert isinstance(result.exception, SystemExit)
    assert len(result.stderr) < 3000


def test_missing_files_and_directories(tmp_path: Path) -> None:
    result = place(tmp_path / "none.yaml", tmp_path)
    assert result.exit_code == 2
    assert "none.yaml: there is no such file" in result.stderr
    assert "is a directory" in result.stderr
    assert "2 problems" in result.stderr
    assert place("x\0y").exit_code == 2
    assert place("x" * 5000).exit_code == 2


BAD_OBJECTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no nodes": ([job()], "there is no Node in the input"),
    "no gang": (FOUR, "there is no Job, JobSet or Workload in the input"),
    "a negative count": ([*FOUR, job(pods=-1)], "spec.parallelism: -1: must not be less than 0"),
    "a fractional count": ([*FOUR, job(pods=1.5)], "spec.parallelism: 1.5: must be a whole number"),
    "a count in words": ([*FOUR, job(pods="two")], "must be a whole number, not text"),
    "a huge count": ([*FOUR, job(pods=2**40)], "must not be more than 2147483647"),
    "a bad quantity": ([*FOUR, job(gpu="4 GB")], "must be a quantity such as"),
    "a negative quantity": ([*FOUR, job(gpu=-1)], "must not be negative"),
    "a huge quantity": ([*FOUR, job(gpu=10**30)], "larger than any machine"),
    "a large quantity": ([*FOUR, job(gpu=2**60)], "more than 2^53"),
    "an unknown level": (
        [*FOUR, job(podset_required_topology="cloud.com/room")],
        "cloud.com/room is not a level of topology inferred; its levels are cloud.com/topology-rack, kub",
    ),
    "an unknown segment level": (
        [*FOUR, job(podset_slice_required_topology="cloud.com/room", podset_slice_size=1)],
        "cloud.com/room is not a level",
    ),
    "segments above the locality": (
        [
            *FOUR,
            job(
                podset_required_topology="kubernetes.io/hostname",
                podset_slice_required_topology=RACK,
                podset_slice_size=1,
            ),
        ],
        "cannot stay inside one kubernetes.io/hostname",
    ),
    "a negative size": (
        [*FOUR, job(podset_slice_required_topology=RACK, podset_slice_size=-2)],
        "must be greater than or equal to 1",
    ),
    "two nodes of one name": ([*FOUR, node("x1"), job()], "is the name of another Node too"),
    "two gangs of one name": ([*FOUR, job(), job()], "is the name of another Job too"),
    "two nodes of one hostname": (
        [
            node("a"),
            node("b") | {"metadata": {"name": "b", "labels": {"kubernetes.io/hostname": "a"}}},
            job(),
        ],
        "as on node a",
    ),
    "labels that are numbers": (
        [node("x9") | {"metadata": {"name": "x9", "labels": {RACK: 1}}}, job()],
        "must be text, not a number: write it in quotes",
    ),
    "too much use": (
        [*FOUR, *(pod(f"p{number}", "x1", 2**53) for number in range(3)), job()],
        "its pods use 27021597764222976 of example.com/gpu",
    ),
}


@pytest.mark.parametrize("name", BAD_OBJECTS)
def test_bad_objects_are_named_with_the_reason(file: Any, name: str) -> None:
    objects, why = BAD_OBJECTS[name]
    result = place(file(*objects))
    assert result.exit_code == 2, result.output
    assert why in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("levels", "why"),
    [
        ("", "is empty"),
        (f"{RACK},,x", "is empty"),
        (f"{RACK},{RACK}", "named twice"),
        (f"kubernetes.io/hostname,{RACK}", "may only be the lowest"),
        (",".join(f"l{number}" for number in range(17)), "more than 16"),
        ("nowhere.com/room", "no node has a label nowhere.com/room"),
    ],
)
def test_bad_levels_on_the_command_line(file: Any, levels: str, why: str) -> None:
    result = place(file(*FOUR, job()), options=("--levels", levels))
    assert result.exit_code == 2
    assert why in result.stderr


def test_every_problem_is_listed_at_once(file: Any) -> None:
    bad = node("x2")
    bad["status"]["allocatable"]["cpu"] = "lots"
    bad["spec"] = {"taints": [{"key": "k", "effect": "Whenever"}]}
    first = file(*FOUR[:1], bad, job(pods=-1, gpu="much"), name="first.yaml")
    second = file("{", name="second.yaml")
    result = place(first, second, options=("-o", "json"))
    assert result.exit_code == 2
    problems = data(result)["problems"]
    assert [(Path(problem["file"]).name, problem["why"].split(":")[0]) for problem in problems] == [
        ("second.yaml", "is not JSON"),
        ("first.yaml", "status.allocatable.cpu"),
        ("first.yaml", "spec.taints[0].effect"),
        ("first.yaml", "spec.parallelism"),
        ("first.yaml", "spec.template.spec.containers[0].resources.limits[example.com/gpu]"),
    ]
    assert "5 problems: nothing was placed" in result.stderr
    assert problems[1]["where"] == "line 17, Node x2"


def test_a_gang_of_no_pods_is_placed_nowhere(file: Any) -> None:
    result = place(file(*FOUR, job(pods=0)), options=("-o", "json"))
    assert result.exit_code == 0
    assert shares(result) == {}
    assert place(file(*FOUR, job(pods=0))).exit_code == 0


def test_gangs_larger_than_any_cluster_do_not_fit(file: Any) -> None:
    result = place(file(*FOUR, job(pods=2**31 - 1)))
    assert result.exit_code == 1
    assert "has room for 4 of 2147483647 pods" in result.stdout
