"""A configuration at work: the roles that run decide by it, and so do the commands that look on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.cli.commands.main import main
from bayplan.cli.config.options import configure
from bayplan.cli.running.role_controllers import controllers_for
from bayplan.configuration.settings import DEFAULTS, EMPTY, Settings
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.dialects.kueue.names import api_kinds
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.loop import Loop
from tests.support.queued_cluster import (
    GPU,
    NOW,
    QueuedCluster,
    admitted,
    furnish,
    queued_cluster,
    queued_workload,
    quota,
    ruled,
)
from tests.unit.runtime.controllers.admission.test_controller import Silent

FAIR = f"{EMPTY}scheduling: {{fairSharing: {{enabled: true}}}}\n"
FAIR_IN_KUEUE = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
clientConnection: {qps: 50}
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
"""
EXAMPLES = Path(__file__).parents[4] / "examples" / "01-place"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[QueuedCluster]:
    """Room to borrow for one of two gangs: the older's queue borrows already, the newer's does not."""
    with queued_cluster(tmp_path) as made:
        furnish(made)
        for name in ("left", "right"):
            groups = {"resourceGroups": [quota("a100", 8)]}
            made.store.patch(api_kinds.CLUSTER_QUEUES, "", f"{name}-queue", {"spec": groups})
        shared = {"cohortName": "team", "namespaceSelector": {}, "resourceGroups": [quota("a100", 8)]}
        made.put(*ruled(api_kinds.CLUSTER_QUEUES, "spare-queue", shared))
        for name, queue, hosts in (
            ("greedy", "left", {"h1": 1, "h2": 1, "h3": 1}),
            ("modest", "right", {"h4": 1, "h5": 1}),
        ):
            usage = {"cpu": str(8 * len(hosts)), GPU: str(4 * len(hosts))}
            made.submit(
                queued_workload(name, len(hosts), 4, queue), admitted(f"{queue}-queue", "a100", usage, hosts)
            )
        made.submit(queued_workload("older", 1, 4, "left"))
        made.store.now = lambda: NOW - 300
        made.submit(queued_workload("newer", 1, 4, "right"))
        yield made


def written(folder: Path, text: str) -> str:
    path = folder / "configuration.yaml"
    path.write_text(text)
    return str(path)


def first_admitted(cluster: QueuedCluster, settings: Settings) -> list[str]:
    """Whom the role that `bayplan run` would play admits."""
    played = controllers_for(frozenset(("admission",)), settings=settings)
    loop = Loop(
        EmbeddedBackend(cluster.store), [role for role in played if role.name == "admission"], Silent()
    )
    for _ in range(10):
        loop.step(NOW)
    found = {}
    for name in ("older", "newer"):
        status = cluster.store.get(api_kinds.WORKLOADS, "ml", name).get("status") or {}
        found[name] = "admission" in status
    return [name for name, there in found.items() if there]


def test_without_fair_sharing_the_older_gang_goes_first(cluster: QueuedCluster) -> None:
    assert first_admitted(cluster, DEFAULTS) == ["older"]


@pytest.mark.parametrize("text", [FAIR, FAIR_IN_KUEUE], ids=["ours", "kueue"])
def test_with_fair_sharing_the_queue_with_the_smaller_share_goes_first(
    cluster: QueuedCluster, tmp_path: Path, text: str
) -> None:
    assert first_admitted(cluster, configure(written(tmp_path, text)).settings) == ["newer"]


def waiting(result: Result) -> str:
    """Which gang is not the next."""
    assert result.exit_code == 0, result.output
    found = {one["name"]: one["reason"] for one in json.loads(result.stdout)}
    return ",".join(name for name in ("older", "newer") if found[name] == "WaitingForQuota")


def test_commands_that_look_on_decide_alike(cluster: QueuedCluster, tmp_path: Path) -> None:
    listed = ("list", "gangs", "-n", "ml", "-o", "json")
    assert waiting(cluster.run(*listed)) == "newer"
    fair = cluster.run(*listed, "--config", written(tmp_path, FAIR))
    assert waiting(fair) == "older" and fair.stderr == ""
    notice = cluster.run(*listed, "--config", written(tmp_path, FAIR_IN_KUEUE)).stderr
    assert notice == f"{tmp_path / 'configuration.yaml'}: not used by Bayplan: clientConnection\n"


def test_place_takes_strategies_from_a_configuration(tmp_path: Path) -> None:
    everywhere = "{required: most_free, preferred: most_free, unconstrained: most_free}"
    config = written(tmp_path, f"{EMPTY}scheduling: {{strategies: {everywhere}}}\n")
    files = ["-f", str(EXAMPLES / "cluster.yaml"), "-f", str(EXAMPLES / "gangs.yaml"), "-o", "json"]

    def placed(*more: str) -> str:
        result = CliRunner().invoke(main, ["place", *files, *more])
        assert result.exit_code == 0
        return result.stdout

    assert placed("--config", config) == placed("--strategy", "most_free") != placed()
    assert placed("--config", config, "--strategy", "least_free") == placed("--strategy", "least_free")


@pytest.mark.parametrize(
    "command",
    [
        ["run"],
        ["install"],
        ["up"],
        ["place", "-f", "x"],
        ["plan", "-f", "x"],
        ["list", "gangs"],
        ["list", "queues"],
        ["explain", "ml/x"],
        ["replay", "."],
    ],
    ids=" ".join,
)
def test_a_bad_configuration_stops_every_command_before_it_begins(command: list[str], tmp_path: Path) -> None:
    config = written(tmp_path, f"{EMPTY}scheduling: {{reserve: maybe, fairsharing: {{}}}}\n")
    result = CliRunner().invoke(main, [*command, "--config", config])
    assert result.exit_code == 2 and result.stdout == ""
    where = f"{config}: line 1, Configuration"
    assert result.stderr.splitlines() == [
        f"{where}: scheduling.fairsharing: is not a known key; did you mean fairSharing?",
        f'{where}: scheduling.reserve: "maybe": must be true or false, not text',
        "2 problems in the configuration: none of it is used",
    ]


def test_roles_have_what_the_configuration_says(tmp_path: Path) -> None:
    text = f"{EMPTY}scheduling: {{reserve: true}}\nungating: {{batchSeconds: 7}}\n"
    text += "nodes: {notReadySeconds: 9}\njobs: {waitForPodsReady: {enabled: true, timeoutSeconds: 11}}\n"
    settings = configure(written(tmp_path, text)).settings
    played = {
        role.name: role for role in controllers_for(frozenset(("admission", "scheduler")), settings=settings)
    }
    assert played["admission"].profile.reserve and played["scheduler"].profiles["bayplan"].reserve  # type: ignore[attr-defined]
    ungating = played["ungating"]
    assert isinstance(ungating, UngatingController) and ungating.batch_seconds == 7.0
    health, jobs = played["node_health"], played["jobs"]
    assert isinstance(health, NodeHealthController) and health.rules.not_ready_seconds == 9.0
    assert isinstance(jobs, JobsController) and jobs.context.pods_ready_policy == PodsReadyPolicy(11.0)
