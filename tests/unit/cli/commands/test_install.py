"""What is installed: complete, consistent with what runs, least in rights, and the same as the chart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from bayplan.assembly import crds, manifests, replicas, webhooks
from bayplan.assembly.install_settings import CONFIG_FILE
from bayplan.assembly.manifests import CHOSEN, LABELS, InstallSettings
from bayplan.assembly.rbac import LEASE_NAME, ROLES, RbacRule
from bayplan.cli.commands.install import KINDS, install
from bayplan.cli.commands.run import ROLES as SERVED
from bayplan.cli.commands.run import run
from bayplan.configuration.settings import EMPTY
from bayplan.dialects.kueue.names.annotations import DEFAULT_QUEUE
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController

ROOT = Path(__file__).parents[4]
ALL = InstallSettings(roles=tuple(ROLES))
Object = dict[str, Any]


def printed(*arguments: str) -> list[Object]:
    result = CliRunner().invoke(install, ["-o", "yaml", *arguments])
    assert result.exit_code == 0, result.output
    return [document for document in yaml.load_all(result.output, Loader=yaml.CSafeLoader) if document]


def only(objects: list[Object], kind: str, name: str = "bayplan") -> Object:
    (found,) = [one for one in objects if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def container(objects: list[Object]) -> Object:
    return container_of(only(objects, "Deployment"))


def container_of(deployment: Object) -> Object:
    found: Object = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


# ── the objects ────────────────────────────────────────────────────────────────────────────────────


def test_everything_is_printed_in_an_order_that_can_be_applied() -> None:
    kinds = [one["kind"] for one in printed()]
    assert kinds.index("CustomResourceDefinition") < kinds.index("Namespace") < kinds.index("ServiceAccount")
    assert {
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "PodDisruptionBudget",
        "Service",
    } < set(kinds)
    assert "ValidatingWebhookConfiguration" in kinds
    alone = [one["kind"] for one in printed("--roles", "scheduler")]
    assert "ValidatingWebhookConfiguration" not in alone, "nobody would answer it"
    assert [one["kind"] for one in printed("--no-crds")] == [
        k for k in kinds if k != "CustomResourceDefinition"
    ]


@pytest.mark.parametrize(
    "one", manifests.manifests(ALL), ids=lambda one: f"{one['kind']}-{one['metadata']['name']}"
)
def test_every_object_is_labelled_and_has_its_namespace(one: Object) -> None:
    assert LABELS.items() <= one["metadata"]["labels"].items()
    kind = KINDS[one["kind"]]
    assert one["apiVersion"] == kind.api_version
    assert one["metadata"].get("namespace") == (manifests.NAMESPACE if kind.namespaced else None)


def test_no_two_objects_have_one_name() -> None:
    names = [(one["kind"], one["metadata"]["name"]) for one in manifests.manifests(ALL)]
    assert len(names) == len(set(names))


def test_what_is_chosen_is_used_everywhere() -> None:
    objects = printed("--namespace", "elsewhere", "--image", "registry/x:1", "--replicas", "3")
    assert "bayplan-system" not in yaml.dump_all(objects, Dumper=yaml.CSafeDumper)
    assert container(objects)["image"] == "registry/x:1"
    assert only(objects, "Deployment")["spec"]["replicas"] == 3


def test_replicas_are_started_with_flags_that_run_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert manifests.SERVED_ROLES == SERVED
    monkeypatch.setattr(replicas, "CONFIG_FOLDER", str(tmp_path))
    (tmp_path / CONFIG_FILE).write_text(EMPTY)
    name, *arguments = container(printed("--namespace", "elsewhere", "--roles", "scheduler"))["args"]
    context = run.make_context(name, arguments)
    assert context.params["roles"] == {"scheduler"}
    assert context.params["webhook_listen"].endswith(f":{manifests.WEBHOOK_PORT}")
    assert name == run.name and context.params["namespace"] == "elsewhere"
    assert context.params["listen"].endswith(f":{manifests.HEALTH_PORT}")
    assert context.params["elect"] and not context.params["shadow"]


def test_ports_probes_volumes_and_selectors_meet() -> None:
    objects = manifests.manifests(ALL)
    one = container(objects)
    ports = {port["name"] for port in one["ports"]}
    for name in ("livenessProbe", "readinessProbe"):
        assert one[name]["httpGet"]["port"] in ports
    services = [one for one in objects if one["kind"] == "Service"]
    assert {service["spec"]["ports"][0]["targetPort"] for service in services} == ports
    pod = only(objects, "Deployment")["spec"]["template"]
    assert {volume["name"] for volume in pod["spec"]["volumes"]} == {m["name"] for m in one["volumeMounts"]}
    journal = next(argument for argument in one["args"] if argument.startswith("--journal="))
    assert journal.partition("=")[2] in {mount["mountPath"] for mount in one["volumeMounts"]}
    for service in services:
        assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    for kind in ("Deployment", "PodDisruptionBudget"):
        assert only(objects, kind)["spec"]["selector"]["matchLabels"] == CHOSEN


def test_replicas_have_no_more_than_the_restricted_standard_allows() -> None:
    objects = printed()
    assert only(objects, "Namespace", "bayplan-system")["metadata"]["labels"][
        "pod-security.kubernetes.io/enforce"
    ] == ("restricted")
    pod = only(objects, "Deployment")["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container(objects)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


# ── rights ─────────────────────────────────────────────────────────────────────────────────────────


def every_right() -> list[RbacRule]:
    return [right for rights in ROLES.values() for right in (*rights.clusterwide, *rights.namespaced)]


def test_nothing_is_granted_by_wildcard_or_leads_to_more_rights() -> None:
    for right in every_right():
        assert "*" not in (right.group, *right.resources, *right.verbs), right
        assert right.group != "rbac.authorization.k8s.io", right
        assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(right.verbs), right
        if right.resources == ("secrets",):
            assert right.names and set(right.verbs) == {"get", "update"}, right


def test_the_scheduler_may_watch_what_it_watches_and_write_what_it_writes() -> None:
    rights = ROLES["scheduler"].clusterwide
    granted = {(one.group, name, verb) for one in rights for name in one.resources for verb in one.verbs}
    watched = {
        (kind.group, kind.plural, verb) for kind in SchedulerController.kinds for verb in ("list", "watch")
    }
    written = {("", "pods/binding", "create"), ("", "events", "create"), ("", "pods", "delete")}
    told = ("pods/status", "persistentvolumeclaims", "persistentvolumes")
    written |= {("", one, "patch") for one in told} | {("scheduling.k8s.io", "podgroups/status", "patch")}
    written |= {("scheduling.run.ai", one, "patch") for one in ("podgroups/status", "queues/status")}
    claims = ("resourceclaims", "resourceclaims/status", "resourceclaims/binding")
    written |= {("resource.k8s.io", one, "patch") for one in claims}
    written |= {("resource.k8s.io", "resourceclaims/binding", "update")}
    assert granted == watched | written


def test_the_grouper_may_do_only_what_it_does_and_comes_only_when_it_is_asked_for() -> None:
    rights = ROLES["grouper"].clusterwide
    granted = {(one.group, name, verb) for one in rights for name in one.resources for verb in one.verbs}
    watched = {
        (kind.group, kind.plural, verb) for kind in PodGrouperController.kinds for verb in ("list", "watch")
    }
    written = {("scheduling.run.ai", "podgroups", verb) for verb in ("create", "patch")}
    assert granted == watched | written | {("", "pods", "patch"), ("", "events", "create")}
    assert "bayplan-grouper" not in yaml.dump_all(printed(), Dumper=yaml.CSafeDumper)
    asked = printed("--roles", "scheduler,grouper")
    assert (
        only(asked, "ClusterRole", "bayplan-grouper")
        and "--roles=scheduler,grouper" in container(asked)["args"]
    )


def test_the_grouper_may_read_the_one_config_map_that_is_configured(tmp_path: Path) -> None:
    file = tmp_path / "configuration.yaml"
    file.write_text(f"---\n{EMPTY}grouper: {{defaults: settings/by.kind}}\n")
    objects = printed("--roles", "scheduler,grouper", "--namespace", "here", "--config", str(file))
    role = only(objects, "Role", "bayplan-grouper-defaults")
    assert role["metadata"]["namespace"] == "settings"
    assert role["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": ["by.kind"],
            "verbs": ["list", "watch"],
        }
    ]
    binding = only(objects, "RoleBinding", "bayplan-grouper-defaults")
    assert binding["metadata"]["namespace"] == "settings"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "bayplan", "namespace": "here"}]
    without = printed("--roles", "scheduler", "--config", str(file))
    assert "configmaps" not in yaml.dump_all(
        [one for one in without if one["kind"].endswith("Role")], Dumper=yaml.CSafeDumper
    )


def test_names_in_rights_are_names_of_objects() -> None:
    objects = manifests.manifests(ALL)
    names = {one["metadata"]["name"] for one in objects}
    named = {name for right in every_right() for name in right.names}
    assert named <= names | {DEFAULT_QUEUE}, "the queue is somebody else's"
    assert only(objects, "Role")["rules"][1]["resourceNames"] == [LEASE_NAME]


def test_every_role_is_bound_to_the_account_of_the_replicas() -> None:
    objects = manifests.manifests(ALL)
    account = only(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    bindings = [one for one in objects if one["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert {one["roleRef"]["name"] for one in bindings} == {
        one["metadata"]["name"] for one in objects if one["kind"] in ("Role", "ClusterRole")
    }
    for one in bindings:
        subject = {"kind": "ServiceAccount", "name": account, "namespace": "bayplan-system"}
        assert one["subjects"] == [subject]


# ── webhooks ───────────────────────────────────────────────────────────────────────────────────────


def test_the_api_server_asks_about_what_somebody_looks_at() -> None:
    hooks = only(manifests.manifests(ALL), "ValidatingWebhookConfiguration")["webhooks"]
    asked = {
        (group, resource, operation)
        for hook in hooks
        for rule in hook["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for operation in rule["operations"]
    }
    assert asked == {key for key, found in webhooks.registry().admission.items() if found.validate}
    forgiven = {"scheduling.run.ai", "kai.scheduler"}  # another scheduler may live by the same objects
    for hook in hooks:
        (group,) = hook["rules"][0]["apiGroups"]
        assert hook["sideEffects"] == "None" and hook["timeoutSeconds"] <= 10
        assert hook["failurePolicy"] == ("Ignore" if group in forgiven else "Fail")
        limited = "matchConditions" in hook or "objectSelector" in hook
        assert limited or group in {"kueue.x-k8s.io", *forgiven}, "not everybody's jobs"
        spared = hook["namespaceSelector"]["matchExpressions"][0]
        assert spared["operator"] == "NotIn" and "bayplan-system" in spared["values"]


def test_the_api_server_has_defaults_filled_in() -> None:
    hooks = only(manifests.manifests(ALL), "MutatingWebhookConfiguration")["webhooks"]
    rules = {tuple(hook["rules"][0]["resources"]): hook["rules"][0]["operations"] for hook in hooks}
    assert rules[("workloads",)] == ["CREATE"] and rules[("clusterqueues",)] == ["CREATE"]
    assert {hook["clientConfig"]["service"]["path"] for hook in hooks} == {"/mutate", "/mutate/optional"}


@pytest.mark.parametrize("kind", ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"])
def test_a_webhook_that_must_never_block_is_asked_where_errors_are_allowed_and_not_for_long(
    kind: str,
) -> None:
    for hook in only(manifests.manifests(ALL), kind)["webhooks"]:
        optional = hook["clientConfig"]["service"]["path"].endswith("/optional")
        assert optional == (hook["failurePolicy"] == "Ignore"), hook["name"]
        assert hook["timeoutSeconds"] == (1 if optional else 5), hook["name"]


def test_jobs_without_a_queue_do_not_wait_for_us() -> None:
    hooks = only(manifests.manifests(ALL), "MutatingWebhookConfiguration")["webhooks"]
    about_queues = {hook["name"]: hook for hook in hooks if hook["name"].startswith("default-queue.")}
    assert {"default-queue.jobs.batch.bayplan.dev", "default-queue.pods.core.bayplan.dev"} <= set(
        about_queues
    )
    for hook in about_queues.values():
        assert hook["failurePolicy"] == "Ignore" and hook["rules"][0]["operations"] == ["CREATE"]
    selected = {json.dumps(hook.get("objectSelector")) for hook in about_queues.values()}
    assert len(selected) == 2 and "DoesNotExist" in str(selected), "others are asked about"
    of_segments = about_queues["default-queue.pods.core.bayplan.dev"]
    asked = of_segments["matchConditions"][0]["expression"]
    assert "kai.scheduler/segment-size" in asked and "leaderworkerset.sigs.k8s.io/name" in asked
    assert of_segments["reinvocationPolicy"] == "IfNeeded", "others may number pods after us"
    [defaulted] = [hook for hook in hooks if hook["name"].startswith("workloads.")]
    assert defaulted["failurePolicy"] == "Ignore", "its schema has nearly all defaults"
    about = (*about_queues, defaulted["name"])
    limited = ("matchConditions", "objectSelector")
    others = [hook for hook in hooks if hook["name"] not in about and any(key in hook for key in limited)]
    assert len(others) == len(about_queues) and {hook["failurePolicy"] for hook in others} == {"Fail"}
    names = [hook["name"] for hook in hooks]
    assert len(set(names)) == len(names)


def test_without_webhooks_no_version_is_served_that_needs_them() -> None:
    def served(*roles: str) -> dict[str, list[str]]:
        found = manifests.custom_resources(InstallSettings(roles=roles))
        return {
            one["metadata"]["name"].partition(".")[0]: [
                version["name"] for version in one["spec"]["versions"] if version["served"]
            ]
            for one in found
        }

    alone, asked = served("scheduler"), served("scheduler", "webhooks")
    assert alone["clusterqueues"] == ["v1beta2"] and asked["clusterqueues"] == ["v1beta2", "v1beta1"]
    assert alone["topologies"] == asked["topologies"] == ["v1beta2", "v1beta1"], "the same in both"


def test_workloads_are_converted() -> None:
    change = webhooks.registry().conversion["kueue.x-k8s.io", "Workload"]
    workload = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "spec": {}}
    assert change(workload, "kueue.x-k8s.io/v1beta2")["apiVersion"] == "kueue.x-k8s.io/v1beta2"


def test_definitions_of_several_versions_are_converted_by_our_webhook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {"kind": "Workload", "plural": "workloads"}
    spec = {"group": "kueue.x-k8s.io", "names": names, "versions": [{"name": "v1beta1"}, {"name": "v1beta2"}]}
    made = [
        {"kind": "CustomResourceDefinition", "metadata": {"name": "workloads.kueue.x-k8s.io"}, "spec": spec}
    ]
    monkeypatch.setattr(crds, "definitions", lambda: made)
    monkeypatch.setattr(manifests, "definitions", lambda: made)
    crds.converted.cache_clear()
    try:
        (found,) = manifests.custom_resources(ALL)
        assert found["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["path"] == "/convert"
        (alone,) = manifests.custom_resources(InstallSettings(roles=("scheduler",)))
        assert "conversion" not in alone["spec"], "nobody would answer"
    finally:
        crds.converted.cache_clear()


# ── the command ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--roles", "cook"], "cook is not a role"),
        (["--roles", ","], "name at least one"),
        (["--namespace", "Not_A_Name"], "is not a valid namespace"),
        (["--replicas", "0"], "--replicas"),
        (["-o", "json"], "--output"),
    ],
)
def test_mistakes_are_explained(arguments: list[str], why: str) -> None:
    result = CliRunner().invoke(install, arguments)
    assert result.exit_code == 2 and why in result.output


def test_a_dry_run_without_a_cluster_fails_as_installing_would(tmp_path: Path) -> None:
    given = ["--kubeconfig", str(tmp_path / "none")]
    dry, real = (CliRunner().invoke(install, [*given, *more]) for more in (["--dry-run"], []))
    assert dry.exit_code == real.exit_code == 1 and dry.output == real.output


@pytest.mark.parametrize("image", ["", " ", "a b", "a\nb"])
def test_an_image_without_a_name_is_refused(image: str) -> None:
    result = CliRunner().invoke(install, ["-o", "yaml", "--image", image])
    assert result.exit_code == 2 and "is not a valid image" in result.output


def test_a_configuration_goes_to_the_replicas_as_it_is(tmp_path: Path) -> None:
    path, text = tmp_path / "mine.yaml", f"# why: see the wiki\n{EMPTY}scheduling: {{reserve: true}}\n"
    path.write_text(text)
    objects, before = printed("--config", str(path)), printed()
    assert only(objects, "ConfigMap", "bayplan-configuration")["data"] == {"configuration.yaml": text}
    assert only(before, "ConfigMap", "bayplan-configuration")["data"] == {"configuration.yaml": EMPTY}
    template, pods = (only(some, "Deployment")["spec"]["template"] for some in (objects, before))
    assert template["metadata"]["annotations"] != pods["metadata"]["annotations"], "else nobody restarts"
    (volume,) = [one for one in template["spec"]["volumes"] if one["name"] == "configuration"]
    (mount,) = [one for one in container(objects)["volumeMounts"] if one["name"] == "configuration"]
    assert volume["configMap"]["name"] == "bayplan-configuration" and mount["readOnly"]
    assert f"--config={mount['mountPath']}/configuration.yaml" in container(objects)["args"]


def test_a_bad_configuration_is_not_installed(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(f"{EMPTY}scheduling: {{reserve: maybe, recompute: 3}}\n")
    result = CliRunner().invoke(install, ["-o", "yaml", "--config", str(path)])
    assert result.exit_code == 2 and result.stdout == ""
    assert "scheduling.reserve" in result.stderr and "scheduling.recompute" in result.stderr
    assert result.stderr.endswith("2 problems in the configuration: none of it is used\n")


def test_without_a_cluster_there_is_one_clear_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(install, ["--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 1 and result.output.startswith("Error: ") and result.output.count("\n") == 1
