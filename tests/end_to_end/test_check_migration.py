"""`bayplan check-migration` reads a real control plane with objects of other schedulers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from bayplan.assembly.manifests import InstallSettings, custom_resources
from bayplan.cli.commands.main import main
from tests.end_to_end.objects import eventually, namespace
from tests.support.migrating_cluster import EXPECTED, foreign_objects, volcano_definition

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

NAMESPACES = ("ml", "kueue-system")


@pytest.fixture
def mixed(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with queues and jobs of several systems; without ours running, as before a migration."""
    definitions = [*custom_resources(InstallSettings(roles=("scheduler", "admission"))), volcano_definition()]
    cluster.apply(*definitions)
    eventually(
        lambda: (
            {"queues.scheduling.volcano.sh", "clusterqueues.kueue.x-k8s.io"}
            <= set(cluster.kubectl("api-resources", "-o", "name").split())
        ),
        "the definitions are served",
    )
    cluster.apply(*(namespace(name) for name in NAMESPACES))
    objects = [obj for _, obj in foreign_objects()]
    cluster.apply(*objects)
    yield cluster
    for kind, obj in foreign_objects():
        meta = obj["metadata"]
        place = ("-n", meta["namespace"]) if meta.get("namespace") else ()
        name = f"{kind.plural}.{kind.group}" if kind.group else kind.plural
        cluster.kubectl("delete", name, meta["name"], *place, "--wait=false")
    cluster.kubectl("delete", "crd", volcano_definition()["metadata"]["name"])
    cluster.kubectl("delete", "namespace", *NAMESPACES, "--wait=false")


def test_each_object_of_a_real_cluster_is_judged(mixed: Cluster) -> None:
    arguments = ["check-migration", "--kubeconfig", str(mixed.kubeconfig), "-o", "json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 3, result.output
    found = json.loads(result.stdout)
    judged = {(one["kind"], one["name"]): (one["family"], one["carries"]) for one in found["objects"]}
    assert {key: judged.get(key) for key in EXPECTED} == EXPECTED
    text = CliRunner().invoke(main, arguments[:-2]).stdout
    assert "Volcano: 2 objects (0 same, 0 differently, 2 not at all); see docs/migrate/volcano.md" in text
