"""kueue/jobs*: job → pod sets of its Workload, what a job is given when it is written, its Workload."""

from __future__ import annotations

import copy
from typing import Any

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.jobs.part import Find
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.events import decode
from bayplan.dialects.kueue.fields.pod_rules import group_name
from bayplan.dialects.kueue.jobs.injection import injection_for
from bayplan.dialects.kueue.jobs.pod_adoption import with_workload_metadata
from bayplan.dialects.kueue.jobs.pod_group import excess_pods, group_workload
from bayplan.dialects.kueue.jobs.pod_sets import pod_sets
from bayplan.dialects.kueue.jobs.workload import Copied, job_workload, updated_workload
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.names.annotations import SERVING
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches
from bayplan.dialects.kueue.webhooks.job_defaults import JobSurroundings, default_job
from bayplan.model.change import QueuedGangSeen
from bayplan.model.queued_gang import QueuedGang

Object = dict[str, Any]

OBJECTS = (
    *("job", "jobSet", "mpiJob", "rayJob", "rayCluster", "rayService", "sparkApp"),
    *("lws", "pod", "trainJob", "statefulSet", "leaderWorkerSet"),
)
KINDS = {
    "jobs_job": "Job",
    "jobs_jobset": "JobSet",
    "jobs_mpijob": "MPIJob",
    "jobs_rayjob": "RayJob",
    "jobs_raycluster": "RayCluster",
    "jobs_rayservice": "RayService",
}
"""The kinds of objects that were written down without saying so."""
CLASSES = ("priorityClasses", "initObjects")
NOT_HERE = "nothing of ours answers this"


def check_case(case: Object) -> list[str]:
    """What the test of this name compares."""
    checks = {
        "TestPodSets": _check_pod_sets,
        "TestDefault": _check_default,
        "TestReconciler": _check_created,
        "TestPodReconciler": _check_pod,
        "TestFromAssignment": _check_injected,
        "TestNeedsSecondPass": _check_second_pass,
        "TestIsExplicitlyRequestingTAS": _check_asks,
    }
    check = checks.get(case["test"])
    return [NOT_HERE] if check is None else check(case)


def _check_pod_sets(case: Object) -> list[str]:
    given = case["case"]
    want = given.get("wantPodSets", given.get("want"))
    if not isinstance(want, list):
        want = case["gotPodSets"]  # the expectation was a function
    got = pod_sets(Field(_object(case)), rules=_rules(case))
    return [] if got == want else [f"want {want}", f"got  {got}"]


def _check_default(case: Object) -> list[str]:
    given, job = case["case"], _object(case)
    want = copy.deepcopy(given["want"])
    _restore(job, want)
    around = JobSurroundings(default_queue=bool(given.get("defaultLqExist")))
    got = default_job(job, around, _rules(case))
    again = default_job(got, around, _rules(case))
    wrong = [] if got == want else [f"want {want}", f"got  {got}"]
    return wrong if again == got else [*wrong, "doing it twice is not doing it once"]


def _check_created(case: Object) -> list[str]:
    """A job or a group of pods: the Workload that is made for it, or becomes of the one there is."""
    given, rules = case["case"], _rules(case)
    pods = given.get("pods") or []
    if pods and any(key in given for key in OBJECTS):
        return _check_adopted(case, given, pods) + _check_created({**case, "case": _without_pods(given)})
    if (given.get("wantErr") or {}).get("error"):
        return _check_refused(pods, given["wantErr"]["error"], rules)
    if _beyond(given):
        return [NOT_HERE]
    (want,) = given["wantWorkloads"]
    copied = Copied(*(_foreign(want["metadata"].get(part, {})) for part in ("labels", "annotations")))
    if pods and group_name(Field(pods[0]), rules).text():
        got = group_workload([Field(pod) for pod in pods], _classes(given), rules, copied)
    else:
        got = job_workload(Field(pods[0] if pods else _object(case)), 0, _classes(given), rules, copied)
    for present in given.get("workloads") or ():
        serving = bool(pods) and SERVING in pods[0]["metadata"].get("annotations", {})
        got = updated_workload(present, got, serving=serving) or present
    if "reconcilerOptions" in given and not pods:  # only these parts are compared in such tests
        want, got = (_essence(one) for one in (want, got))
    want, got = (_without_empty(one) for one in (want, got))
    return [] if got == want else [f"want {want}", f"got  {got}"]


def _beyond(given: Object) -> bool:
    """Pods are changed otherwise than by deleting those that are too many."""
    pods: list[Object] = given.get("pods") or []
    wanted: list[Object] = given.get("wantPods", pods)
    if len(wanted) < len(pods):
        excess = {pod.at("metadata", "name").text() for pod in excess_pods([Field(pod) for pod in pods])}
        pods = [pod for pod in pods if pod["metadata"]["name"] not in excess]
    return pods != wanted


def _check_refused(pods: list[Object], why: str, rules: FeatureSwitches) -> list[str]:
    try:
        group_workload([Field(pod) for pod in pods], rules=rules)
    except ValueError as wrong:
        return [] if why in str(wrong) else [f"want {why}, got {wrong}"]
    return [f"want {why}"]


def _check_injected(case: Object) -> list[str]:
    given, want = case["case"], case["case"]["wantInfo"]
    flavors = {one["metadata"]["name"]: one for one in given["flavors"]}
    pod_set = Field({"count": given["defaultCount"]})
    got = injection_for(Field(given["assignment"]), pod_set, flavors, _rules(case))
    told = {
        "Name": got.name,
        "Count": got.count,
        "Labels": got.labels,
        "Annotations": got.annotations,
        "NodeSelector": got.node_selector,
        "Tolerations": list(got.tolerations),
        "SchedulingGates": [{"name": gate} for gate in got.gates],
    }
    told = {key: value for key, value in told.items() if value not in ({}, [])}
    return [] if told == want else [f"want {want}", f"got  {told}"]


def _check_second_pass(case: Object) -> list[str]:
    got = any(gang.needs_placement for gang in _queued_gangs(case["case"]["wl"]))
    return [] if got == case["case"]["want"] else [f"want {case['case']['want']}"]


def _check_asks(case: Object) -> list[str]:
    template = {"name": "main", "template": {"spec": {"containers": [{"name": "main"}]}}}
    pod_sets = [{**template, **pod_set} for pod_set in case["case"]["podSets"]]
    workload = {"metadata": {"name": "case", "namespace": "default"}, "spec": {"podSets": pod_sets}}
    got = any(request.topology for gang in _queued_gangs(workload) for request in gang.requests)
    return [] if got == case["case"]["want"] else [f"want {case['case']['want']}"]


def _queued_gangs(workload: Object) -> list[QueuedGang]:
    """What admission reads of a Workload."""
    changes = decode(Event(Happened.SEEN, api_kinds.WORKLOADS, workload))
    return [one.queued_gang for one in changes if isinstance(one, QueuedGangSeen)]


def _check_adopted(case: Object, given: Object, pods: list[Object]) -> list[str]:
    """Pods that another controller made, as they join the Workload of their owner."""
    owner = next(given[key] for key in (*OBJECTS, "sts") if key in given and key != "pod")
    name = next((one["metadata"]["name"] for one in given.get("workloads") or ()), "")
    got = [with_workload_metadata(pod, owner, name, _rules(case)) for pod in pods]
    return [] if got == given["wantPods"] else [f"want {given['wantPods']}", f"got  {got}"]


def _check_pod(case: Object) -> list[str]:
    return _check_adopted(case, case["case"], [case["case"]["pod"]])


def _without_pods(given: Object) -> Object:
    return {key: value for key, value in given.items() if key not in ("pods", "wantPods")}


def _foreign(entries: dict[str, str]) -> frozenset[str]:
    """Which keys are copied was said in functions; those wanted that are not ours must be among them."""
    return frozenset(key for key in entries if "kueue.x-k8s.io/" not in key)


def _classes(given: Object) -> Find:
    """Priority classes, and the runtime of a TrainJob: one that makes the jobs that are wanted."""
    sets = [one for workload in given["wantWorkloads"] for one in workload["spec"]["podSets"]]
    inner = {"parallelism": 1, "completions": 1, "template": {"spec": {}}}
    jobs = [{"name": one["name"], "replicas": 1, "template": {"spec": inner}} for one in sets]
    runtime = {
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "test"},
        "spec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    known = [runtime, *(one for key in CLASSES for one in given.get(key) or ())]
    return lambda kind, _namespace, name: next(
        (one for one in known if (one["kind"], one["metadata"]["name"]) == (kind, name)), None
    )


def _essence(workload: Object) -> Object:
    kept = ("name", "count", "minCount", "topologyRequest")
    sets = [{key: one[key] for key in kept if key in one} for one in workload["spec"]["podSets"]]
    notes = workload["metadata"].get("annotations", {})
    return {"annotations": notes, "spec": workload["spec"] | {"podSets": sets}}


def _without_empty(workload: Object) -> Object:
    """As the data are written: without apiVersion, without what is empty."""
    found = copy.deepcopy(workload)
    found.pop("apiVersion", None)
    for part in (found, found.get("metadata", {})):
        for key in [key for key, value in part.items() if value in ({}, [])]:
            del part[key]
    if found["spec"].get("priority") == 0:
        del found["spec"]["priority"]
    return found


def _object(case: Object) -> Object:
    given = case["case"]
    found: Object = next(given[key] for key in OBJECTS if key in given)
    found = copy.deepcopy(found.get("pod", found))
    if "ObjectMeta" in found:
        found = {"kind": KINDS[case["package"]], "metadata": found["ObjectMeta"], "spec": found["Spec"]}
    return found


def _restore(job: Object, want: Object) -> None:
    """The data lack what was empty: a template of the leader, and the requests of containers."""
    if job["kind"] == "LeaderWorkerSet":
        groups = [one["spec"]["leaderWorkerTemplate"] for one in (job, want)]
        if "leaderTemplate" in groups[1]:
            groups[0].setdefault("leaderTemplate", {})
    if job["kind"] == "Pod":
        for one in (job, want):
            for container in one["spec"]["containers"]:
                container.setdefault("resources", {}).setdefault("requests", {})


def _rules(case: Object) -> FeatureSwitches:
    gates = {**(case.get("gates") or {}), **(case["case"].get("featureGates") or {})}
    return FeatureSwitches(
        lenient=False,
        topology=gates.get("TopologyAwareScheduling", True),
        identifiers=gates.get("WorkloadIdentifierAnnotations", True),
        jobs_without_queue=bool(case["case"].get("manageJobsWithoutQueueName")),
    )


FILES = {"kueue/jobs*": check_case}
