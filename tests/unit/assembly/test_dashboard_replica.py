"""The dashboard in a cluster: what it is started with, and that its account may only read."""

from __future__ import annotations

from typing import Any

import click

from bayplan.assembly.install_settings import InstallSettings
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
