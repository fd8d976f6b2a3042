"""Gangs as the API shows them: their pods, minimum, required domain and priority."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayplan.backends.fake_controllers.objects import OVER, is_terminating, phase_of
from bayplan.dialects.jobs.batch_jobs import JOB_SET_NAME
from bayplan.dialects.kube.gang.objects import TOPOLOGY
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.simulator.core.checkers import gang_of_job
from bayplan.simulator.core.documents import once_per_document, once_per_listing

Object = dict[str, Any]
List = Callable[[str], Sequence[Object]]


def is_ours(pod: Object) -> bool:
    """Whether a pod names our scheduler."""
    return bool(pod["spec"].get("schedulerName") == SCHEDULER)


@once_per_document
def gang_of(pod: Object) -> str:
    """The gang of a pod, as kind and name; empty if none."""
    spec, meta = pod["spec"], pod["metadata"]
    if group := spec.get("schedulingGroup"):
        return f"PodGroup/{group['podGroupName']}"
    if ref := spec.get("workloadRef"):
        return f"Workload/{ref['name']}/{ref['podGroup']}/{ref.get('podGroupReplicaKey') or ''}"
    if not is_ours(pod):
        return ""
    if whole := (meta.get("labels") or {}).get(JOB_SET_NAME):
        return f"JobSet/{whole}"
    owners = [owner["name"] for owner in meta.get("ownerReferences") or () if owner["kind"] == "Job"]
    return f"Job/{owners[0]}" if owners else ""


@dataclass(slots=True)
class GangView:
    """One gang with its pods; a pod without a gang is a gang of one."""

    name: str
    pods: list[Object] = field(default_factory=list)
    uid: str = ""
    minimum: int = 0
    level: str = ""
    whole: bool = False  # if one goes, all go
    own_priority: int | None = None  # its priority, if it has one of its own
    known: bool = True  # there are rules for it
    job: Object | None = None

    @property
    def priority(self) -> int:
        """The priority of the gang object, or the highest of its pods."""
        return (
            self.own_priority
            if self.own_priority is not None
            else max((priority_of(pod) for pod in self.pods), default=0)
        )

    def bound_pods(self) -> list[Object]:
        """Pods that are bound or succeeded."""
        return [pod for pod in self.pods if is_bound(pod)]

    def pending_pods(self) -> list[Object]:
        return [pod for pod in self.pods if is_pending(pod)]


def priority_of(pod: Object) -> int:
    """The priority of the pod itself."""
    return int(pod["spec"].get("priority") or 0)


def is_bound(pod: Object) -> bool:
    """Whether a pod is bound or succeeded."""
    return bool(pod["spec"].get("nodeName")) and not is_terminating(pod) and phase_of(pod) != "Failed"


def is_pending(pod: Object) -> bool:
    """Whether a pod of our scheduler is pending."""
    return is_ours(pod) and not (pod["spec"].get("nodeName") or is_terminating(pod) or phase_of(pod) in OVER)


def gang_views(objects: List) -> Mapping[str, GangView]:
    """All gangs that have pods, by name, including pods without a gang."""
    return _gang_views(objects("groups"), objects("jobs"), objects("jobsets"), objects("pods"))


@once_per_listing
def _gang_views(
    groups: Sequence[Object], jobs: Sequence[Object], job_sets: Sequence[Object], pods: Sequence[Object]
) -> Mapping[str, GangView]:
    objects_by_name = dict(_gang_objects(groups, jobs, job_sets))
    views: dict[str, GangView] = {}
    for pod in pods:
        name = gang_of(pod) or f"Pod/{pod['metadata']['name']}"
        if name not in views:
            views[name] = _gang_view(name, pod, objects_by_name)
        views[name].pods.append(pod)
    return views


def _gang_objects(
    groups: Sequence[Object], jobs: Sequence[Object], job_sets: Sequence[Object]
) -> Iterator[tuple[str, Object]]:
    for kind, found in (("PodGroup", groups), ("Workload", groups), ("Job", jobs), ("JobSet", job_sets)):
        for obj in found:
            if obj["kind"] == kind:
                yield f"{kind}/{obj['metadata']['name']}", obj


def _gang_view(name: str, pod: Object, objects_by_name: dict[str, Object]) -> GangView:
    kind, own, *rest = name.split("/")
    if kind == "Pod":
        return GangView(name, uid=pod["metadata"]["uid"], minimum=1)
    obj = objects_by_name.get(f"{kind}/{own}")
    if obj is None or is_terminating(obj):
        return GangView(name, known=False)
    view = GangView(name, uid=obj["metadata"]["uid"])
    if kind in ("Job", "JobSet"):
        view.job, view.whole = obj, True
        view.minimum = sum(part.count for part in gang_of_job(obj).root.pod_sets())
        return view
    spec = obj["spec"]
    if kind == "Workload":
        group = next((one for one in spec["podGroups"] if one["name"] == rest[0]), None)
        policy = {} if group is None else group["policy"]
        view.level = (obj["metadata"].get("annotations") or {}).get(TOPOLOGY, "")
    else:
        policy, view.own_priority = spec["schedulingPolicy"], spec.get("priority")
        keys = (spec.get("schedulingConstraints") or {}).get("topology") or ()
        view.level = keys[0]["key"] if keys else ""
        mode = spec.get("disruptionMode")
        view.whole = mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode)
    view.minimum = policy["gang"]["minCount"] if "gang" in policy else 0
    return view
