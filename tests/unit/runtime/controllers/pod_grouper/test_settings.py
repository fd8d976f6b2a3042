"""Settings of the pod grouper: labels, and a ConfigMap with defaults by kind."""

from __future__ import annotations

import pytest

from bayplan.backends.embedded.api.options import Deletion
from bayplan.backends.remote.request import collection
from bayplan.dialects.api import Kind
from bayplan.dialects.kai.grouper.defaults import GrouperSettings
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.pod_grouper.defaults import CONFIG_MAPS
from tests.support.kai_site import CLASSES
from tests.support.pod_site import EVENTS
from tests.unit.runtime.controllers.pod_grouper.test_controller import Trained

NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False)


class Defaulted(Trained):
    """With a ConfigMap of defaults by kind, and one of the same name elsewhere."""

    def __init__(self) -> None:
        super().__init__(defaults=("settings", "by-kind"))
        self.store.create(NAMESPACES, {"metadata": {"name": "settings"}})
        self.store.create(CLASSES, {"metadata": {"name": "low"}, "value": 5})
        self.defaults('[{"typeName": "Pod", "priorityName": "train"}]', "default")

    def defaults(self, text: str, namespace: str = "settings", key: str = "types") -> None:
        body = {"metadata": {"name": "by-kind"}, "data": {key: text}}
        if self.store.find(CONFIG_MAPS, namespace, "by-kind") is None:
            self.store.create(CONFIG_MAPS, body, namespace)
        else:
            self.store.patch(CONFIG_MAPS, namespace, "by-kind", body)

    def told(self, name: str) -> tuple[str, str]:
        """Priority and preemptibility of the group that a new pod gets."""
        self.pod(name)
        self.run(2)
        spec = self.groups()[f"pg-{name}-{self.get(name)['metadata']['uid']}"]["spec"]
        return spec["priorityClassName"], spec.get("preemptibility", "")


def test_defaults_by_kind_count_for_pods_grouped_after_they_changed() -> None:
    site = Defaulted()
    site.run(2)
    assert site.told("before") == ("train", "")
    assert site.notes == [
        "ConfigMap settings/by-kind: does not exist, or may not be read; "
        "pods are grouped without these defaults"
    ]
    site.defaults('[{"typeName": "Pod", "priorityName": "low", "preemptibility": "Non-Preemptible"}]')
    assert site.told("then") == ("low", "non-preemptible")
    site.defaults('[{"typeName": "Pod", "preemptibility": "preemptible"}]')
    assert site.told("changed") == ("train", "preemptible")
    site.store.delete(CONFIG_MAPS, "settings", "by-kind", Deletion())
    assert site.told("after") == ("train", "")
    assert len(site.notes) == 2, "gone again is told again"


@pytest.mark.parametrize(
    ("key", "text", "says"),
    [
        ("types", "{", "types is no JSON: "),
        ("types", "{}", "types must be a list of entries"),
        ("kinds", "[]", "types is missing"),
        ("types", "[3]", "types[0] must be an object, not 3"),
        ("types", '[{"priorityName": "low"}]', "types[0].typeName is missing"),
        ("types", '[{"typeName": "Pod", "priorityName": 4}]', "types[0].priorityName must be text"),
        ("types", '[{"typeName": "Pod", "priority": "low"}]', "types[0].priority is not known here"),
        (
            "types",
            '[{"typeName": "Pod", "preemptibility": "no"}]',
            "types[0].preemptibility must be preemptible",
        ),
        ("types", "[1, 2, 3, 4, 5]", "; and 2 more"),
    ],
)
def test_bad_defaults_are_warned_of_once_and_pods_are_grouped_without_them(
    key: str, text: str, says: str
) -> None:
    site = Defaulted()
    site.defaults(text, key=key)
    assert site.told("p") == ("train", "") and site.on("p")[0]
    site.told("another")
    (note,) = site.notes
    assert note.startswith("ConfigMap settings/by-kind: types") and says in note
    events = [one for one in site.store.list(EVENTS).items if one["involvedObject"]["kind"] == "ConfigMap"]
    assert [(one["reason"], one["involvedObject"]["namespace"]) for one in events] == [
        ("DefaultsIgnored", "settings")
    ]
    assert says in events[0]["message"]
    site.defaults('[{"typeName": "Pod", "priorityName": "low"}]')
    assert site.told("mended") == ("low", "")


def test_nothing_but_the_one_config_map_is_asked_for() -> None:
    (*others, last) = PodGrouperController(settings=GrouperSettings(defaults=("settings", "by-kind"))).kinds
    assert tuple(others) == PodGrouperController.kinds == PodGrouperController().kinds
    asked = collection(last, watch="true")
    assert asked == "/api/v1/namespaces/settings/configmaps?watch=true&fieldSelector=metadata.name%3Dby-kind"


def test_the_labels_of_queue_and_node_pool_are_those_that_are_configured() -> None:
    site = Trained(queue_label="team", node_pool_label="pool")
    site.pod("mine", labels={"team": "a", "kai.scheduler/queue": "b"})
    site.pod("pooled", labels={"project": "p", "pool": "fast"})
    site.run(2)
    assert sorted(one["spec"]["queue"] for one in site.groups().values()) == ["a", "p-fast"]
