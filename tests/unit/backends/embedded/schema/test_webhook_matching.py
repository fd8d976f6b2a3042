"""Webhooks of the cluster in memory are asked about those writes that a real API server shows them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bayplan.assembly.in_process_webhooks import configured_hooks
from bayplan.assembly.manifests import NAMESPACE
from bayplan.assembly.webhook_configurations import CONDITIONS, configurations
from bayplan.assembly.webhooks import registry
from bayplan.backends.embedded.api.admission_hooks import Hook, HookResponse, Review
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.schema import cel
from bayplan.backends.embedded.schema.webhook_matching import matching
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.kueue.webhooks.validate import STATUS
from tests.support.api_objects import pod
from tests.unit.backends.embedded.storage.test_store import store_at

PODS = Kind("", "v1", "Pod", "pods")
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
QUEUED = {"kueue.x-k8s.io/queue-name": "q"}
Object = dict[str, Any]

pytestmark = pytest.mark.skipif(not cel.available(), reason="needs the extra cel")


class Asked:
    """A webhook that notes the names of what it is shown."""

    def __init__(self, store: Store, **webhook: Any) -> None:
        self.names: list[str] = []
        self.users: list[str] = []
        store.admission.register(
            Hook(
                "watcher.example.dev",
                self.decide,
                frozenset({("", "pods"), ("", "namespaces")}),
                frozenset({"CREATE", "UPDATE", "DELETE"}),
                matching=matching(webhook),
            )
        )

    def decide(self, review: Review) -> HookResponse:
        self.names.append(review.name)
        self.users.append(review.user)
        return HookResponse()


def condition(expression: str) -> list[Object]:
    return [{"name": "only-some", "expression": expression}]


def test_a_match_condition_decides_which_writes_are_shown() -> None:
    store = store_at()
    labelled = "one != null && has(one.metadata.labels) && 'a' in one.metadata.labels"
    expression = f"[object, oldObject].exists(one, {labelled})"
    asked = Asked(store, matchConditions=condition(expression))
    store.create(PODS, pod("plain"), "default")
    store.create(PODS, pod("labelled", labels={"a": "b"}), "default")
    store.delete(PODS, "default", "plain")
    store.delete(PODS, "default", "labelled")
    assert asked.names == ["labelled", "labelled"]


def test_a_condition_may_use_the_user_and_the_operation() -> None:
    store = store_at()
    expression = "request.operation == 'CREATE' && !request.userInfo.username.startsWith('system:')"
    asked = Asked(store, matchConditions=condition(expression))
    for user in ("system:us", "person"):
        backend = EmbeddedBackend(store, user=user)
        backend.submit([Write(Verb.CREATE, PODS, "default", f"of-{user[-2:]}", pod(f"of-{user[-2:]}"))])
        assert [outcome.message for outcome in backend.outcomes()] == [""]
    assert (asked.names, asked.users) == (["of-on"], ["person"])


@pytest.mark.parametrize(("policy", "refused"), [("Fail", True), ("Ignore", False)])
def test_a_condition_that_cannot_be_evaluated_counts_by_the_failure_policy(
    policy: str, refused: bool
) -> None:
    store = store_at()
    asked = Asked(store, matchConditions=condition("object.spec.nothing.here == 'a'"), failurePolicy=policy)
    if refused:
        with pytest.raises(StatusError, match='pods "p" is forbidden: match condition "only-some"') as told:
            store.create(PODS, pod("p"), "default")
        assert told.value.code == 403
    else:
        store.create(PODS, pod("p"), "default")
    assert asked.names == []


def test_a_condition_that_is_false_counts_before_one_that_fails() -> None:
    store = store_at()
    wrong = {"name": "wrong", "expression": "object.spec.nothing.here == 'a'"}
    asked = Asked(store, matchConditions=[wrong, {"name": "no", "expression": "false"}], failurePolicy="Fail")
    store.create(PODS, pod("p"), "default")
    assert asked.names == []


def test_selectors_of_namespace_and_object_count() -> None:
    store = store_at()
    for name, labels in (("in", {"team": "a"}), ("out", {})):
        store.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})
    asked = Asked(
        store,
        namespaceSelector={"matchLabels": {"team": "a"}},
        objectSelector={"matchExpressions": [{"key": "skip", "operator": "DoesNotExist"}]},
    )
    store.create(PODS, pod("one"), "in")
    store.create(PODS, pod("two"), "out")
    store.create(PODS, pod("three", labels={"skip": ""}), "in")
    store.create(NAMESPACES, {"metadata": {"name": "late", "labels": {"team": "a"}}})
    assert asked.names == ["one", "late"]


def test_a_webhook_that_fails_counts_by_its_failure_policy() -> None:
    def broken(review: Review) -> HookResponse:
        raise KeyError("bug")

    resources, operations = frozenset({("", "pods")}), frozenset({"CREATE"})
    for policy in ("Ignore", "Fail"):
        store = store_at()
        found = matching({"failurePolicy": policy})
        store.admission.register(Hook("b.example.dev", broken, resources, operations, matching=found))
        if policy == "Ignore":
            store.create(PODS, pod("p"), "default")
        else:
            with pytest.raises(
                StatusError, match=r'failed calling webhook "b\.example\.dev": KeyError'
            ) as told:
                store.create(PODS, pod("p"), "default")
            assert told.value.code == 500


def test_our_own_webhooks_see_queued_pods_and_no_others() -> None:
    store = store_at()
    seen: list[str] = []
    for hook in configured_hooks(registry()):
        if ("", "pods") in hook.resources:
            store.admission.register(hook)

    class Spy:
        def __init__(self, hook: Hook) -> None:
            self.hook = hook

        def __call__(self, review: Review) -> HookResponse:
            seen.append(f"{self.hook.name.partition('.')[0]}:{review.name}")
            return self.hook.decide(review)

    store.admission.hooks = [
        Hook(one.name, Spy(one), one.resources, one.operations, one.mutating, one.matching)
        for one in store.admission.hooks
    ]
    store.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    owned = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1", "controller": True}]
    store.create(PODS, pod("owned", ownerReferences=owned), "default")
    assert seen == ["default-queue:owned"], "its owner may be invented"
    store.create(PODS, pod("spared"), NAMESPACE)
    assert seen == ["default-queue:owned"]
    store.create(PODS, pod("plain"), "default")
    assert {one for one in seen if one.endswith(":plain")} == {"default-queue:plain"}
    store.create(PODS, pod("queued", labels=QUEUED), "default")
    assert {one for one in seen if one.endswith(":queued")} == {"pods:queued"}


def test_without_the_library_every_write_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bayplan.backends.embedded.schema.webhook_matching.environment", lambda variables: None
    )
    store = store_at()
    asked = Asked(store, matchConditions=condition("false"))
    store.create(PODS, pod("p"), "default")
    assert asked.names == ["p"]


WORKLOAD = ("kueue.x-k8s.io", "v1beta2", "workloads")
QUOTA = {"type": "QuotaReserved", "status": "True"}
FINISHED = {"type": "Finished", "status": "True"}


@pytest.mark.parametrize(
    ("before", "after", "checked"),
    [
        ({"conditions": [QUOTA]}, {"conditions": [QUOTA, FINISHED]}, False),
        (
            {"conditions": [QUOTA], "admission": {"a": 1}},
            {"conditions": [QUOTA], "admission": {"a": 2}},
            True,
        ),
        ({"conditions": [QUOTA], "admission": {"a": 1}}, {"conditions": [QUOTA]}, True),
        ({"conditions": []}, {"conditions": [QUOTA]}, True),
        ({}, {"conditions": [QUOTA]}, True),
        ({"conditions": [QUOTA]}, {"conditions": [{**QUOTA, "status": "False"}]}, True),
        ({"conditions": []}, {"conditions": [], "reclaimablePods": [{"name": "main", "count": 1}]}, True),
        ({"conditions": []}, {"conditions": [], "clusterName": "far"}, True),
        (None, {"conditions": [FINISHED]}, True),
    ],
)
def test_the_status_of_a_workload_is_checked_if_something_changes_that_is_checked(
    before: Object | None, after: Object, checked: bool
) -> None:
    def made(status: Object | None) -> Object:
        return {"metadata": {"name": "w"}} | ({"status": status} if status is not None else {})

    review = Review("UPDATE", *WORKLOAD, "status", "ml", "w", made(after), made(before), user="somebody")
    found = matching({"matchConditions": condition(CONDITIONS[STATUS]), "failurePolicy": "Fail"})
    assert found.concerns(review, lambda namespace: {}) is checked
    ours = replace(review, user="system:serviceaccount:NAMESPACE:bayplan-admission")
    assert not found.concerns(ours, lambda namespace: {})


def of_pods(spec: Any) -> Object:
    return {"podSets": [{"name": "main", "template": {"spec": spec}}]}


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        (of_pods({"containers": [{"name": "a"}]}), False),
        (of_pods({"containers": [{"name": "a", "ports": [{"containerPort": 1}]}]}), True),
        (of_pods({"containers": [{"name": "a"}], "initContainers": [{"name": "b", "ports": []}]}), True),
        (of_pods("none"), False),
        ({"podSets": [{"name": "main"}]}, False),
        ({"podSets": "many"}, False),
        ({}, False),
        ("odd", False),
    ],
)
def test_a_new_workload_is_defaulted_if_it_has_what_its_schema_does_not_default(
    spec: Any, shown: bool
) -> None:
    mutating, _ = configurations(NAMESPACE)
    [hook] = [one for one in mutating["webhooks"] if one["rules"][0]["resources"] == ["workloads"]]
    del hook["namespaceSelector"]
    new = {"metadata": {"name": "w"}, "spec": spec}
    review = Review("CREATE", *WORKLOAD, "", "ml", "w", new, None)
    assert matching(hook).concerns(review, lambda namespace: {}) is shown
