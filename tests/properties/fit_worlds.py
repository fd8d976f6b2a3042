"""Small random clusters and pods to schedule, as API objects that a real API server accepts."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.properties.fit_world_volumes import HOSTNAME, ZONE, Obj, add_volumes

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
RACK = "example.com/rack"
KEYS = (HOSTNAME, ZONE, RACK)
NAMESPACES: dict[str, dict[str, str]] = {
    "red": {"team": "blue", "stage": "test"},
    "green": {"team": "blue"},
    "gold": {"team": "gold"},
}
APPS, VERSIONS = ("web", "db", "cache"), ("v1", "v2")
IMAGES = {"example.com/large:1": 900 << 20, "example.com/medium:latest": 300 << 20, "small:latest": 10 << 20}
TAINTS = (
    {"key": "dedicated", "value": "ml", "effect": "NoSchedule"},
    {"key": "reserved", "value": "web", "effect": "NoSchedule"},
    {"key": "flaky", "effect": "PreferNoSchedule"},
    {"key": "old", "value": "yes", "effect": "PreferNoSchedule"},
    {"key": "drain", "effect": "NoExecute"},
)


def world(seed: int, prefix: str = "") -> Obj:
    """A cluster: nodes, running pods, namespaces, services, and what is to do with volumes.

    Names start with the prefix, so that several may live in one real cluster, one after the other.
    """
    random = Random(seed)
    nodes = [_node(random, f"{prefix}n{number}") for number in range(random.randint(2, 7))]
    objects: Obj = {
        "prefix": prefix,
        "nodes": nodes,
        "pods": [],
        "namespaces": NAMESPACES,
        "services": [_service(random, n) for n in NAMESPACES if random.random() < 0.5],
        "claims": [], "volumes": [], "classes": [], "csinodes": [],
    }  # fmt: skip
    if random.random() < 0.6:
        add_volumes(random, objects)
    for number in range(random.randint(0, 12)):
        running = random_pod(random, objects, f"{prefix}r{number}", running=True)
        running["spec"]["tolerations"] = [{"key": "drain", "operator": "Exists"}]  # so that it is not evicted
        running["spec"]["nodeName"] = random.choice(nodes)["metadata"]["name"]
        objects["pods"].append(running)
    return objects


def _node(random: Random, name: str) -> Obj:
    labels = {HOSTNAME: name, "disk": random.choice(("ssd", "hdd")), "gen": str(random.randint(1, 9))}
    if random.random() < 0.85:
        labels[ZONE] = random.choice(("a", "b", "c"))
    if random.random() < 0.7:
        labels[RACK] = random.choice(("r1", "r2"))
    room = {
        "cpu": random.choice(("2", "4", "8", "3500m")),
        "memory": random.choice(("4Gi", "8Gi", "6000M")),
        "pods": random.choice(("3", "6", "110", "110")),
        "ephemeral-storage": random.choice(("10Gi", "1Gi")),
    }
    if random.random() < 0.4:
        room["example.com/gpu"] = str(random.randint(0, 4))
    chosen = [taint for taint in TAINTS if random.random() < 0.06]
    images = [{"names": [n], "sizeBytes": size} for n, size in IMAGES.items() if random.random() < 0.4]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": chosen, **({"unschedulable": True} if random.random() < 0.1 else {})},
        "status": {
            "allocatable": room,
            "capacity": room,
            "images": images,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _service(random: Random, namespace: str) -> Obj:
    app = random.choice(APPS)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"all-{app}", "namespace": namespace},
        "spec": {"selector": {"app": app}, "ports": [{"port": 80}]},
    }


# ── pods ───────────────────────────────────────────────────────────────────────────────────────────


def random_pod(random: Random, objects: Obj, name: str, *, running: bool = False) -> Obj:
    """A pod with two or three features of the pod spec."""
    labels = {"app": random.choice(APPS), "version": random.choice(VERSIONS)}
    spec: Obj = {"containers": [_container(random, "main")], "terminationGracePeriodSeconds": 0}
    if random.random() < 0.2:
        spec["containers"].append(_container(random, "second"))
    if random.random() < 0.2:
        first = _container(random, "first")
        if random.random() < 0.5:
            first["restartPolicy"] = "Always"
        spec["initContainers"] = [first]
    new_pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": random.choice(tuple(NAMESPACES)), "labels": labels},
        "spec": spec,
    }
    features = RUNNING_FEATURES if running else FEATURES
    for feature in random.sample(features, random.randint(0, 2) if running else random.randint(1, 3)):
        feature(random, objects, new_pod)
    return new_pod


def _container(random: Random, name: str) -> Obj:
    requests = {}
    if random.random() < 0.7:
        requests["cpu"] = random.choice(("50m", "100m", "500m", "1", "1500m", "3"))
    if random.random() < 0.6:
        requests["memory"] = random.choice(("64Mi", "64Mi", "512Mi", "2Gi"))
    image = random.choice((*IMAGES, "example.com/medium", "nobody/has-this:2"))
    return {"name": name, "image": image, "resources": {"requests": requests} if requests else {}}


def _selector(random: Random) -> Obj:
    return random.choice(
        (
            {"matchLabels": {"app": random.choice(APPS)}},
            {"matchLabels": {"app": random.choice(APPS), "version": random.choice(VERSIONS)}},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [random.choice(APPS)]}]},
            {"matchExpressions": [{"key": "version", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "nobody", "operator": "DoesNotExist"}]},
            {},
        )
    )


def _term(random: Random) -> Obj:
    term: Obj = {"topologyKey": random.choice(KEYS), "labelSelector": _selector(random)}
    match random.randint(0, 7):
        case 0:
            term["namespaces"] = random.sample(tuple(NAMESPACES), 2)
        case 1:
            term["namespaceSelector"] = {"matchLabels": {"team": "blue"}}
        case 2:
            term["namespaceSelector"] = {}
        case 3:
            term["namespaceSelector"] = {"matchExpressions": [{"key": "stage", "operator": "Exists"}]}
            term["namespaces"] = ["gold"]
        case 4 if "version" not in str(term["labelSelector"]):
            term[random.choice(("matchLabelKeys", "mismatchLabelKeys"))] = ["version"]
    return term


def near(random: Random, _: Obj, new_pod: Obj) -> None:
    terms = [_term(random) for _ in range(random.choice((1, 1, 2)))]
    _affinity(new_pod).setdefault("podAffinity", {})[REQUIRED] = terms


def apart(random: Random, _: Obj, new_pod: Obj) -> None:
    terms = [_term(random) for _ in range(random.choice((1, 1, 2)))]
    _affinity(new_pod).setdefault("podAntiAffinity", {})[REQUIRED] = terms


def rather(random: Random, _: Obj, new_pod: Obj) -> None:
    for kind in random.sample(("podAffinity", "podAntiAffinity"), random.randint(1, 2)):
        terms = [{"weight": random.randint(1, 100), "podAffinityTerm": _term(random)}]
        _affinity(new_pod).setdefault(kind, {})[PREFERRED] = terms


def _affinity(new_pod: Obj) -> Obj:
    affinity: Obj = new_pod["spec"].setdefault("affinity", {})
    return affinity


def spread(random: Random, _: Obj, new_pod: Obj) -> None:
    constraints = []
    for key in random.sample(KEYS, random.choice((1, 1, 2))):
        one: Obj = {
            "topologyKey": key,
            "maxSkew": random.choice((1, 1, 2)),
            "whenUnsatisfiable": random.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": _selector(random),
        }
        if one["whenUnsatisfiable"] == "DoNotSchedule" and random.random() < 0.3:
            one["minDomains"] = random.randint(1, 4)
        if random.random() < 0.3:
            one["nodeAffinityPolicy"] = random.choice(("Honor", "Ignore"))
        if random.random() < 0.3:
            one["nodeTaintsPolicy"] = random.choice(("Honor", "Ignore"))
        if random.random() < 0.2 and "version" not in str(one["labelSelector"]):
            one["matchLabelKeys"] = ["version"]
        constraints.append(one)
    new_pod["spec"]["topologySpreadConstraints"] = constraints


def node_selector(random: Random, _: Obj, new_pod: Obj) -> None:
    new_pod["spec"]["nodeSelector"] = random.choice(({"disk": "ssd"}, {ZONE: "a"}, {RACK: "r1"}))


def _node_term(random: Random, world_: Obj) -> Obj:
    names = [node["metadata"]["name"] for node in world_["nodes"]]
    expressions = (
        {"key": "disk", "operator": "In", "values": ["ssd"]},
        {"key": ZONE, "operator": "NotIn", "values": ["a", "b"]},
        {"key": RACK, "operator": "Exists"},
        {"key": ZONE, "operator": "DoesNotExist"},
        {"key": "gen", "operator": "Gt", "values": ["4"]},
        {"key": "gen", "operator": "Lt", "values": ["7"]},
    )
    term: Obj = {"matchExpressions": random.sample(expressions, random.randint(1, 2))}
    if random.random() < 0.3:
        operator = random.choice(("In", "In", "NotIn"))
        term["matchFields"] = [
            {"key": "metadata.name", "operator": operator, "values": [random.choice([*names, "gone"])]}
        ]
        if random.random() < 0.7:
            del term["matchExpressions"]
    return term


def node_affinity(random: Random, world_: Obj, new_pod: Obj) -> None:
    affinity: Obj = _affinity(new_pod).setdefault("nodeAffinity", {})
    if random.random() < 0.7:
        terms = [_node_term(random, world_) for _ in range(random.choice((1, 1, 2)))]
        affinity[REQUIRED] = {"nodeSelectorTerms": terms}
    if random.random() < 0.6 or not affinity:
        affinity[PREFERRED] = [
            {"weight": random.randint(1, 100), "preference": _node_term(random, world_)}
            for _ in range(random.choice((1, 2)))
        ]


def tolerations(random: Random, _: Obj, new_pod: Obj) -> None:
    pool: tuple[Obj, ...] = (
        {"operator": "Exists"},
        {"key": "dedicated", "operator": "Exists"},
        {"key": "dedicated", "operator": "Equal", "value": "ml", "effect": "NoSchedule"},
        {"key": "reserved", "value": "web"},
        {"key": "flaky", "operator": "Exists", "effect": "PreferNoSchedule"},
        {"key": "drain", "operator": "Exists", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"},
    )
    new_pod["spec"]["tolerations"] = random.sample(pool, random.randint(1, 2))


def ports(random: Random, _: Obj, new_pod: Obj) -> None:
    taken = random.sample((8080, 9090), random.randint(1, 2))
    new_pod["spec"]["containers"][0]["ports"] = [
        {
            "containerPort": port,
            "hostPort": port,
            **({"protocol": "UDP"} if random.random() < 0.2 else {}),
            **(
                {"hostIP": random.choice(("127.0.0.1", "10.0.0.9", "0.0.0.0"))}
                if random.random() < 0.4
                else {}
            ),
        }
        for port in taken
    ]


def extended(random: Random, _: Obj, new_pod: Obj) -> None:
    amount = str(random.randint(1, 3))
    resources = new_pod["spec"]["containers"][0]["resources"]
    resources["requests"] = resources.get("requests", {}) | {"example.com/gpu": amount}
    resources["limits"] = {"example.com/gpu": amount}


def storage_room(random: Random, _: Obj, new_pod: Obj) -> None:
    resources = new_pod["spec"]["containers"][0]["resources"]
    size = random.choice(("500Mi", "3Gi", "20Gi"))
    resources["requests"] = resources.get("requests", {}) | {"ephemeral-storage": size}


def whole_pod(random: Random, _: Obj, new_pod: Obj) -> None:
    """Pod-level requests. Containers may not request more."""
    for container in new_pod["spec"]["containers"] + new_pod["spec"].get("initContainers", []):
        container["resources"] = {}
    new_pod["spec"]["resources"] = {"requests": {"cpu": random.choice(("1", "3")), "memory": "1Gi"}}


def claims(random: Random, world_: Obj, new_pod: Obj) -> None:
    """Volumes of claims; the pod is in the namespace of the claims."""
    if not world_["claims"]:
        return
    first = random.choice(world_["claims"])
    namespace = first["metadata"]["namespace"]
    names = [
        claim["metadata"]["name"] for claim in world_["claims"] if claim["metadata"]["namespace"] == namespace
    ]
    picked = {first["metadata"]["name"], *random.sample(names, random.randint(0, min(1, len(names))))}
    if random.random() < 0.05:
        picked.add("missing")
    new_pod["metadata"]["namespace"] = namespace
    others = [one for one in new_pod["spec"].get("volumes", []) if "persistentVolumeClaim" not in one]
    new_pod["spec"]["volumes"] = others + [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}}
        for number, name in enumerate(sorted(picked))
    ]


def disks(random: Random, _: Obj, new_pod: Obj) -> None:
    """Inline disks of kinds that cannot be shared."""
    volumes: list[Obj] = new_pod["spec"].setdefault("volumes", [])
    monitors = random.sample(("m1", "m2", "m3"), 2)
    for number, source in enumerate(
        random.sample(
            (
                {"gcePersistentDisk": {"pdName": random.choice("xy"), "readOnly": random.random() < 0.5}},
                {"awsElasticBlockStore": {"volumeID": random.choice("xy"), "readOnly": True}},
                {"rbd": {"monitors": monitors, "image": "x", "readOnly": random.random() < 0.5}},
                {"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:x", "lun": 0}},
            ),
            random.randint(1, 2),
        )
    ):
        volumes.append({"name": f"d{number}", **source})


Feature = Callable[[Random, Obj, Obj], None]
FEATURES: tuple[Feature, ...] = (
    near, apart, rather, spread, spread, node_selector, node_affinity, tolerations, ports, extended,
    storage_room, whole_pod, claims, claims, disks,
)  # fmt: skip
RUNNING_FEATURES: tuple[Feature, ...] = (near, apart, apart, rather, ports, ports, extended, claims, disks)
