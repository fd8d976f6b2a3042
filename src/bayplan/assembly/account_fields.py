"""CEL expressions for the fields of pods and jobs that our roles may change: all others must be unchanged."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.jobs.train_runtime import PATCH_MANAGER
from bayplan.dialects.kueue.fields.job_rules import SCHEDULING_GATE
from bayplan.dialects.kueue.names.annotations import ELASTIC_GATE, MANAGED, TOPOLOGY_GATE

NEW, OLD = "variables.now", "variables.before"
VARIABLES = {"now": "dyn(object)", "before": "dyn(oldObject)"}
"""Untyped: each expression is for one kind; type-checking warnings for other kinds would fill the status."""
_BY_SERVER = ("managedFields", "resourceVersion", "generation")
_WHERE = ("nodeSelector", "tolerations", "schedulingGates")
_GATES = (SCHEDULING_GATE, TOPOLOGY_GATE, ELASTIC_GATE)


def every(names: Iterable[str]) -> str:
    """A CEL list of strings."""
    return "[" + ", ".join(f"'{name}'" for name in names) + "]"


def same_but(new: str, old: str, *keys: str) -> str:
    """CEL: two maps are equal in all fields except these."""
    known = every(keys)
    return (
        f"dyn({new}).all(key, key in {known} || "
        f"(key in dyn({old}) && dyn({new})[key] == dyn({old})[key])) && "
        f"dyn({old}).all(key, key in {known} || key in dyn({new}))"
    )


def either(key: str, check: str, new: str, old: str) -> str:
    """CEL: both objects have a field and it passes a check, or neither has it."""
    return f"has({new}.{key}) == has({old}.{key}) && (!has({new}.{key}) || ({check}))"


def template(new: str, old: str) -> str:
    """CEL: a pod template differs only in labels, annotations, and where its pods may run."""
    spec = same_but(f"{new}.spec", f"{old}.spec", *_WHERE)
    return f"{same_but(new, old, 'metadata', 'spec')} && {either('spec', spec, new, old)}"


def _within(key: str, new: str, old: str) -> str:
    """CEL: an object with a pod template under a key differs only in that template."""
    inner = template(f"{new}.{key}", f"{old}.{key}")
    return f"{same_but(new, old, key)} && {either(key, inner, new, old)}"


def _listed(path: str, name: str, check: str) -> str:
    """CEL: a list has its old length, and each item passes a check with the old item of the same name."""
    new, old = f"{NEW}.{path}", f"{OLD}.{path}"
    one = f"{new}.all(now, {old}.exists(before, now.{name} == before.{name} && {check}))"
    key, parent = path.rpartition(".")[2], path.rpartition(".")[0]
    return either(key, f"{new}.size() == {old}.size() && {one}", f"{NEW}.{parent}", f"{OLD}.{parent}")


def _spec(*keys: str, path: str = "spec") -> str:
    return same_but(f"{NEW}.{path}", f"{OLD}.{path}", *keys)


_METADATA = same_but(f"{NEW}.metadata", f"{OLD}.metadata", "labels", "annotations", *_BY_SERVER)
_FINALIZERS = (
    "(has(object.metadata.finalizers) ? object.metadata.finalizers : []) == "
    "(has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : []) || "
    "(has(object.metadata.finalizers) ? object.metadata.finalizers : []) == "
    f"oldObject.metadata.finalizers.filter(one, one != '{MANAGED}')"
)
_FOREIGN_GATES = (
    "!has(oldObject.spec.schedulingGates) || oldObject.spec.schedulingGates.all(gate, "
    f"gate.name in {every(_GATES)} || (has(object.spec.schedulingGates) && "
    "object.spec.schedulingGates.exists(one, one.name == gate.name)))"
)

POD = " && ".join(
    f"({one})"
    for one in (
        same_but(f"{NEW}.metadata", f"{OLD}.metadata", "labels", "annotations", "finalizers", *_BY_SERVER),
        _FINALIZERS,
        same_but(f"{NEW}.spec", f"{OLD}.spec", *_WHERE),
        _FOREIGN_GATES,
    )
)
POD_STATUS = (
    same_but(f"{NEW}.status", f"{OLD}.status", "conditions", "nominatedNodeName", "phase")
    + " && (object.status.phase == oldObject.status.phase || object.status.phase == 'Failed')"
)


def _training(name: str) -> tuple[str, ...]:
    specs = KINDS[name].replica_specs
    new, old = f"{NEW}.spec.{specs}", f"{OLD}.spec.{specs}"
    each = _within("template", f"dyn({new})[role]", f"dyn({old})[role]")
    roles = f"{new}.size() == {old}.size() && dyn({new}).all(role, role in dyn({old}) && {each})"
    policies = [_or_empty(f"{one}.spec.runPolicy") for one in (NEW, OLD)]
    return (
        _spec("runPolicy", specs),
        same_but(*policies, "suspend"),
        either(specs, roles, f"{NEW}.spec", f"{OLD}.spec"),
    )


def _ray_cluster(path: str) -> tuple[str, ...]:
    head = _within("template", f"{NEW}.{path}.headGroupSpec", f"{OLD}.{path}.headGroupSpec")
    return (
        _spec("suspend", "headGroupSpec", "workerGroupSpecs", path=path),
        either("headGroupSpec", head, f"{NEW}.{path}", f"{OLD}.{path}"),
        _listed(f"{path}.workerGroupSpecs", "groupName", _within("template", "now", "before")),
    )


def _submitter() -> str:
    """CEL: the submitter pod of a RayJob is the user's, or one of ours with the image of the head."""
    new, old = f"{NEW}.spec.submitterPodTemplate", f"{OLD}.spec.submitterPodTemplate"
    return (
        f"has({new}) && has({old}) ? ({template(new, old)}) : "
        f"((!has({new}) || ({_own_submitter(new)})) && (!has({old}) || ({_own_submitter(old)})))"
    )


def _own_submitter(pod: str) -> str:
    """CEL: a template has only the fields that we write if the user gave none."""
    images = f"{NEW}.spec.rayClusterSpec.headGroupSpec.template.spec.containers"
    runs = f"(!has(one.image) || {images}.exists(it, has(it.image) && it.image == one.image))"
    return (
        f"dyn({pod}).all(key, key in {every(('metadata', 'spec'))}) && "
        f"dyn({pod}.spec).all(key, key in {every(('containers', 'restartPolicy', *_WHERE))}) && "
        f"{pod}.spec.containers.size() == 1 && {pod}.spec.containers.all(one, {runs} && "
        f"dyn(one).all(key, key in {every(('name', 'image', 'resources'))}))"
    )


def _optional(obj: str, *path: str) -> str:
    """CEL: the list at a path, or an empty list."""
    steps = [".".join((obj, *path[: depth + 1])) for depth in range(len(path))]
    return f"({' && '.join(f'has({step})' for step in steps)} ? {steps[-1]} : [])"


def _or_empty(path: str) -> str:
    """CEL: the map at a path, or an empty map."""
    return f"(has({path}) ? dyn({path}) : dyn({{}}))"


def _spark(role: str) -> str:
    new, old = f"{NEW}.spec.{role}", f"{OLD}.spec.{role}"
    known = same_but(new, old, "labels", "annotations", "nodeSelector", "tolerations", "template")
    templates = [_or_empty(f"{one}.template") for one in (new, old)]
    specs = [
        f"(has({one}.template) && has({one}.template.spec) ? dyn({one}.template.spec) : dyn({{}}))"
        for one in (new, old)
    ]
    inner = f"{same_but(*templates, 'spec')} && {same_but(*specs, 'schedulingGates')}"
    return either(role, f"{known} && {inner}", f"{NEW}.spec", f"{OLD}.spec")


_JOB_OF_SET = (
    f"{same_but('now', 'before', 'template')} && "
    f"{same_but('now.template', 'before.template', 'spec', 'metadata')} && "
    f"{_within('template', 'now.template.spec', 'before.template.spec')}"
)
_MANAGED_BY_US = f"has(it.manager) && it.manager == '{PATCH_MANAGER}'"
_OTHER_PATCHES = [
    f"{_optional(one, 'spec', 'runtimePatches')}.filter(it, !({_MANAGED_BY_US}))" for one in (NEW, OLD)
]


def _own_patch() -> str:
    """CEL: our patch of a TrainJob changes only where the pods of its jobs may run."""
    steps = ["it", "trainingRuntimeSpec", "template", "spec"]
    paths = [".".join(steps[: depth + 1]) for depth in range(len(steps))]
    only = [
        f"!has({path}) || dyn({path}).all(key, key in ['{key}'])"
        for path, key in zip(paths[1:], (*steps[2:], "replicatedJobs"), strict=True)
    ]
    named = "dyn(it).all(key, key in ['manager', 'time', 'trainingRuntimeSpec'])"
    pod = "job.template.spec.template"
    job = " && ".join(
        (
            "dyn(job).all(key, key in ['name', 'template'])",
            "dyn(job.template).all(key, key in ['spec'])",
            "dyn(job.template.spec).all(key, key in ['template'])",
            f"dyn({pod}).all(key, key in ['metadata', 'spec'])",
            f"(!has({pod}.spec) || dyn({pod}.spec).all(key, key in {every(_WHERE)}))",
        )
    )
    jobs = f"{_optional('it', *steps[1:], 'replicatedJobs')}.all(job, {job})"
    ours = f"{_optional(NEW, 'spec', 'runtimePatches')}.filter(it, {_MANAGED_BY_US})"
    return f"{ours}.all(it, {' && '.join(f'({one})' for one in (named, *only, jobs))})"


def _components(key: str, absent: str) -> str:
    """CEL: a field is unchanged in all components of an AppWrapper."""
    new, old = (f"{one}.spec.components.map(it, has(it.{key}) ? it.{key} : {absent})" for one in (NEW, OLD))
    return f"{new} == {old}"


_BY_KIND: dict[str, tuple[str, ...]] = {
    "Job": (
        _spec("suspend", "parallelism", "completions", "template"),
        template(f"{NEW}.spec.template", f"{OLD}.spec.template"),
    ),
    "JobSet": (_spec("suspend", "replicatedJobs"), _listed("spec.replicatedJobs", "name", _JOB_OF_SET)),
    **{name: _training(name) for name, kind in KINDS.items() if kind.replica_specs},
    "TrainJob": (
        _spec("suspend", "runtimePatches"),
        f"{_OTHER_PATCHES[0]} == {_OTHER_PATCHES[1]}",
        _own_patch(),
    ),
    "RayCluster": _ray_cluster("spec"),
    "RayJob": (
        _spec("suspend", "rayClusterSpec", "submitterPodTemplate"),
        " && ".join(
            f"({one})"
            for one in (
                f"has({NEW}.spec.rayClusterSpec) == has({OLD}.spec.rayClusterSpec)",
                f"!has({NEW}.spec.rayClusterSpec) || ("
                + " && ".join(f"({part})" for part in (*_ray_cluster("spec.rayClusterSpec"), _submitter()))
                + ")",
            )
        ),
    ),
    "RayService": (_spec("rayClusterConfig"), *_ray_cluster("spec.rayClusterConfig")),
    "AppWrapper": (
        _spec("suspend", "components"),
        either("components", _components("template", "{}"), f"{NEW}.spec", f"{OLD}.spec"),
        either("components", _components("podSets", "[]"), f"{NEW}.spec", f"{OLD}.spec"),
    ),
    "SparkApplication": (_spec("suspend", "driver", "executor"), _spark("driver"), _spark("executor")),
}
JOBS = {name: " && ".join(f"({one})" for one in (_METADATA, *checks)) for name, checks in _BY_KIND.items()}
"""For each kind with a suspend flag: what must hold for a change by our account."""
JOB_STATUS = same_but(_or_empty(f"{NEW}.status"), _or_empty(f"{OLD}.status"), "startTime")
"""Only startTime may change: a stopped Job starts again, and its deadline counts from then."""
