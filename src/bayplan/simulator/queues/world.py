"""Random queues on a small cluster: topologies, flavors, cohorts, and the Workloads that arrive."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from bayplan.backends.fake_controllers.manifests import BLOCK, GPU, NAMESPACE, RACK, Object, node
from bayplan.dialects.api import Kind
from bayplan.dialects.kueue.fields.queues import PROVISIONING
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.node import HOSTNAME
from bayplan.simulator.core.world import Arrival

POOL, QUEUED, COARSE = "example.com/pool", "example.com/queued", "example.com/coarse"
CHECK = "gate"
TOLERATED = {"key": QUEUED, "operator": "Exists", "effect": "NoSchedule"}
LIMITS = (None, None, 0, 4, 8)


@dataclass(frozen=True, slots=True)
class QueueWorld:
    """The objects at the start, and the Workloads that are created later."""

    nodes: list[Object]
    rules: list[tuple[Kind, Object]]
    arrivals: list[Arrival]
    seconds: dict[str, float]  # how long a Workload runs once it is admitted


def queue_world(rng: Random, until: float) -> QueueWorld:
    """One or two topologies, a few flavors that may overlap, and a tree of queues above them."""
    flavors = _flavors(rng)
    names = [flavor["metadata"]["name"] for _, flavor in flavors]
    check = rng.random() < 0.4
    cohorts = _cohorts(rng, names)
    queues = [
        _queue(rng, f"queue-{number}", names, len(cohorts), check) for number in range(rng.randint(1, 4))
    ]
    local_queues = [_named(api_kinds.LOCAL_QUEUES, f"door-{n}", {"clusterQueue": f"queue-{n}"}, NAMESPACE)
                 for n in range(len(queues))]  # fmt: skip
    local_queues.append(_named(api_kinds.LOCAL_QUEUES, "side-door", {"clusterQueue": "queue-0"}, NAMESPACE))
    rules = [*_topologies(names), *flavors, *cohorts, *queues, *local_queues]
    if check:
        controller = rng.choice(("example.com/gate", PROVISIONING))
        rules.insert(0, _named(api_kinds.CHECKS, CHECK, {"controllerName": controller}))
    arrivals, seconds = _arrivals(rng, [obj["metadata"]["name"] for _, obj in local_queues], until)
    return QueueWorld(_nodes(rng), rules, arrivals, seconds)


def unmanaged_pod(name: str, on: str, gpus: int) -> Object:
    """A pod without a gang that is bound to a node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {**_template(gpus)["spec"], "nodeName": on},
    }


def _named(kind: Kind, name: str, spec: Object, namespace: str = "") -> tuple[Kind, Object]:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return kind, {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec}


def _nodes(rng: Random) -> list[Object]:
    """Two or three racks of hosts in pools, and racks whose topology has no host level."""
    found: list[Object] = []
    for rack in range(rng.randint(2, 4)):
        pool = rng.choice(("gold", "silver"))
        for _ in range(rng.randint(2, 3)):
            made = node(f"q{len(found):03d}", f"qb{rack // 2}", f"qr{rack}", rng.choice((4, 8)))
            made["metadata"]["labels"] |= {QUEUED: "yes", POOL: pool}
            found.append(made)
    for number in range(rng.randint(2, 3)):
        made = node(f"c{number:03d}", "cb", f"cr{number // 2}", 4)
        made["metadata"]["labels"] |= {COARSE: "yes"}
        found.append(made)
    for made in found:
        made["spec"]["taints"] = [{"key": QUEUED, "value": "yes", "effect": "NoSchedule"}]
    return found


def _topologies(flavors: list[str]) -> list[tuple[Kind, Object]]:
    levels = {"hall": (BLOCK, RACK, HOSTNAME), "racks": (RACK, HOSTNAME), "coarse": (BLOCK, RACK)}
    used = {"hall": {"gold", "any"}, "racks": {"flat"}, "coarse": {"coarse"}}
    return [
        _named(api_kinds.TOPOLOGIES, name, {"levels": [{"nodeLabel": level} for level in levels[name]]})
        for name in levels
        if used[name].intersection(flavors)
    ]


def _flavors(rng: Random) -> list[tuple[Kind, Object]]:
    known = {
        "gold": {"nodeLabels": {POOL: "gold"}, "topologyName": "hall"},
        "any": {"nodeLabels": {QUEUED: "yes"}, "topologyName": "hall"},  # shares hosts with gold
        "flat": {"nodeLabels": {QUEUED: "yes"}, "topologyName": "racks"},  # and with both
        "coarse": {"nodeLabels": {COARSE: "yes"}, "topologyName": "coarse"},
        "plain": {},
    }
    first = rng.choice(("gold", "any"))
    names = [first, *rng.sample([name for name in known if name != first], rng.randint(0, 2))]
    rng.shuffle(names)
    return [_named(api_kinds.FLAVORS, name, {**known[name], "tolerations": [TOLERATED]}) for name in names]


def _cohorts(rng: Random, flavors: list[str]) -> list[tuple[Kind, Object]]:
    found = []
    for number in range(rng.randint(0, 3)):
        spec: Object = (
            {"parentName": f"cohort-{rng.randrange(number)}"} if number and rng.random() < 0.7 else {}
        )
        if rng.random() < 0.4:
            spec["resourceGroups"] = [_group(rng, flavors, limited="parentName" in spec)]
        found.append(_named(api_kinds.COHORTS, f"cohort-{number}", spec))
    return found


def _queue(rng: Random, name: str, flavors: list[str], cohorts: int, check: bool) -> tuple[Kind, Object]:
    shared = bool(cohorts) and rng.random() < 0.8
    own_flavors = rng.sample(flavors, rng.randint(1, len(flavors)))
    spec: Object = {
        "namespaceSelector": {},
        "queueingStrategy": rng.choice(("BestEffortFIFO", "BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
        "resourceGroups": [_group(rng, own_flavors, limited=shared)],
        "preemption": _preemption(rng),
        "flavorFungibility": {
            "whenCanBorrow": rng.choice(("MayStopSearch", "TryNextFlavor")),
            "whenCanPreempt": rng.choice(("MayStopSearch", "TryNextFlavor")),
        },
    }
    if shared:
        spec["cohortName"] = f"cohort-{rng.randrange(cohorts)}"
        spec["fairSharing"] = {"weight": rng.choice(("1", "2", "500m"))}
    if check and rng.random() < 0.6:
        on_flavors = {"onFlavors": [own_flavors[0]]} if rng.random() < 0.3 else {}
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": CHECK, **on_flavors}]}
    return _named(api_kinds.CLUSTER_QUEUES, name, spec)


def _group(rng: Random, flavors: list[str], *, limited: bool) -> Object:
    return {
        "coveredResources": ["cpu", GPU],
        "flavors": [
            {
                "name": flavor,
                "resources": [
                    {"name": "cpu", "nominalQuota": rng.choice(("32", "64", "128"))},
                    {
                        "name": GPU,
                        "nominalQuota": rng.choice(("0", "4", "8", "8", "12", "16")),
                        **_limits(rng, limited),
                    },
                ],
            }
            for flavor in flavors
        ],
    }


def _limits(rng: Random, limited: bool) -> dict[str, str]:
    found = {"borrowingLimit": rng.choice(LIMITS), "lendingLimit": rng.choice(LIMITS)}
    return {name: str(limit) for name, limit in found.items() if limited and limit is not None}


def _preemption(rng: Random) -> dict[str, Any]:
    reclaim = rng.choice(("Never", "LowerPriority", "Any", "Any"))
    found: dict[str, Any] = {
        "withinClusterQueue": rng.choice(
            ("Never", "LowerPriority", "LowerPriority", "LowerOrNewerEqualPriority")
        ),
        "reclaimWithinCohort": reclaim,
    }
    if reclaim != "Never" and rng.random() < 0.4:
        found["borrowWithinCohort"] = {"policy": "LowerPriority", "maxPriorityThreshold": rng.choice((0, 10))}
    return found


def _arrivals(rng: Random, local_queues: list[str], until: float) -> tuple[list[Arrival], dict[str, float]]:
    found: list[Arrival] = []
    seconds: dict[str, float] = {}
    for number in range(rng.randint(6, 14)):
        name = f"work-{number}"
        spec: Object = {
            "queueName": rng.choice(local_queues),
            "priority": rng.choice((0, 0, 10, 50, 100)),
            "active": True,
            "podSets": _pod_sets(rng),
        }
        found.append(Arrival(rng.uniform(0, until), _named(api_kinds.WORKLOADS, name, spec, NAMESPACE)[1]))
        seconds[name] = rng.choice((10.0, 30.0, 90.0, 300.0, 300.0, float("inf")))
    return sorted(found, key=lambda arrival: arrival.when), seconds


def _pod_sets(rng: Random) -> list[Object]:
    count = rng.choice((1, 2, 2, 3, 4, 4, 6))
    main: Object = {"name": "main", "count": count, "template": _template(rng.choice((0, 1, 1, 2, 2, 4)))}
    request = _topology_request(rng, count)
    if request:
        main["topologyRequest"] = request
    if count > 1 and rng.random() < 0.2 and "podSetSliceSize" not in request:
        main["minCount"] = rng.randint(1, count - 1)
    if rng.random() < 0.75 or "minCount" in main:
        return [main]
    driver: Object = {"name": "driver", "count": 1, "template": _template(rng.choice((0, 1)))}
    if {"required", "preferred"} & set(request) and "podSetSliceSize" not in request and rng.random() < 0.5:
        request["podSetGroupName"] = "all"
        driver["topologyRequest"] = dict(request)
    return [driver, main]


def _topology_request(rng: Random, count: int) -> Object:
    kind, level = rng.random(), rng.choice((BLOCK, RACK))
    if kind < 0.2:
        request: Object = {"required": level}
    elif kind < 0.35:
        request = {"preferred": level}
    elif kind < 0.45:
        request = {"unconstrained": True}
    else:
        request = {}
    if count in (4, 6) and rng.random() < 0.25:
        outer = {"required": BLOCK} if rng.random() < 0.5 else {"preferred": BLOCK}
        request = {**outer, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2}
    return request


def _template(gpus: int) -> Object:
    amounts = {"cpu": "4", **({GPU: str(gpus)} if gpus else {})}
    limits = {"limits": {GPU: str(gpus)}} if gpus else {}
    container = {
        "name": "main",
        "image": "example.invalid/trainer",
        "resources": {"requests": amounts, **limits},
    }
    return {"spec": {"restartPolicy": "Never", "containers": [container]}}
