"""The dashboard in a cluster: what it is started with, and that its account may only read."""

from __future__ import annotations

from typing import Any

import click

from bayplan.assembly.install_settings import JOURNAL, InstallSettings
from bayplan.assembly.manifests import dashboard_objects, manifests
from bayplan.assembly.rbac import DASHBOARD_PATH
from bayplan.cli.commands.run import run
from bayplan.dashboard.access import FRONT_DOOR

Object = dict[str, Any]


def only(kind: str, name: str = "bayplan-dashboard") -> Object:
    found = [one for one in dashboard_objects(InstallSettings()) if one["kind"] == kind]
    (one,) = [one for one in found if one["metadata"]["name"] == name]
    return one


def test_the_dashboard_is_installed_on_demand_and_its_ingress_too() -> None:
    asked: Object = {"dashboard": {"enabled": True}}
    names = [{one["metadata"]["name"] for one in manifests(InstallSettings(values=v))} for v in ({}, asked)]
    assert "bayplan-dashboard" not in names[0] and "bayplan-dashboard" in names[1]
    assert "Ingress" not in {one["kind"] for one in manifests(InstallSettings(values=asked))}
    asked["dashboard"]["ingress"] = {"enabled": True, "host": "pages.example.com"}
    made = [one for one in manifests(InstallSettings(values=asked)) if one["kind"] == "Ingress"]
    assert made[0]["spec"]["rules"][0]["host"] == "pages.example.com"


def test_in_the_replicas_it_reads_their_journal_under_their_account() -> None:
    asked: Object = {"dashboard": {"enabled": True, "deployment": "shared"}}
    made = manifests(InstallSettings(values=asked, dashboard_shared=True))
    (deployment,) = [one for one in made if one["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    context = run.make_context("run", [one for one in container["args"][1:] if "--config" not in one])
    assert context.params["roles"] == {"admission", "scheduler", "webhooks", "dashboard"}
    assert context.params["dashboard_listen"] == "0.0.0.0:7080" and str(context.params["journal"]) == JOURNAL
    assert {"name": "journal", "mountPath": JOURNAL} in container["volumeMounts"]
    (service,) = [
        one
        for one in made
        if one["metadata"]["name"] == "bayplan-dashboard" and "ports" in one.get("spec", {})
    ]
    assert service["spec"]["selector"].items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert service["spec"]["ports"][0]["targetPort"] in {port["name"] for port in container["ports"]}
    (binding,) = [
        one
        for one in made
        if (one["kind"], one["metadata"]["name"]) == ("ClusterRoleBinding", "bayplan-dashboard")
    ]
    assert [one["name"] for one in binding["subjects"]] == ["bayplan"]
    (policy,) = [one for one in made if one["kind"] == "NetworkPolicy"]
    assert {"ports": [{"port": "dashboard", "protocol": "TCP"}]} in policy["spec"]["ingress"]


def test_webhooks_of_their_own_do_not_serve_the_dashboard() -> None:
    made = manifests(
        InstallSettings(separate=True, dashboard_shared=True, values={"dashboard": {"enabled": True}})
    )
    args = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["containers"][0]["args"]
        for one in made
        if one["kind"] == "Deployment"
    }
    assert [name for name, given in args.items() if any("dashboard" in one for one in given)] == ["bayplan"]


def test_the_account_of_the_dashboard_may_only_read_and_ask_who_its_users_are() -> None:
    for rule in only("ClusterRole")["rules"]:
        reviews = set(rule["resources"]) <= {"tokenreviews", "subjectaccessreviews"}
        assert set(rule["verbs"]) <= ({"create"} if reviews else {"list", "watch"}), rule
        assert "*" not in rule["resources"] and "secrets" not in rule["resources"]


def test_the_role_of_users_opens_the_path_that_the_dashboard_reviews() -> None:
    assert DASHBOARD_PATH == FRONT_DOOR
    assert only("ClusterRole", "bayplan-dashboard-user")["rules"][0]["nonResourceURLs"] == [FRONT_DOOR]


def test_the_dashboard_is_started_with_flags_that_run_knows_and_its_ports_meet() -> None:
    pod = only("Deployment")["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    name, *arguments = container["args"]
    assert name == "run"
    flags = [one.replace("/etc/bayplan/configuration.yaml", "") for one in arguments]
    context = run.make_context("run", [one for one in flags if not one.startswith("--config")])
    assert isinstance(context, click.Context) and context.params["roles"] == {"dashboard"}
    service = only("Service")["spec"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] in {port["name"] for port in container["ports"]}
