"""gang/steps_* and preemption_*: scenes of gangs, pods and nodes, in memory and in virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bayplan.backends.fake_controllers.objects import is_terminating
from bayplan.dialects.kube.gang_api.gates import COMPOSITE, POLICY, V1ALPHA1
from tests.conformance.gang_steps_objects import (
    BUDGETS,
    COMPOSITES,
    NODES,
    PODS,
    VERSIONS,
    Dialect,
    Object,
    budget,
    on_the_first,
    ready_node,
)
from tests.conformance.gang_steps_stage import Embedded, NotTaken, Stage, conditions
from tests.conformance.registry import NothingToRun

WAITING = ("", "WaitingForGang", "SchedulingGated")  # told nothing, or that it waits for others
TABLES_WITH_A_NODE = {"TestPodGroupRequeueRemainingOnSchedulingSuccess": {"cpu": "4", "pods": "32"}}


def check_case(case: Object) -> list[str]:
    """The case in memory, for every set of features that it is meant for, and on the first API if it can."""
    refuse_what_cannot_run(case)
    dialect = Dialect(dialect_of(case["source"]["version"]))
    for gates in feature_sets(case):
        if problems := Play(Embedded(dialect, gates), case).run():
            return problems
    older = None if dialect.version == V1ALPHA1 else on_the_first(case)
    if older is not None and (problems := Play(Embedded(Dialect(V1ALPHA1), ()), older).run()):
        return ["with the first version of the API", *problems]
    return []


def dialect_of(version: str) -> str:
    """The version of the gang API that a version of Kubernetes has."""
    return next(api for start, api in VERSIONS.items() if version.startswith(start))


def refuse_what_cannot_run(case: Object) -> None:
    """Cases about plugins written in Go have nothing that could be run."""
    if (case.get("extra") or {}).get("customPluginFunc"):
        raise NothingToRun("a plugin in Go decides this case")


@dataclass
class Play:
    """One case on one stage."""

    stage: Stage
    case: Object
    made: list[str] = field(default_factory=list)  # pods
    removed: set[str] = field(default_factory=set)  # by us
    groups: dict[str, Object] = field(default_factory=dict)
    composites: dict[str, Object] = field(default_factory=dict)

    def run(self) -> list[str]:
        """What is not as it should be, in the first step where anything is not."""
        self._prepare()
        for number, step in enumerate(steps_of(self.case), start=1):
            act: Callable[[Object], list[str] | None] | None = getattr(self, f"do_{step['op']}", None)
            if act is None:
                return [f"nobody knows how to {step['op']}"]
            try:
                problems = act(step) or []
            except NotTaken as refused:
                problems = [str(refused)]
            if problems:
                return [f"step {number}, {step['op']}: {step.get('name', '')}", *problems]
        return self._victims() + self._promises()

    def _prepare(self) -> None:
        extra = self.case.get("extra") or {}
        if failing := extra.get("bindingFailing"):
            self.stage.fail_binding(failing["watchPod"])
        if injector := extra.get("podInjector"):
            pod = self.stage.dialect.injected(injector["podToInject"])
            self.made.append(pod["metadata"]["name"])
            self.stage.inject(pod, injector["watchPod"])

    # ── what is done ──

    def do_create_nodes(self, step: Object) -> None:
        self.stage.create(NODES, *(ready_node(said) for said in step["nodes"]))

    def do_create_workload(self, step: Object) -> None:
        self.stage.create(self.stage.dialect.workloads, self.stage.dialect.workload(step["workload"]))

    def do_create_workloads(self, step: Object) -> None:
        for said in step["workloads"]:
            self.do_create_workload({"workload": said})

    def do_create_compositepodgroup(self, step: Object) -> None:
        said = step["compositepodgroup"]
        group = self.composites[said["name"]] = self.stage.dialect.composite(said)
        self.stage.create(COMPOSITES, group)

    def do_delete_compositepodgroups(self, step: Object) -> None:
        for name in step.get("names", self.composites):
            self.stage.delete(COMPOSITES, name, None)

    def do_recreate_compositepodgroups(self, step: Object) -> None:
        self.stage.create(COMPOSITES, *self.composites.values())

    def do_create_podgroup(self, step: Object) -> None:
        group = self.groups[step["podgroup"]["name"]] = self.stage.dialect.group(step["podgroup"])
        self.stage.create(self.stage.dialect.groups, group)

    def do_update_podgroup(self, step: Object) -> None:
        said = step["podgroup"]
        change = {"spec": {"schedulingPolicy": said["policy"]}}
        self.stage.patch(self.stage.dialect.groups, said["name"], change)

    def do_delete_podgroup(self, step: Object) -> None:
        for name in self.groups:
            self.stage.delete(self.stage.dialect.groups, name, None)

    def do_recreate_podgroups(self, step: Object) -> None:
        self.stage.create(self.stage.dialect.groups, *self.groups.values())

    def do_create_pods(self, step: Object) -> None:
        for said in step["pods"]:
            self.made.append(said["name"])
            self.stage.create(PODS, self.stage.dialect.pod(said))
            if step.get("in_order"):
                self.stage.pass_time()

    def do_delete_pods(self, step: Object) -> None:
        for name in step["pods"]:
            self.removed.add(name)
            self.stage.delete(PODS, name)

    def do_create_pdb(self, step: Object) -> None:
        name = step["pdb"]["metadata"]["name"]
        self.stage.create(BUDGETS, budget(step["pdb"]))
        if self.stage.shows_turns():  # elsewhere a controller says how many may go
            self.stage.patch(BUDGETS, name, {"status": step["pdb"]["status"]}, "status")

    def do_update_pod(self, step: Object) -> list[str]:
        """The change is a function upstream; what it does is in the name."""
        if not step["name"].startswith("Ungate"):
            return ["nobody knows what is to be changed"]
        self.stage.patch(PODS, step["pod"], {"spec": {"schedulingGates": None}})
        return []

    def do_run_one_cycle(self, step: Object) -> None:
        self.stage.pass_time()

    # ── what is expected ──

    def do_expect_scheduled(self, step: Object) -> list[str]:
        return self.stage.until(lambda: [text for name in step["pods"] for text in self._unbound(name)])

    def do_expect_unschedulable(self, step: Object) -> list[str]:
        return self._all(step, lambda name: self._not_told(name, ("Unschedulable",)))

    def do_expect_scheduling_error(self, step: Object) -> list[str]:
        return self._all(step, lambda name: self._not_told(name, ("SchedulerError",)))

    def do_expect_queue(self, step: Object) -> list[str]:
        where = step["where"]
        if where == "active":  # it is its turn next: seen only where turns come when we say
            self.stage.take_in()
            return [text for name in step["pods"] for text in self._bound(name)] if self._sees_turns else []
        if where == "unschedulable":  # gated, or tried: not to be told apart from outside
            return self._all(step, self._bound)
        return self._all(step, lambda name: self._not_told(name, WAITING))

    def do_expect_attempts(self, step: Object) -> list[str]:
        """Nobody was tried; other counts are nowhere to be seen."""
        if step["attempts"]:
            return ["attempts cannot be counted from outside"]
        return self._all(step, lambda name: self._not_told(name, WAITING))

    def do_expect_counts(self, step: Object) -> list[str]:
        def wrong() -> list[str]:
            bound = sum(not self._unbound(name) for name in step["pods"])
            refused = sum(not self._not_told(name, ("Unschedulable",)) for name in step["pods"])
            right = (bound, refused) == (step["scheduled"], step["unschedulable"])
            return [] if right else [f"{bound} are bound, {refused} unschedulable"]

        return self.stage.until(wrong, stays=True)

    def do_expect_removed(self, step: Object) -> list[str]:
        return self._all(step, lambda name: [f"{name} is still there"] if self.stage.pod(name) else [])

    def do_expect_preempted(self, step: Object) -> list[str]:
        return self._all(step, lambda name: [] if self._has_to_go(name) else [f"{name} may stay"])

    def do_expect_podgroup_condition(self, step: Object) -> list[str]:
        dialect, want = self.stage.dialect, (step["status"], step["reason"])

        def wrong() -> list[str]:
            group = self.stage.objects.get((dialect.groups.plural, step["podgroup"]))
            got = conditions(group, dialect.condition)
            return [] if got[:2] == want else [f"{dialect.condition} is {got}"]

        return self.stage.until(wrong)

    def do_expect_nodes_within(self, step: Object) -> list[str]:
        return self._all(step, lambda name: [] if self._node(name) in step["nodes"] else self._where(name))

    def do_expect_one_domain(self, step: Object) -> list[str]:
        def wrong() -> list[str]:
            nodes = [self.stage.objects.get(("nodes", self._node(name)), {}) for name in step["pods"]]
            values = {(one.get("metadata", {}).get("labels") or {}).get(step["topologyKey"]) for one in nodes}
            right = len(values) == 1 and None not in values
            return [] if right else [text for name in step["pods"] for text in self._where(name)]

        return self.stage.until(wrong)

    # ── how it is seen ──

    @property
    def _sees_turns(self) -> bool:
        return self.stage.shows_turns()

    def _all(self, step: Object, wrong: Callable[[str], list[str]]) -> list[str]:
        return self.stage.until(lambda: [text for name in step["pods"] for text in wrong(name)], stays=True)

    def _node(self, name: str) -> str:
        return str(((self.stage.pod(name) or {}).get("spec") or {}).get("nodeName") or "")

    def _where(self, name: str) -> list[str]:
        return [f"{name} is on {self._node(name) or 'no node'}"]

    def _unbound(self, name: str) -> list[str]:
        pod = self.stage.pod(name)
        if pod is None or self._has_to_go(name):
            return [f"{name} is gone or has to go"]
        told = conditions(pod, "PodScheduled")
        return [] if self._node(name) else [f"{name} is not bound: {told}"]

    def _bound(self, name: str) -> list[str]:
        pod = self.stage.pod(name)
        return [f"{name} is gone"] if pod is None else self._where(name) if self._node(name) else []

    def _not_told(self, name: str, reasons: tuple[str, ...]) -> list[str]:
        status, reason, message = conditions(self.stage.pod(name), "PodScheduled")
        if wrong := self._bound(name):
            return wrong
        right = status in ("", "False") and reason in reasons
        return [] if right else [f"{name} is told {reason or 'nothing'} ({status}): {message}"]

    def _has_to_go(self, name: str) -> bool:
        pod = self.stage.pod(name)
        return pod is None or is_terminating(pod) or bool(conditions(pod, "DisruptionTarget")[0])

    # ── what is expected of the whole case ──

    def _victims(self) -> list[str]:
        """Exactly those had to go who are named, and for a group's sake as often as is said."""
        if "victims" not in self.case:
            return []
        went = {name for name in self.made if self._has_to_go(name)} - self.removed
        if went != set(self.case["victims"]):
            return [f"who went: {sorted(went)}; who should: {sorted(self.case['victims'])}"]
        want = self.case["victims_preempted_as_podgroup_preemption"]

        def wrong() -> list[str]:
            said = self.stage.announced("Preempted")
            count = sum(text.startswith(self._whose()) for text in said.values())
            return [] if count == want else [f"{want} should be told {self._whose()}; told: {said}"]

        return self.stage.until(wrong)

    def _whose(self) -> tuple[str, ...]:
        """How the words begin that are counted: one table takes whatever stands there."""
        plain = ("Preempted by podgroup",)
        if self.case["source"]["func"] != "TestCompositePodGroupPreemption":
            return plain
        return (*plain, "Preempted by compositepodgroup", "Preempted by pod")

    def _promises(self) -> list[str]:
        wanted = (self.case.get("extra") or {}).get("expectedToHaveNNNInfo") or ()
        return [f"{name} was never nominated" for name in wanted if name not in self.stage.nominated]


def steps_of(case: Object) -> Iterator[Object]:
    """The steps, with what the functions around them do upstream."""
    if capacity := TABLES_WITH_A_NODE.get(case["source"].get("func", "")):
        yield {"op": "create_nodes", "nodes": [{"name": "node", "labels": {}, "allocatable": capacity}]}
    steps = list(_with_ports(case))
    extra = case.get("extra") or {}
    absent, above = extra.get("tempRemovePG"), extra.get("tempRemoveCPG")
    removed = extra.get("removeCPGNameBeforePreemption")
    last = max((n for n, step in enumerate(steps) if step["op"] == "create_pods"), default=-1)
    for number, step in enumerate(steps):
        if absent and number == last:
            yield {"op": "delete_podgroup"}
            yield step
            yield {"op": "expect_queue", "where": "gated", "pods": [pod["name"] for pod in step["pods"]]}
            yield {"op": "recreate_podgroups"}
        elif above and number == last:
            yield {"op": "delete_compositepodgroups"}
            yield step
            yield {"op": "expect_queue", "where": "gated", "pods": [pod["name"] for pod in step["pods"]]}
            yield {"op": "recreate_compositepodgroups"}
        elif removed and number == last:
            yield {"op": "delete_compositepodgroups", "names": [removed]}
            yield step
        else:
            yield step


def _with_ports(case: Object) -> Iterator[Object]:
    """The tables hold no ports of containers; where a case is about them, all pods have the same."""
    about_ports = "pod node port" in case["source"].get("name", "")
    for step in case["steps"]:
        if about_ports and step["op"] == "create_pods":
            step = {**step, "pods": [{**pod, "port": 8080} for pod in step["pods"]]}
        yield step


def feature_sets(case: Object) -> Iterator[frozenset[str]]:
    said: dict[str, Any] = dict(case["features"])
    if (case.get("extra") or {}).get("enablePodGroupPreemptionPolicy"):
        said[POLICY] = True
    if has_composites(case):  # one table has them, and does not name the feature
        said[COMPOSITE] = True
    choices = [[(name, on) for on in (v if isinstance(v, list) else [v])] for name, v in said.items()]
    for chosen in itertools.product(*choices):
        yield frozenset(name for name, on in chosen if on)


def has_composites(case: Object) -> bool:
    """Whether a case is about groups of groups."""
    return any(step["op"] == "create_compositepodgroup" for step in case["steps"])


FILES = {"gang/steps_*": check_case, "gang/preemption_*": check_case}
