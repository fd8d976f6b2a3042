"""The default way to make a group for a pod: name, queue, priority, topology, by its owner and itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.dialects.jobs.part import Find, nothing
from bayplan.dialects.kai.api.names import (
    DEFAULT_QUEUE,
    NODE_POOL_LABEL,
    NON_PREEMPTIBLE,
    PREEMPTIBILITY,
    PREEMPTIBLE,
    PRIORITY_LABEL,
    PROJECT_LABEL,
    QUEUE_LABEL,
    TOPOLOGY_NOTES,
    TRAIN,
    USER_LABEL,
)
from bayplan.dialects.kai.api.pod_group import Constraint, Owner, PodGroup
from bayplan.dialects.kai.grouper.kind_defaults import PREEMPTIBILITY as PREEMPTIBILITY_OF_KIND
from bayplan.dialects.kai.grouper.kind_defaults import PRIORITY_NAME, Defaults, defaults_of, of_kind
from bayplan.dialects.kube.fields.reader import Field

Object = dict[str, Any]
FindPods = Callable[[str, Mapping[str, str]], Iterable[Object]]


class CannotGroup(ValueError):
    """No group can be made for a pod; the message says why, for the user."""


def no_pods(namespace: str, labels: Mapping[str, str]) -> Iterable[Object]:
    """Knows no pods."""
    return ()


@dataclass(frozen=True, slots=True)
class GrouperSettings:
    """What an administrator may choose."""

    queue_label: str = QUEUE_LABEL
    node_pool_label: str = NODE_POOL_LABEL
    defaults: tuple[str, str] | None = None  # the ConfigMap with defaults by kind: namespace and name
    knative_gangs: bool = True  # the pods of a revision start together
    legacy_names: bool = False  # groups made by older versions keep their names


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A pod and what is known around it."""

    pod: Object
    owners: Sequence[Object] = ()  # nearest first; the last is what the user made
    find: Find = nothing
    pods: FindPods = no_pods  # pods of a namespace that have these labels
    settings: GrouperSettings = GrouperSettings()
    warnings: list[str] = field(default_factory=list)

    @property
    def top(self) -> Object:
        return self.owners[-1] if self.owners else self.pod

    @property
    def kind(self) -> str:
        return str(self.top.get("kind") or "")

    @property
    def only_named(self) -> bool:
        """Whether no more is known of the topmost owner than its name; its pods are not lost for that."""
        return not Field(self.top).at("spec").present

    @property
    def pod_labels(self) -> dict[str, str]:
        return labels_of(self.pod)

    @property
    def pod_name(self) -> str:
        """The pod with its namespace, as it is called in complaints."""
        return f"{meta_text(self.pod, 'namespace')}/{meta_text(self.pod, 'name')}"


def meta_text(obj: Object, key: str) -> str:
    """A text of an object's metadata."""
    return Field(obj).at("metadata", key).text()


def labels_of(obj: Object) -> dict[str, str]:
    """The labels of an object."""
    return Field(obj).at("metadata", "labels").texts()


def annotations_of(obj: Object) -> dict[str, str]:
    """The annotations of an object."""
    return Field(obj).at("metadata", "annotations").texts()


def group_name(obj: Object) -> str:
    """The name of the group that an object owns."""
    return f"pg-{meta_text(obj, 'name')}-{meta_text(obj, 'uid')}"


def owner_of(obj: Object, api_version: str = "", kind: str = "") -> Owner:
    """The object as the owner of a group."""
    return Owner(
        str(obj.get("apiVersion") or api_version),
        str(obj.get("kind") or kind),
        meta_text(obj, "name"),
        meta_text(obj, "uid"),
    )


def default_group(
    view: View, owner: Object | None = None, priority: str = TRAIN, asked: Sequence[Object] = ()
) -> PodGroup:
    """A group of one pod at least, for the owner (the topmost, unless another is given).

    `asked` are those whose labels tell how urgent it is, the first one first; the owner alone if empty.
    """
    owner = view.top if owner is None else owner
    asked = asked or (owner,)
    labels = labels_of(owner)
    if USER_LABEL in view.pod_labels:
        labels.setdefault(USER_LABEL, view.pod_labels[USER_LABEL])
    annotations = annotations_of(owner)
    constraint = constraint_of(annotations)
    if USER_LABEL in annotations_of(view.pod):
        annotations.setdefault(USER_LABEL, annotations_of(view.pod)[USER_LABEL])
    return PodGroup(
        name=group_name(owner),
        namespace=meta_text(view.pod, "namespace"),
        queue=_queue(view, owner),
        priority_class=_priority(view, asked, priority),
        preemptibility=_preemptibility(view, asked),
        constraint=constraint,
        labels=labels,
        annotations=annotations,
        owner=owner_of(owner),
    )


def one_pod(view: View, group: PodGroup) -> PodGroup:
    """The same group for this pod alone, which goes away with the pod."""
    return replace(group, name=group_name(view.pod), owner=owner_of(view.pod, "v1", "Pod"), minimum=1)


def constraint_of(annotations: Mapping[str, str]) -> Constraint | None:
    """Where a workload as a whole belongs."""
    texts = (annotations.get(key, "") for key in TOPOLOGY_NOTES)
    found = Constraint(*texts)
    return found if found != Constraint() else None


def _queue(view: View, owner: Object) -> str:
    mine, pods, key = labels_of(owner), view.pod_labels, view.settings.queue_label
    for found in (mine.get(key), pods.get(key)):
        if found:
            return found
    project = mine.get(PROJECT_LABEL) or pods.get(PROJECT_LABEL)
    if not project:
        return DEFAULT_QUEUE
    pool = pods.get(view.settings.node_pool_label)
    return f"{project}-{pool}" if pool else project


def _priority(view: View, asked: Sequence[Object], default: str) -> str:
    """The first priority class named that exists; the default is not asked whether it does."""
    defaults = _defaults(view)
    named = (
        *(_named_priority(view, owner) for owner in asked),
        *(_of_kind(defaults, owner).get(PRIORITY_NAME) for owner in asked),
    )
    for name in named:
        if name and view.find("PriorityClass", "", name) is not None:
            return name
    return default


def _named_priority(view: View, owner: Object) -> str:
    """What the owner says, or else the pod. Who names a class that does not exist has spoken all the same."""
    labelled = (labels_of(owner).get(PRIORITY_LABEL), view.pod_labels.get(PRIORITY_LABEL))
    spec = Field(view.pod).at("spec", "priorityClassName").text()
    return next((name for name in labelled if name is not None), spec)


def _preemptibility(view: View, asked: Sequence[Object]) -> str:
    defaults = _defaults(view)
    named = (
        *(labels_of(one).get(PREEMPTIBILITY, "") for one in (*asked, view.pod)),
        *(_of_kind(defaults, owner).get(PREEMPTIBILITY_OF_KIND, "").lower() for owner in asked),
    )
    return next((name for name in named if name in (PREEMPTIBLE, NON_PREEMPTIBLE)), "")


def _of_kind(defaults: Defaults, owner: Object) -> Mapping[str, str]:
    return of_kind(defaults, str(owner.get("apiVersion") or ""), str(owner.get("kind") or ""))


def _defaults(view: View) -> Defaults:
    """What the administrator's ConfigMap says."""
    namespace, name = view.settings.defaults or ("", "")
    return defaults_of(view.find("ConfigMap", namespace, name)) if name else {}
