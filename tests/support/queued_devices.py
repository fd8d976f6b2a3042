"""A cluster in memory with queues and devices by claim, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.backends.fake_controllers.device_claims import CLAIMS, TEMPLATES
from bayplan.configuration.settings import DEFAULTS, merged
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kueue.fields.counting import DeviceClassMapping
from bayplan.dialects.kueue.names import api_kinds
from bayplan.runtime.core.clock import VirtualClock
from tests.support.api_objects import container, job

Object = dict[str, Any]
PODS = Kind("", "v1", "Pod", "pods")
SLICES = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False)
CLASS, RESOURCE = "gpu.example.com", "example.com/gpus"
RACK = "topology.bayplan.dev/rack"
HOSTS, RACKS, DEVICES = 2, 2, 4


class QueuedDevices:
    """Racks of hosts with devices, and a queue whose quota counts the devices of the class."""

    def __init__(
        self, quota: int = HOSTS * RACKS * DEVICES, strategy: str = "BestEffortFIFO", **resources: Any
    ) -> None:
        counted = {"device_classes": (DeviceClassMapping(RESOURCE, (CLASS,)),), **resources}
        settings = merged(DEFAULTS, {"resources": counted})
        self.home = LocalCluster(
            ClusterShape(1, RACKS, HOSTS, 0, DEVICES), VirtualClock(wall=1_800_000_000.0), settings=settings
        )
        self.store = self.home.store
        labels = {"topology.bayplan.dev/block": "b01"}
        self.store.create(api_kinds.FLAVORS, made("hosts", topologyName="data-centre", nodeLabels=labels))
        cells = [{"name": RESOURCE, "nominalQuota": quota}, {"name": "cpu", "nominalQuota": 100}]
        group = {"coveredResources": [RESOURCE, "cpu"], "flavors": [{"name": "hosts", "resources": cells}]}
        queue = made(
            "all",
            namespaceSelector={},
            resourceGroups=[group],
            preemption={"withinClusterQueue": "LowerPriority"},
            queueingStrategy=strategy,
        )
        self.store.create(api_kinds.CLUSTER_QUEUES, queue)
        self.store.create(api_kinds.LOCAL_QUEUES, made("all", clusterQueue="all"), "default")

    def template(self, name: str, count: int = DEVICES, **request: Any) -> None:
        exactly = {"exactly": {"deviceClassName": CLASS, "count": count}}
        spec = {"devices": {"requests": [{"name": "gpus", **(request or exactly)}]}}
        self.store.create(TEMPLATES, made(name, spec=spec), "default")

    def shared_claim(self, name: str, count: int) -> None:
        exactly = {"deviceClassName": CLASS, "count": count}
        spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
        self.store.create(CLAIMS, {"metadata": {"name": name}, "spec": spec}, "default")

    def job(self, name: str, pods: int, queue: str = "all", importance: str = "", **claim: str) -> None:
        """A job in one rack, each of whose pods has one claim."""
        template = {
            "metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}},
            "spec": {
                "schedulerName": "bayplan",
                "restartPolicy": "Never",
                "containers": [container(requests={"cpu": "1"})],
                "resourceClaims": [{"name": "own", **claim}],
            },
        }
        labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
        if importance:
            labels["kueue.x-k8s.io/priority-class"] = importance
        body = job(name, template, pods, labels=labels, completionMode="Indexed")
        self.store.create(JOBS, body, "default")

    def bare(self, pods: int, topology: Object, **claim: str) -> None:
        """A Workload whose pods do not exist yet."""
        template = {
            "metadata": {},
            "spec": {
                "restartPolicy": "Never",
                "containers": [container(requests={"cpu": "1"})],
                "resourceClaims": [{"name": "own", **claim}],
            },
        }
        pod_set = {"name": "main", "count": pods, "template": template, "topologyRequest": topology}
        body = made("bare", queueName="all", podSets=[pod_set])
        self.store.create(api_kinds.WORKLOADS, body, "default")

    def partitioned(self, counter: str, amounts: Sequence[int]) -> None:
        """The devices of all hosts draw these amounts, in turns, on a counter of their host."""
        for part in list(self.store.list(SLICES).items):
            spec, name = part["spec"], part["metadata"]["name"]
            pool = {**spec["pool"], "generation": 2, "resourceSliceCount": 2}
            devices = [
                {
                    **one,
                    "consumesCounters": [
                        {
                            "counterSet": "all",
                            "counters": {counter: {"value": str(amounts[at % len(amounts)])}},
                        }
                    ],
                }
                for at, one in enumerate(spec["devices"])
            ]
            counters = [{"name": "all", "counters": {counter: {"value": "100"}}}]
            self.store.patch(SLICES, "", name, {"spec": {"pool": pool, "devices": devices}})
            both = {key: spec[key] for key in ("driver", "nodeName")}
            body = {
                "metadata": {"name": f"{name}-all"},
                "spec": {**both, "pool": pool, "sharedCounters": counters},
            }
            self.store.create(SLICES, body)

    def assigned(self, name: str) -> list[str]:
        """The hosts that a Workload is admitted to."""
        admission = self.workload(name).get("status", {}).get("admission") or {}
        slices = [
            one
            for part in admission.get("podSetAssignments", ())
            for one in (part.get("topologyAssignment") or {}).get("slices", ())
        ]
        found = (one["valuesPerLevel"][-1] for one in slices)
        return sorted(host for values in found for host in _values(values))

    def foreign_pod(self, name: str, host: str, devices: int) -> None:
        """A pod of another scheduler, which gave it devices of a host."""
        exactly = {"deviceClassName": CLASS, "count": devices}
        spec = {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}}
        self.store.create(CLAIMS, {"metadata": {"name": name}, "spec": spec}, "default")
        body = {
            "schedulerName": "other",
            "nodeName": host,
            "containers": [container(requests={"cpu": "1"})],
            "resourceClaims": [{"name": "own", "resourceClaimName": name}],
        }
        made_pod = self.store.create(PODS, {"metadata": {"name": name}, "spec": body}, "default")
        (part,) = (one for one in self.store.list(SLICES).items if one["spec"].get("nodeName") == host)
        results = [
            {
                "request": "gpus", "driver": part["spec"]["driver"], "pool": part["spec"]["pool"]["name"],
                "device": one["name"],
            }
            for one in part["spec"]["devices"][:devices]
        ]  # fmt: skip
        consumer = {"resource": "pods", "name": name, "uid": made_pod["metadata"]["uid"]}
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [consumer]}
        self.store.patch(CLAIMS, "default", name, {"status": status}, subresource="status")

    def steps(self, seconds: float) -> None:
        clock = self.home.clock
        assert isinstance(clock, VirtualClock)
        for _ in range(int(seconds * 2)):
            for _ in range(5):
                self.home.step()
            clock.advance(0.5)

    def run(self, seconds: float = 6.0) -> None:
        self.steps(seconds)
        held = [one for claim in self.store.list(CLAIMS).items for one in devices(claim)]
        assert len(held) == len(set(held)), "a device is allocated twice"

    def workload(self, name: str) -> Object:
        found = (one for one in self.store.list(api_kinds.WORKLOADS).items if name in one["metadata"]["name"])
        return next(found)

    def condition(self, name: str, kind: str = "QuotaReserved") -> Object:
        conditions = self.workload(name).get("status", {}).get("conditions", ())
        return next((one for one in conditions if one["type"] == kind), {})

    def hosts(self, name: str) -> list[str]:
        pods = [one for one in self.store.list(PODS).items if one["metadata"]["name"].startswith(name)]
        return sorted(one["spec"].get("nodeName", "") for one in pods)


def made(name: str, **spec: Any) -> Object:
    return {"metadata": {"name": name}, "spec": spec}


def devices(claim: Object) -> list[tuple[str, str]]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return [(one["pool"], one["device"]) for one in (allocation.get("devices") or {}).get("results", ())]


def _values(level: Object) -> list[str]:
    """The names of a level in one slice of an assignment."""
    if "universal" in level:
        return [level["universal"]]
    parts = level["individual"]
    return [f"{parts.get('prefix', '')}{root}{parts.get('suffix', '')}" for root in parts["roots"]]


def rack_of(host: str) -> str:
    return host.split("-")[1]
