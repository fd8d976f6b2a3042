"""What gang scheduling is to be in the end, in eight scenes, played like those from outside.

Each comes with a switch: a scheduler that lacks just that feature, on which the same scene must go wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from bayplan.backends.fake_controllers.objects import JOBS, is_terminating, labels_of, uid_of
from bayplan.dialects.kube.gang_api.gates import V1ALPHA1
from bayplan.model.change import Change, GangSpecSeen, PodSeen
from bayplan.model.profile import Profile
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from tests.conformance.gang_steps import Play
from tests.conformance.gang_steps_objects import SCHEDULER, Dialect, Object, class_name
from tests.conformance.gang_steps_stage import Stage, conditions

Step = Object
HEAL_SECONDS = 6.0


@dataclass(frozen=True, slots=True)
class Requirement:
    """A scenario, and the scheduler on which it must fail."""

    scene: Callable[[Dialect], list[Step]]
    without: Callable[[], SchedulerController]


def problems(stage: Stage, requirement: Requirement) -> list[str]:
    """How the result differs from what the requirement asks for."""
    return Scene(stage, {"steps": requirement.scene(stage.dialect), "source": {}}).run()


def with_everything() -> SchedulerController:
    return SchedulerController(Profile(heal_seconds=HEAL_SECONDS))


# ── helpers ────────────────────────────────────────────────────────────────────────────────────────


def nodes(**cpus: int) -> Step:
    made = [
        {"name": name, "labels": {}, "allocatable": {"cpu": str(cpu), "pods": "32"}}
        for name, cpu in cpus.items()
    ]
    return {"op": "create_nodes", "nodes": made}


def create_group(name: str, minimum: int, **more: Any) -> Step:
    return {
        "op": "create_podgroup",
        "podgroup": {"name": name, "policy": {"gang": {"minCount": minimum}}, **more},
    }


def pods(group: str, priority: int = 0, **cpus: int) -> Step:
    member = {"group": group} if group else {}
    made = [
        {"name": name.replace("_", "-"), "requests": {"cpu": str(cpu)}, "priority": priority, **member}
        for name, cpu in cpus.items()
    ]
    return {"op": "create_pods", "pods": made}


def step(op: str, *names: str, **more: Any) -> Step:
    return {"op": op, "pods": list(names), **more}


# ── scenarios ──────────────────────────────────────────────────────────────────────────────────────


def bound_whole(_: Dialect) -> list[Step]:
    """1. Pods of a gang are not bound unless its minimum can be."""
    return [
        nodes(a=1, b=1),
        create_group("pg", 3),
        pods("pg", p1=1, p2=1, p3=1),
        step("expect_unschedulable", "p1", "p2", "p3"),
        nodes(c=1),
        step("expect_scheduled", "p1", "p2", "p3"),
    ]


def placed_together(_: Dialect) -> list[Step]:
    """2. All pods of a gang are placed together: the last one is the hardest to place."""
    return [
        nodes(a=4, b=4),
        create_group("pg", 3),
        pods("pg", p1=2, p2=2, p3=4),
        step("expect_scheduled", "p1", "p2", "p3"),
    ]


def gangs_take_turns(_: Dialect) -> list[Step]:
    """3. Contending gangs neither deadlock nor livelock."""
    return [
        nodes(a=4),
        create_group("one", 3),
        create_group("two", 3),
        pods("one", one_1=1),
        pods("two", two_1=1),
        pods("one", one_2=1),
        pods("two", two_2=1),
        pods("one", one_3=1),
        pods("two", two_3=1),
        step("expect_scheduled", "one-1", "one-2", "one-3"),
        step("expect_unschedulable", "two-1", "two-2", "two-3"),
        step("delete_pods", "one-1", "one-2", "one-3"),
        step("expect_scheduled", "two-1", "two-2", "two-3"),
    ]


def schedulers_give_way(_: Dialect) -> list[Step]:
    """4. A gang blocked by another scheduler does not keep its partial binding for ever."""
    return [
        nodes(a=4),
        create_group("pg", 3),
        step("fail_bindings", pod="p3"),
        pods("pg", p1=1, p2=1, p3=1),
        step("expect_scheduled", "p1", "p2"),
        step("bind_elsewhere", "rival-1", "rival-2", node="a"),
        step("let_bind"),
        step("expect_removed", "p1", "p2"),
        step("bind_elsewhere", "rival-3", node="a"),
        step("expect_scheduled", "rival-1", "rival-2", "rival-3"),
        step("expect_waiting", "p3"),
    ]


def no_victims_in_vain(_: Dialect) -> list[Step]:
    """5. A gang that cannot fit, whatever is preempted, preempts no pod."""
    return [
        nodes(a=3),
        pods("", 500, high=1),
        pods("", 10, low_1=1, low_2=1),
        step("expect_scheduled", "high", "low-1", "low-2"),
        create_group("pg", 3, priority=100),
        pods("pg", 100, p1=1, p2=1, p3=1),
        step("expect_unschedulable", "p1", "p2", "p3"),
        step("expect_scheduled", "high", "low-1", "low-2"),
    ]


def victims_go_whole(dialect: Dialect) -> list[Step]:
    """6. Of pods that only run together none is preempted alone."""
    if dialect.version == V1ALPHA1:  # it has no disruption field, but Jobs are preempted as a whole
        return [
            nodes(a=3),
            step("create_job", job="low", count=3, priority=10),
            step("expect_job_scheduled", job="low"),
            pods("", 100, high=1),
            step("expect_scheduled", "high"),
            step("expect_job_gone", job="low"),
        ]
    mode = "PodGroup" if dialect.version == "v1alpha2" else {"all": {}}
    return [
        nodes(a=3),
        create_group("low", 3, priority=10, disruptionMode=mode),
        pods("low", 10, low_1=1, low_2=1, low_3=1),
        step("expect_scheduled", "low-1", "low-2", "low-3"),
        pods("", 100, high=1),
        step("expect_scheduled", "high"),
        step("expect_preempted", "low-1", "low-2", "low-3"),
    ]


def bindings_are_all_or_none(dialect: Dialect) -> list[Step]:
    """7. A gang of which a binding fails is scheduled again; if that fails too, none of it stays bound."""
    told = {"podgroup": "one", "status": "True", "reason": "Scheduled"}
    return [
        nodes(a=6),
        create_group("one", 3),
        step("fail_binding_once", pod="one-1"),
        pods("one", one_1=1, one_2=1, one_3=1),
        step("expect_scheduled", "one-1", "one-2", "one-3"),
        *([{"op": "expect_podgroup_condition", **told}] if dialect.condition else []),
        create_group("two", 3),
        step("fail_bindings", pod="two-1"),
        pods("two", two_1=1, two_2=1, two_3=1),
        step("expect_removed", "two-2", "two-3"),
        step("expect_told", "two-1", words="could not start completely"),
        step("let_bind"),
        pods("two", two_2=1, two_3=1),
        step("expect_scheduled", "two-1", "two-2", "two-3"),
    ]


def nodes_may_come_later(_: Dialect) -> list[Step]:
    """8. An autoscaler sees a complete gang with all its pods; nodes may be added one by one."""
    return [
        nodes(a=1),
        create_group("pg", 3),
        pods("pg", p1=1, p2=1),
        step("expect_waiting", "p1", "p2"),
        pods("pg", p3=1),
        step("expect_unschedulable", "p1", "p2", "p3"),
        nodes(b=1),
        step("expect_unschedulable", "p1", "p2", "p3"),
        nodes(c=1),
        step("expect_scheduled", "p1", "p2", "p3"),
    ]


# ── schedulers without one feature ─────────────────────────────────────────────────────────────────


class Lacking(SchedulerController):
    """A scheduler whose changes are altered before they are applied."""

    def __init__(self, reword: Callable[[Change], Change], profile: Profile | None = None) -> None:
        super().__init__(profile or Profile(heal_seconds=HEAL_SECONDS))
        self.reword = reword

    def apply(self, changes: Iterable[Change]) -> None:
        super().apply(self.reword(change) for change in changes)


def without_minimum() -> SchedulerController:
    """A gang starts with as many pods as fit."""
    return Lacking(_with_charter(minimum=0))


def without_gangs() -> SchedulerController:
    """Every pod is scheduled by itself."""

    def reword(change: Change) -> Change:
        return PodSeen(replace(change.pod, gang=None)) if isinstance(change, PodSeen) else change

    return Lacking(reword)


def without_healing() -> SchedulerController:
    """Partly bound gangs stay bound."""
    return SchedulerController(Profile(heal_seconds=1e9))


def without_wholeness() -> SchedulerController:
    """A single pod of any gang may be preempted."""
    return Lacking(_with_charter(disrupt_together=False))


def _with_charter(**changed: Any) -> Callable[[Change], Change]:
    def reword(change: Change) -> Change:
        return GangSpecSeen(replace(change.spec, **changed)) if isinstance(change, GangSpecSeen) else change

    return reword


REQUIREMENTS = {
    "1_pods_are_bound_only_if_the_whole_gang_fits": Requirement(bound_whole, without_minimum),
    "2_all_pods_of_a_gang_are_considered_together": Requirement(placed_together, without_gangs),
    "3_gangs_that_contend_do_not_lock_each_other_out": Requirement(gangs_take_turns, without_gangs),
    "4_schedulers_that_contend_do_not_lock_each_other_out": Requirement(schedulers_give_way, without_healing),
    "5_a_gang_that_cannot_fit_kills_nobody": Requirement(no_victims_in_vain, without_gangs),
    "6_a_gang_that_has_to_go_goes_whole": Requirement(victims_go_whole, without_wholeness),
    "7_a_gang_is_bound_whole_or_scheduled_again": Requirement(bindings_are_all_or_none, without_healing),
    "8_a_gang_waits_for_nodes_that_are_still_to_come": Requirement(nodes_may_come_later, without_gangs),
}


class Scene(Play):
    """Has a few more steps than the cases need."""

    def do_fail_bindings(self, step: Step) -> None:
        self.stage.fail_binding(step["pod"], once=False)

    def do_fail_binding_once(self, step: Step) -> None:
        self.stage.fail_binding(step["pod"])

    def do_let_bind(self, step: Step) -> None:
        self.stage.let_bind()

    def do_bind_elsewhere(self, step: Step) -> None:
        """Another scheduler binds its pods to a node."""
        made = [{"name": name, "requests": {"cpu": "1"}, "nodeName": step["node"]} for name in step["pods"]]
        self.do_create_pods({"pods": [{**pod, "spec": {"schedulerName": "rival"}} for pod in made]})

    def do_expect_waiting(self, step: Step) -> list[str]:
        """Not bound, and not visible to an autoscaler."""
        return self._all(step, self._wakes)

    def do_expect_told(self, step: Step) -> list[str]:
        """In an event: the condition of the pod may be newer."""

        def wrong() -> list[str]:
            said = {name: text for _, name, why, text in self.stage.told if step["words"] in text}
            return [f"{name} was never told" for name in step["pods"] if name not in said]

        return self.stage.until(wrong)

    def _wakes(self, name: str) -> list[str]:
        told = conditions(self.stage.pod(name), "PodScheduled")
        return self._bound(name) or ([f"{name} is told {told}"] if told[1] == "Unschedulable" else [])

    def do_create_job(self, step: Step) -> None:
        container = {"name": "c", "image": "pause", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": SCHEDULER, "restartPolicy": "Never", "containers": [container]}
        spec |= {"priorityClassName": class_name(step["priority"])}
        count = {"parallelism": step["count"], "completions": step["count"], "completionMode": "Indexed"}
        body = {"metadata": {"name": step["job"]}, "spec": {**count, "template": {"spec": spec}}}
        self.stage.make_classes([{"spec": spec}])
        self.stage.create(JOBS, {"apiVersion": "batch/v1", "kind": "Job", **body})

    def do_expect_job_scheduled(self, step: Step) -> list[str]:
        def wrong() -> list[str]:
            found = self._pods_of(step["job"])
            self.case["first"] = {uid_of(pod) for pod in found}
            bound = sum(bool(pod["spec"].get("nodeName")) for pod in found)
            return [] if bound == len(found) == 3 else [f"{bound} of {len(found)} pods are bound"]

        return self.stage.until(wrong)

    def do_expect_job_gone(self, step: Step) -> list[str]:
        """None of its first pods exists any more."""

        def left() -> list[str]:
            found = {
                uid_of(pod): pod["metadata"]["name"]
                for pod in self._pods_of(step["job"])
                if not is_terminating(pod)
            }
            return [found[uid] for uid in self.case["first"] & set(found)]

        return self.stage.until(left, stays=True)

    def _pods_of(self, job: str) -> list[Object]:
        pods = [found for (plural, _), found in self.stage.objects.items() if plural == "pods"]
        return [pod for pod in pods if labels_of(pod).get("job-name") == job]
