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
from bayplan.cli.planning.defragmentation import RoomOptions, defragmentation, read_fragmented
from bayplan.cli.running.defragment_standing import DefragmentSearch, StandingDefragmentation
from bayplan.cli.running.defragment_steps import PlanExecution, StepSettings
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.dialects.kube.encode.binding import EVENTS
from bayplan.dialects.kube.encode.move_marks import PLAN, UNTIL
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.runtime.core.clock import SystemClock
from bayplan.scheduling.defragment.cost import CostRules
from bayplan.scheduling.defragment.policy import DefragmentPolicy
from bayplan.scheduling.defragment.problem import DefragmentPlan
from tests.support.defragment_site import BUDGETS, JOBS

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

    def start_on(self, name: str, hosts: list[str], gpus: int, *, movable: bool = True, **spec: Any) -> None:
        """Start a job while all other hosts are cordoned."""
        self.cordon({one["metadata"]["name"] for one in self.nodes()} - set(hosts))
        made = job(name, len(hosts), gpus, {}, 3600)
        made["spec"] |= spec
        made["metadata"]["annotations"] = {} if movable else {"bayplan.dev/movable": "false"}
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
    with hall.cluster.lock:
        events = [one for one in hall.cluster.store.list(EVENTS).items if one["reason"] == "Defragmented"]
    moved = plan["moves"][0]["gang"].rpartition("/")[2]
    assert [one["involvedObject"]["kind"] + "/" + one["involvedObject"]["name"] for one in events] == [
        f"Job/{moved}"
    ]
    assert events[0]["message"].startswith(f"All pods of the gang were evicted to make room for {RACKFUL}. ")


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
                if any(taint["key"] == PLAN for taint in one["spec"].get("taints") or ())
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
    searches: list[DefragmentSearch] = []

    def standing(policy: DefragmentPolicy) -> StandingDefragmentation:
        target = ClusterTarget(hall.kubeconfig, None, None, SystemClock())
        rules = CostRules(restart=0, assumed_checkpoint=0)
        return StandingDefragmentation(
            target, policy, rules, StepSettings("test", 20.0), told.append, searches.append
        )

    patient = standing(DefragmentPolicy(waits=3600.0))
    assert patient.round() is False and told == []
    frugal = standing(DefragmentPolicy(waits=0.0, moves_per_hour=0))
    assert frugal.round() is False and told == []
    time.sleep(1.1)  # times of the API are in seconds; a gang that has not waited is worth nothing
    hasty = standing(DefragmentPolicy(waits=0.0, least_run_time=3600.0))
    assert hasty.round() is False and told.pop() == "default/wide: no moves make room for it"
    eager = standing(DefragmentPolicy(waits=0.0, least_run_time=0.0))
    assert eager.round() is True, told
    assert told[-1] == "default/wide: there is room now"
    until(lambda: len(hall.hosts("wide")) == 2)
    assert eager.round() is False
    assert [(one.result, one.moved) for one in searches] == [("no_moves", 0), ("moved", 1)]
    assert left_behind(hall) == []


def test_a_gang_does_not_return_to_the_place_that_a_later_one_takes(hall: Hall) -> None:
    """The large gang needs a whole host, and there is one only after the small gang has left it."""
    hall.start_on("fixed-a", ["b01-r02-h01"], 4, movable=False)
    hall.start_on("fixed-b", ["b01-r03-h01"], 4, movable=False)
    hall.start_on("fixed-c", ["b01-r03-h02"], 2, movable=False)
    hall.start_on("small", ["b01-r02-h02"], 2)
    hall.start_on("large", ["b01-r01-h01"], 4)
    result = hall.run("--for", RACKFUL, "--apply", "--timeout", "30s")
    assert result.exit_code == 0, result.output
    assert (hall.hosts("small"), hall.hosts("large")) == (["b01-r03-h02"], ["b01-r02-h02"])
    assert left_behind(hall) == []


class KilledExecution(PlanExecution):
    """Takes nothing back, as if its process was killed while a gang is away."""

    def _take_back(self) -> str:
        return ""


class Killed(BaseException):
    """Not caught by anything."""


def kill(hall: Hall, name: str, when: str = "evicted") -> DefragmentPlan:
    """Carry out a plan of this name up to a line that it says."""
    for rack in (1, 2, 3):
        hall.start_on(f"job{rack}", [f"b01-r0{rack}-h01"], 4, backoffLimit=0)
    plan = planned(hall)

    def say(line: str) -> None:
        if when in line:
            raise Killed

    target = ClusterTarget(hall.kubeconfig, None, None, SystemClock())
    settings = StepSettings(name, 5.0)
    with pytest.raises(Killed):
        KilledExecution(target, RoomOptions(RACKFUL), settings, say).run(plan)
    assert len(left_behind(hall)) == 4  # the taints of two nodes, a pod that holds a place, a stopped job
    return plan


def test_what_a_killed_run_left_behind_is_put_right_on_demand(hall: Hall) -> None:
    mover = kill(hall, "killed").moves[0].gang.ref.name
    advice = hall.run("--for", RACKFUL, "-o", "json")
    assert "plan killed may be carried out until " in advice.stderr
    busy = hall.run("--for", RACKFUL, "--apply")
    assert busy.exit_code == 4 and "put it right with: bayplan defragment --undo" in busy.stderr
    undone = hall.run("--undo")
    assert undone.exit_code == 0, undone.output
    assert undone.stderr == (
        f"plan killed was left behind; put right: Job default/{mover}, which is stopped,"
        " 1 held place, the taints of 2 nodes\n"
    )
    assert left_behind(hall) == []
    until(lambda: len(hall.hosts(mover)) == 1)
    assert "nothing was left behind" in hall.run("--undo").stderr


def test_the_next_run_puts_right_what_was_left_behind_for_long(hall: Hall) -> None:
    mover = kill(hall, "killed").moves[0].gang.ref.name
    past: Object = {"metadata": {"annotations": {UNTIL: timestamp(time.time() - 1)}}}
    with hall.cluster.lock:
        store = hall.cluster.store
        store.patch(JOBS, "default", mover, past)
        for one in [*hall.nodes()]:
            store.patch(NODES, "", one["metadata"]["name"], past)
        for one in hall.pods("hold-"):
            store.patch(PODS_KIND, "default", one["metadata"]["name"], past)
    result = hall.run("--for", RACKFUL, "--apply", "--timeout", "30s")
    assert result.exit_code in (0, 3), result.output  # the gang that was away may be pending yet
    assert "plan killed was left behind; put right: " in result.stderr
    assert left_behind(hall) == []
    until(lambda: len(hall.hosts(mover)) == 1)


def test_the_role_puts_right_at_once_what_an_earlier_leader_left_behind(hall: Hall) -> None:
    mover, told = kill(hall, "role-1-1").moves[0].gang.ref.name, list[str]()
    target = ClusterTarget(hall.kubeconfig, None, None, SystemClock())

    def one_round(name: str) -> bool:
        settings = StepSettings(name, 20.0)
        policy = DefragmentPolicy(waits=0.0)
        return StandingDefragmentation(target, policy, CostRules(), settings, told.append).round()

    assert one_round("person") is False
    assert told.pop().startswith("no moves: plan role-1-1 may be carried out until ")
    assert len(left_behind(hall)) == 4
    assert one_round("role-2") is False
    assert told.pop().startswith("plan role-1-1 was left behind; put right: Job default/")
    assert left_behind(hall) == []
    until(lambda: len(hall.hosts(mover)) == 1)


def test_nothing_is_written_while_another_replica_leads(hall: Hall) -> None:
    for rack in (1, 2, 3):
        hall.start_on(f"job{rack}", [f"b01-r0{rack}-h01"], 4, backoffLimit=0)
    target = ClusterTarget(hall.kubeconfig, None, None, SystemClock(), may_write=lambda: False)
    made = PlanExecution(target, RoomOptions(RACKFUL), StepSettings("test", 5.0), lambda line: None)
    stopped = made.run(planned(hall))
    assert stopped.startswith("stopped after 0 of 1 move: could not taint nodes: "), stopped
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
    """Taints, pods and stopped jobs of the command."""
    taints = [taint for one in hall.nodes() for taint in one["spec"].get("taints") or ()]
    fences = [taint for taint in taints if taint["key"] == PLAN]
    with hall.cluster.lock:
        jobs = hall.cluster.store.list(JOBS, "default").items
    marked = [one for one in jobs if PLAN in (one["metadata"].get("annotations") or {})]
    assert marked == [one for one in jobs if one["spec"].get("suspend")]
    return [*fences, *(one["metadata"]["name"] for one in (*hall.pods("hold-"), *marked))]
