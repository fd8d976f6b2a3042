"""Limits that come with an installation: policies, the network, and webhooks on their own."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from bayplan.assembly import manifests
from bayplan.assembly.manifests import InstallSettings
from bayplan.assembly.rbac import ROLES
from bayplan.cli.commands.install import install
from tests.unit.cli.commands.test_install import ALL, container_of, only, printed


def test_policies_come_with_the_roles_that_they_are_about() -> None:
    def names(*roles: str) -> set[str]:
        objects = manifests.manifests(InstallSettings(roles=roles))
        bound = {one["metadata"]["name"] for one in objects if one["kind"].endswith("PolicyBinding")}
        assert bound == {
            one["metadata"]["name"] for one in objects if one["kind"] == "ValidatingAdmissionPolicy"
        }
        return bound

    always = {"bayplan-pods", "bayplan-account-jobs"}
    assert names("scheduler") == names("admission") == always
    assert names("scheduler", "defragment") == {*always, "bayplan-account-moves"}


def test_users_may_change_gates_of_pods_unless_admission_relies_on_them() -> None:
    def checks(*roles: str) -> list[str]:
        policy = only(
            manifests.manifests(InstallSettings(roles=roles)), "ValidatingAdmissionPolicy", "bayplan-pods"
        )
        return [one["message"] for one in policy["spec"]["validations"]]

    of_account = checks("scheduler")
    assert all(one.startswith("bayplan may change") for one in of_account)
    of_users = checks("scheduler", "admission")[len(of_account) :]
    assert len(of_users) == 3 and of_users[0].startswith(
        "a gate kueue.x-k8s.io/* of a pod can only be removed"
    )


def test_every_kind_that_we_start_has_a_policy_for_our_account() -> None:
    policy = only(manifests.manifests(ALL), "ValidatingAdmissionPolicy", "bayplan-account-jobs")["spec"]
    ruled = {
        (rule["apiGroups"][0], name)
        for rule in policy["matchConstraints"]["resourceRules"]
        for name in rule["resources"]
    }
    patched = {
        (right.group, name)
        for right in ROLES["admission"].clusterwide
        if "patch" in right.verbs
        for name in right.resources
    }
    ours = {"kueue.x-k8s.io", ""}
    assert ruled == {one for one in patched if one[0] not in ours and not one[1].endswith("/finalizers")}
    assert len(policy["validations"]) == len(ruled)


def test_trusted_groups_and_the_namespaces_that_read_metrics_can_be_chosen() -> None:
    objects = printed("--trusted-group", "ops", "--metrics-from", "monitoring")
    policy = only(objects, "ValidatingAdmissionPolicy", "bayplan-pods")
    (condition,) = policy["spec"]["matchConditions"]
    assert "variables." not in condition["expression"], "match conditions know none"
    of_users = [one for one in policy["spec"]["validations"] if not one["message"].startswith("bayplan may")]
    assert of_users and all('["ops"]' in one["expression"] for one in of_users)
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


def test_metrics_are_secured_only_on_demand_and_then_no_longer_served_in_plain_text() -> None:
    plain = printed("--webhooks-separate")
    assert "tokenreviews" not in str(plain) and "--metrics-listen" not in str(plain)
    objects = printed("--webhooks-separate", "--metrics-secure", "--metrics-from", "monitoring")
    for account in ("bayplan", "bayplan-webhooks"):
        replica = container_of(only(objects, "Deployment", account))
        assert "--metrics-listen=0.0.0.0:8443" in replica["args"]
        assert {"name": "metrics", "containerPort": 8443} in replica["ports"]
        (port,) = only(objects, "Service", f"{account}-metrics")["spec"]["ports"]
        assert port == {"name": "metrics", "port": 8443, "targetPort": "metrics"}
        ingress = only(objects, "NetworkPolicy", account)["spec"]["ingress"][0]
        assert ingress["ports"][0]["port"] == "metrics" and ingress["from"][0]["namespaceSelector"]
        asks = only(objects, "ClusterRole", f"{account}-metrics")["rules"]
        assert [(rule["resources"], rule["verbs"]) for rule in asks] == [
            (["tokenreviews"], ["create"]),
            (["subjectaccessreviews"], ["create"]),
        ]
        bound = only(objects, "ClusterRoleBinding", f"{account}-metrics")
        assert bound["subjects"][0]["name"] == account and bound["roleRef"]["name"] == f"{account}-metrics"
    reader = only(objects, "ClusterRole", "bayplan-metrics-reader")
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def test_the_certificate_for_metrics_comes_from_a_secret_if_one_is_named() -> None:
    deployment = only(printed("--metrics-secure", "--metrics-certificate", "tls.prod"), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (volume,) = [one for one in pod["volumes"] if "secret" in one]
    assert volume["secret"] == {"secretName": "tls.prod"}
    (mount,) = [one for one in container_of(deployment)["volumeMounts"] if one["name"] == volume["name"]]
    assert mount["readOnly"]
    for option, file in (("cert", "tls.crt"), ("key", "tls.key")):
        assert f"--metrics-{option}-file={mount['mountPath']}/{file}" in container_of(deployment)["args"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--metrics-certificate", "tls"), "--metrics-certificate is for --metrics-secure"),
        (("--metrics-secure", "--metrics-certificate", "Not a name"), "is not a valid name of a Secret"),
    ],
)
def test_a_certificate_for_metrics_that_cannot_be_used_is_refused(
    options: tuple[str, ...], said: str
) -> None:
    result = CliRunner().invoke(install, ["-o", "yaml", *options])
    assert result.exit_code == 2 and said in result.output
