"""Limits that come with an installation: policies, the network, and webhooks on their own."""

from __future__ import annotations

from bayplan.cli import manifests
from bayplan.cli.manifests import Settings
from bayplan.cli.rights import ROLES
from tests.unit.test_install import ALL, container_of, only, printed


def test_policies_come_with_the_roles_that_they_are_about() -> None:
    def names(*roles: str) -> set[str]:
        objects = manifests.manifests(Settings(roles=roles))
        bound = {one["metadata"]["name"] for one in objects if one["kind"].endswith("PolicyBinding")}
        assert bound == {
            one["metadata"]["name"] for one in objects if one["kind"] == "ValidatingAdmissionPolicy"
        }
        return bound

    assert names("scheduler") == {"bayplan-account-pods"}
    assert names("admission") == {"bayplan-account-pods", "bayplan-account-jobs", "bayplan-protected-pods"}


def test_every_kind_that_we_start_has_a_policy_for_our_account() -> None:
    policy = only(manifests.manifests(ALL), "ValidatingAdmissionPolicy", "bayplan-account-jobs")["spec"]
    ruled = {
        (rule["apiGroups"][0], name)
        for rule in policy["matchConstraints"]["resourceRules"]
        for name in rule["resources"]
    }
    patched = {
        (right.group, name)
        for right in ROLES["admission"].everywhere
        if "patch" in right.verbs
        for name in right.resources
    }
    ours = {"kueue.x-k8s.io", ""}
    assert ruled == {one for one in patched if one[0] not in ours and "/" not in one[1]}
    assert len(policy["validations"]) == len(ruled)


def test_trusted_groups_and_the_namespaces_that_read_metrics_can_be_chosen() -> None:
    objects = printed("--trusted-group", "ops", "--metrics-from", "monitoring")
    policy = only(objects, "ValidatingAdmissionPolicy", "bayplan-protected-pods")
    assert '["ops"]' in policy["spec"]["matchConditions"][1]["expression"]
    network = only(objects, "NetworkPolicy")["spec"]["ingress"]
    (peer,) = network[0]["from"]
    assert peer["namespaceSelector"]["matchExpressions"][0]["values"] == ["monitoring"]
    assert "from" not in network[1], "an API server comes from anywhere"
    assert "NetworkPolicy" not in {one["kind"] for one in printed("--no-network-policy")}


def test_separate_webhooks_have_an_account_that_may_do_only_what_webhooks_do() -> None:
    objects = printed("--webhooks-separate")
    roles = {
        one["metadata"]["name"]: container_of(one)["args"][1]
        for one in objects
        if one["kind"] == "Deployment"
    }
    assert roles == {"bayplan": "--roles=admission,scheduler", "bayplan-webhooks": "--roles=webhooks"}
    for one in objects:
        if one["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            account = one["subjects"][0]["name"]
            about_webhooks = one["roleRef"]["name"] == "bayplan-webhooks"
            assert account == ("bayplan-webhooks" if about_webhooks else "bayplan")
    for name, account in (("bayplan-webhooks", "bayplan-webhooks"), ("bayplan-metrics", "bayplan")):
        chosen = only(objects, "Service", name)["spec"]["selector"]
        assert chosen == {"app.kubernetes.io/name": account}
    alone = printed("--webhooks-separate", "--roles", "webhooks")
    assert [one["metadata"]["name"] for one in alone if one["kind"] == "Deployment"] == ["bayplan"]
