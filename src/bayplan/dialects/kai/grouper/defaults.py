"""The default PodGroup of a pod: name, queue, priority and topology, from its owner and the pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.dialects.jobs.part import Find, find_nothing
from bayplan.dialects.kai.api.names import (
    DEFAULT_QUEUE,
    NODE_POOL_LABEL,
    NON_PREEMPTIBLE,
    PREEMPTIBILITY,
    PREEMPTIBLE,
    PRIORITY_LABEL,
    PROJECT_LABEL,
    QUEUE_LABEL,
    TOPOLOGY_ANNOTATIONS,
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
    """No PodGroup can be created for a pod; the message tells users why."""


def no_pods(namespace: str, labels: Mapping[str, str]) -> Iterable[Object]:
    """A `FindPods` that knows no pods."""
    return ()


@dataclass(frozen=True, slots=True)
class GrouperSettings:
    """Settings of the pod grouper."""

    queue_label: str = QUEUE_LABEL
    node_pool_label: str = NODE_POOL_LABEL
    defaults: tuple[str, str] | None = None  # namespace and name of the ConfigMap with defaults by kind
    knative_gangs: bool = True  # the pods of a Knative revision are a gang
    legacy_names: bool = False  # groups created by older versions keep their names


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A pod with its owners, and lookups of related objects."""

    pod: Object
    owners: Sequence[Object] = ()  # nearest first; the last one is the user's object
    find: Find = find_nothing
    pods: FindPods = no_pods  # pods of a namespace by labels
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
        """Whether only the name of the topmost owner is known; its pods are grouped nevertheless."""
        return not Field(self.top).at("spec").present

    @property
    def pod_labels(self) -> dict[str, str]:
        return labels_of(self.pod)

    @property
    def pod_name(self) -> str:
        """Namespace and name of the pod, for messages."""
        return f"{meta_text(self.pod, 'namespace')}/{meta_text(self.pod, 'name')}"


def meta_text(obj: Object, key: str) -> str:
    """A string in the metadata of an object."""
    return Field(obj).at("metadata", key).text()


def labels_of(obj: Object) -> dict[str, str]:
    """The labels of an object."""
    return Field(obj).at("metadata", "labels").texts()


def annotations_of(obj: Object) -> dict[str, str]:
    """The annotations of an object."""
    return Field(obj).at("metadata", "annotations").texts()


def group_name(obj: Object) -> str:
    """The name of the PodGroup that an object owns."""
    return f"pg-{meta_text(obj, 'name')}-{meta_text(obj, 'uid')}"


def owner_of(obj: Object, api_version: str = "", kind: str = "") -> Owner:
    """The object as the owner of a PodGroup."""
    return Owner(
        str(obj.get("apiVersion") or api_version),
        str(obj.get("kind") or kind),
        meta_text(obj, "name"),
        meta_text(obj, "uid"),
    )


def default_group(
    view: View, owner: Object | None = None, priority: str = TRAIN, asked: Sequence[Object] = ()
) -> PodGroup:
    """A PodGroup with a minimum of one pod for the owner (by default the topmost).

    `asked` are the owners whose labels define priority and preemptibility, in order; by default the owner.
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
    """The same PodGroup for this pod alone, owned by the pod."""
    return replace(group, name=group_name(view.pod), owner=owner_of(view.pod, "v1", "Pod"), minimum=1)


def constraint_of(annotations: Mapping[str, str]) -> Constraint | None:
    """The topology constraint of a whole workload."""
    texts = (annotations.get(key, "") for key in TOPOLOGY_ANNOTATIONS)
    constraint = Constraint(*texts)
    return constraint if constraint != Constraint() else None


def _queue(view: View, owner: Object) -> str:
    owner_labels, pod_labels, key = labels_of(owner), view.pod_labels, view.settings.queue_label
    for queue in (owner_labels.get(key), pod_labels.get(key)):
        if queue:
            return queue
    project = owner_labels.get(PROJECT_LABEL) or pod_labels.get(PROJECT_LABEL)
    if not project:
        return DEFAULT_QUEUE
    pool = pod_labels.get(view.settings.node_pool_label)
    return f"{project}-{pool}" if pool else project


def _priority(view: View, asked: Sequence[Object], default: str) -> str:
    """The first named priority class that exists; the default may not exist."""
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
    """The priority class of the owner, else of the pod, whether it exists or not."""
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
    """The defaults in the administrator's ConfigMap."""
    namespace, name = view.settings.defaults or ("", "")
    return defaults_of(view.find("ConfigMap", namespace, name)) if name else {}
