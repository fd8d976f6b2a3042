"""`bayplan defragment --apply` in the cluster of `bayplan up`: moves are made, and nothing is left behind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bayplan.assembly.local_cluster import ClusterShape, LocalCluster
from bayplan.backends.fake_controllers.manifests import RACK, job
from bayplan.cli.commands.main import main
from bayplan.cli.live.state import ClusterTarget
from bayplan.cli.planning.defragmentation import FENCE, RoomOptions, defragmentation, read_fragmented
from bayplan.cli.running.defragment_standing import StandingDefragmentation
from bayplan.cli.running.defragment_steps import PlanExecution, StepSettings
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.runtime.core.clock import SystemClock
from bayplan.scheduling.defragment.cost import CostRules
from bayplan.scheduling.defragment.policy import DefragmentPolicy
from bayplan.scheduling.defragment.problem import DefragmentPlan
from tests.support.defragment_site import BUDGETS

PATIENCE_SECONDS = 60.0
RACKFUL = "gang of 8 gpu in one rack"
Object = dict[str, Any]


class Hall:
    """Three racks of two hosts with four GPUs, and jobs where the test wants them."""

    def __init__(self, folder: Path) -> None:
        self.cluster = LocalCluster(ClusterShape(1, 3, 2, 4), SystemClock())
        self.kubeconfig = folder / "kubeconfig"

    def run(self, *options: str) -> Result:
        return CliRunner().invoke(main, ["defragment", "--kubeconfig", str(self.kubeconfig), *options])

    def pods(self, name: str = "") -> list[Object]:
        with self.cluster.lock:
            found = self.cluster.store.list(PODS_KIND, "default").items
        return [one for one in found if one["metadata"]["name"].startswith(name)]

    def hosts(self, name: str) -> list[str]:
        """The hosts of the running pods of a job."""
        running = [one for one in self.pods(f"{name}-") if one["status"].get("phase") == "Running"]
        return sorted(one["spec"]["nodeName"] for one in running)

    def nodes(self) -> list[Object]:
        with self.cluster.lock:
            return self.cluster.store.list(NODES).items

    def start_on(self, name: str, hosts: list[str], gpus: int, **spec: Any) -> None:
        """Start a job while all other hosts are cordoned."""
        self.cordon({one["metadata"]["name"] for one in self.nodes()} - set(hosts))
        made = job(name, len(hosts), gpus, {}, 3600)
        made["spec"] |= spec
        self.cluster.submit(made)
        until(lambda: len(self.hosts(name)) == len(hosts))
        self.cordon(set())

    def cordon(self, names: set[str]) -> None:
        with self.cluster.lock:
            for one in self.nodes():
                name = one["metadata"]["name"]
                self.cluster.store.patch(NODES, "", name, {"spec": {"unschedulable": name in names or None}})


def until(answer: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := answer():
            return found
        time.sleep(0.1)
    raise AssertionError("nothing came")


@pytest.fixture
def hall(tmp_path: Path) -> Iterator[Hall]:
    made = Hall(tmp_path)
    made.cluster.start(made.kubeconfig)
    try:
        yield made
    finally:
        made.cluster.stop()
    assert made.cluster.error is None


def test_the_moves_are_made_and_nothing_is_left_behind(hall: Hall) -> None:
    hall.start_on("one", ["b01-r01-h01"], 4, backoffLimit=0)
    hall.start_on("two", ["b01-r02-h01"], 4, backoffLimit=0)
    hall.start_on("pair", ["b01-r03-h01", "b01-r03-h02"], 1, backoffLimit=0)
    plan = json.loads(hall.run("--for", RACKFUL, "-o", "json").stdout)
    assert len(plan["moves"]) == 1
    result = hall.run("--for", RACKFUL, "--apply", "--timeout", "30s")
    assert result.exit_code == 0, result.output
    assert "fits now" in result.stderr
    again = json.loads(hall.run("--for", RACKFUL, "-o", "json").stdout)
    assert (again["fits"], again["moves"], again["slotsBefore"]) == (True, [], 1)
    assert sum(len(hall.hosts(name)) for name in ("one", "two", "pair")) == 4
    assert left_behind(hall) == []


def execution(hall: Hall) -> PlanExecution:
    target = ClusterTarget(hall.kubeconfig, None, None, SystemClock())
    return PlanExecution(target, RoomOptions(RACKFUL), StepSettings("test", 5.0), lambda line: None)


def planned(hall: Hall) -> DefragmentPlan:
    with ClusterTarget(hall.kubeconfig, None, None, SystemClock()).live(quiet=True) as live:
        found = defragmentation(read_fragmented(live, RoomOptions(RACKFUL))).found
    assert isinstance(found, DefragmentPlan) and found.moves
    return found


def test_the_new_place_is_held_and_the_freed_nodes_are_tainted_while_a_gang_is_away(hall: Hall) -> None:
    for rack in (1, 2, 3):
        hall.start_on(f"job{rack}", [f"b01-r0{rack}-h01"], 4)
    plan, seen = planned(hall), list[tuple[list[str], set[str]]]()

    def look(line: str) -> None:
        if line.endswith(": evicted"):
            held = [one["spec"]["nodeName"] for one in hall.pods("hold-")]
            fenced = {
                one["metadata"]["name"]
                for one in hall.nodes()
                if any(taint["key"] == FENCE for taint in one["spec"].get("taints") or ())
            }
            seen.append((held, fenced))

    made = execution(hall)
    made.say = look
    assert made.run(plan) == ""
    assert seen == [(list(plan.moves[0].nodes), set(plan.nodes))]
    assert left_behind(hall) == []


def test_it_stops_before_anything_is_evicted_if_the_new_place_was_taken(hall: Hall) -> None:
    for rack in (1, 2, 3):
        hall.start_on(f"job{rack}", [f"b01-r0{rack}-h01"], 4)
    before, plan = hall.pods(), planned(hall)
    name = plan.moves[0].gang.ref.name
    hall.start_on("thief", list(plan.moves[0].nodes), 4)
    stopped = execution(hall).run(plan)
    assert stopped.startswith(f"stopped after 0 of 1 move: Job default/{name} has no room in "), stopped
    assert {one["metadata"]["uid"] for one in before} < {one["metadata"]["uid"] for one in hall.pods()}
    assert left_behind(hall) == []


def test_it_stops_if_a_budget_came_since_the_plan_was_made(hall: Hall) -> None:
    for rack in (1, 2, 3):
        hall.start_on(f"job{rack}", [f"b01-r0{rack}-h01"], 4)
    before, plan = {one["metadata"]["uid"] for one in hall.pods()}, planned(hall)
    name = plan.moves[0].gang.ref.name
    with hall.cluster.lock:
        hall.cluster.store.create(BUDGETS, budget("strict", name), "default")
    stopped = execution(hall).run(plan)
    assert stopped == (
        f"stopped after 0 of 1 move: Job default/{name} cannot move any more:"
        " PodDisruptionBudget default/strict allows 0 of its 1 pods to be evicted at once"
    )
    assert {one["metadata"]["uid"] for one in hall.pods()} == before
    assert left_behind(hall) == []


def test_a_gang_that_does_not_come_back_ends_the_run_and_is_started_again(hall: Hall) -> None:
    """While it is stopped, all nodes are cordoned: it has no place in time."""
    for rack in (1, 2, 3):
        hall.start_on(f"job{rack}", [f"b01-r0{rack}-h01"], 4)
    plan = planned(hall)
    made = execution(hall)
    made.say = lambda line: (
        hall.cordon({one["metadata"]["name"] for one in hall.nodes()}) if "evicted" in line else None
    )
    stopped = made.run(plan)
    name = plan.moves[0].gang.ref.name
    assert stopped == f"stopped after 0 of 1 move: waited 5 s in vain until Job default/{name} runs again"
    assert left_behind(hall) == []
    hall.cordon(set())
    until(lambda: len(hall.hosts(name)) == 1)


def test_a_standing_defragmentation_makes_room_for_a_gang_that_waits_and_keeps_to_its_budget(
    hall: Hall,
) -> None:
    for rack in (1, 2, 3):
        hall.start_on(f"job{rack}", [f"b01-r0{rack}-h01"], 4)
    hall.cluster.submit(job("wide", 2, 4, {"kueue.x-k8s.io/podset-required-topology": RACK}, 3600))
    until(lambda: len(hall.pods("wide-")) == 2)
    told: list[str] = []

    def standing(policy: DefragmentPolicy) -> StandingDefragmentation:
        target = ClusterTarget(hall.kubeconfig, None, None, SystemClock())
        rules = CostRules(restart=0, assumed_checkpoint=0)
        return StandingDefragmentation(target, policy, rules, StepSettings("test", 20.0), told.append)

    patient = standing(DefragmentPolicy(waits=3600.0))
    assert patient.round() is False and told == []
    frugal = standing(DefragmentPolicy(waits=0.0, moves_per_hour=0))
    assert frugal.round() is False and told == []
    time.sleep(1.1)  # times of the API are in seconds; a gang that has not waited is worth nothing
    eager = standing(DefragmentPolicy(waits=0.0))
    assert eager.round() is True, told
    assert told[-1] == "default/wide: there is room now"
    until(lambda: len(hall.hosts("wide")) == 2)
    assert eager.round() is False
    assert left_behind(hall) == []


def budget(name: str, job: str) -> Object:
    selector = {"matchLabels": {"job-name": job}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": selector},
    }


def left_behind(hall: Hall) -> list[Any]:
    """Taints and pods of the command."""
    taints = [taint for one in hall.nodes() for taint in one["spec"].get("taints") or ()]
    fences = [taint for taint in taints if taint["key"] == FENCE]
    return [*fences, *(one["metadata"]["name"] for one in hall.pods("hold-"))]
