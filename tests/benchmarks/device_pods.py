"""Plain pods with a claim for a device each, bound by us and by kube-scheduler on one API server in turns."""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bayplan.backends.remote.access import Access
from bayplan.backends.remote.kubeconfig import load
from tests.benchmarks.gang_load import NAMESPACE, PODS, Ask, Object, ask_all, deletion
from tests.benchmarks.gang_site import OURS, THEIRS, furnish, scheduler, watching
from tests.support.api_objects import api_object, container, pod
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import DEFAULT_KUBE
from tools.controlplane.start import control_plane

RATIO_MIN = 1.5
PATIENCE = 240.0
DEVICES = 10
DRIVER, API = "gpu.example.com", "resource.k8s.io/v1"
RESOURCES = f"/apis/{API}"
CLAIMS = f"{RESOURCES}/namespaces/{NAMESPACE}/resourceclaims"


def inventory(nodes: int) -> Iterable[Ask]:
    """A class with a selector, and a slice for each node."""
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model == "big"'
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    yield "POST", f"{RESOURCES}/deviceclasses", api_object(API, "DeviceClass", "gpu", spec=spec)
    devices = [
        {"name": f"gpu-{number}", "attributes": {"model": {"string": "big"}}} for number in range(DEVICES)
    ]
    for number in range(nodes):
        name = f"n{number:05d}"
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": name, "devices": devices}
        yield "POST", f"{RESOURCES}/resourceslices", api_object(API, "ResourceSlice", name, spec=spec)


def claim(name: str, uid: str = "") -> Ask:
    """A claim of one device; with the uid of a pod, as the controller of claims makes it for the pod."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    if not uid:
        return "POST", CLAIMS, api_object(API, "ResourceClaim", name, spec=spec)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    metadata = {
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [owner],
    }
    return "POST", CLAIMS, api_object(API, "ResourceClaim", name, metadata=metadata, spec=spec)


def named(name: str) -> Ask:
    """The name of its claim in the status of a pod."""
    statuses = [{"name": "gpu", "resourceClaimName": name}]
    return "PATCH", f"{PODS}/{name}/status", {"status": {"resourceClaimStatuses": statuses}}


def claiming_pod(name: str, who: str, *, by_name: bool) -> Ask:
    """A pod with a claim from a template, or with one that it names."""
    source = {"resourceClaimName": name} if by_name else {"resourceClaimTemplateName": "one"}
    asked = {"cpu": "100m", "memory": "100Mi"}
    body = pod(
        name, labels={"bench": "yes"}, schedulerName=who, terminationGracePeriodSeconds=0,
        automountServiceAccountToken=False, containers=[container(asked, asked)],
        resourceClaims=[{"name": "gpu", **source}],
    )  # fmt: skip
    return "POST", PODS, body


def prepare(cluster: Cluster, access: Access, who: str, names: list[str], *, by_name: bool) -> None:
    """Pods with their claims."""
    ask_all(access, [claiming_pod(name, who, by_name=by_name) for name in names])
    if by_name:
        ask_all(access, [claim(name) for name in names])
        return
    uids = {
        one["metadata"]["name"]: one["metadata"]["uid"]
        for one in cluster.get("pods", "-n", NAMESPACE)["items"]
    }
    ask_all(access, [claim(name, uids[name]) for name in names])
    ask_all(access, [named(name) for name in names])


def pace(cluster: Cluster, access: Access, folder: Path, who: str, names: list[str]) -> float:
    """Pods per second once the first was bound. The pods exist before their scheduler starts."""
    with watching(cluster) as watcher:
        watcher.set_clock()
        with scheduler(cluster, who, folder):
            done = watcher.until(lambda w: len(w.bound) == len(names), PATIENCE)
        times = sorted(watcher.bound.values())
    ask_all(access, [deletion(PODS, name) for name in names])
    print(f"    {who}: {len(times)} of {len(names)} pods bound in {times[-1] - times[0]:.2f} s", flush=True)
    assert done, "not all pods were bound"
    return (len(times) - 1) / (times[-1] - times[0])


def main() -> int:
    """Measure both, in turns; fail if the ratio is too low."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kube", default=os.environ.get("KUBE") or DEFAULT_KUBE)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--named", action="store_true", help="pods name their claims instead of templates")
    options = parser.parse_args()
    assert options.pods * options.rounds * 2 <= options.nodes * DEVICES, "claims keep their devices"
    found: dict[str, list[float]] = {OURS: [], THEIRS: []}
    with (
        tempfile.TemporaryDirectory() as name,
        control_plane(options.kube, Path(name) / "cluster") as cluster,
    ):
        furnish(cluster, options.nodes)
        access = load(cluster.kubeconfig)
        ask_all(access, list(inventory(options.nodes)))
        print(f"{options.nodes} nodes x {DEVICES} devices, Kubernetes {cluster.kube}", flush=True)
        for number in range(options.rounds):
            for who in (OURS, THEIRS) if number % 2 == 0 else (THEIRS, OURS):
                names = [f"{who[:1]}{number}-{at}" for at in range(options.pods)]
                prepare(cluster, access, who, names, by_name=options.named)
                found[who].append(pace(cluster, access, Path(name), who, names))
    ours, theirs = (statistics.median(found[who]) for who in (OURS, THEIRS))
    sort = "named claim" if options.named else "claim from a template"
    print(f"{options.pods} plain pods with one {sort} each: {ours:.0f} against {theirs:.0f} pods/s,")
    print(f"    {ours / theirs:.1f} × kube-scheduler (≥ {RATIO_MIN:g})")
    return int(ours < RATIO_MIN * theirs)


if __name__ == "__main__":
    sys.exit(main())
