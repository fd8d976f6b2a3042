"""The play of shared nodes: all roles in one process or in two, faults, then the final checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from bayplan.assembly.in_process_webhooks import register_webhooks
from bayplan.backends.embedded.kinds.gangs import GangApi
from bayplan.backends.fake_controllers.objects import is_terminating, phase_of
from bayplan.dialects.kai.api import names
from bayplan.model.plan import Bind, Plan, PreemptPod
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.provisioning.controller import ProvisioningController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.loop import Loop
from bayplan.simulator.core.checkers import check_consistency
from bayplan.simulator.core.documents import LastLook
from bayplan.simulator.core.faults import Chances
from bayplan.simulator.core.fixtures import LISTED
from bayplan.simulator.core.recording import RecordingBackend
from bayplan.simulator.core.scheduler_simulation import REST_SECONDS, RESTING_STATES, SchedulerSimulation
from bayplan.simulator.core.simulation import EPOCH, NEVER
from bayplan.simulator.jobs import checkers as jobs_checkers
from bayplan.simulator.jobs.actors import JobActors
from bayplan.simulator.jobs.checkers import JobGangChecker
from bayplan.simulator.jobs.run import CAPACITY_CHECK_STEPS
from bayplan.simulator.jobs.world import JOB_SETS
from bayplan.simulator.pods.actors import PodActors
from bayplan.simulator.pods.checkers import PodChecker, check_pending_reasons
from bayplan.simulator.pods.gang_view import gang_of as gang_of_pod
from bayplan.simulator.pods.run import CHANCES_BY_SEED, EVENTS, UNCERTAIN_SECONDS, check_same_state
from bayplan.simulator.pods.world import group_kind
from bayplan.simulator.queues import state_checker
from bayplan.simulator.queues.checkers import QueueChecker
from bayplan.simulator.shared import pod_groups
from bayplan.simulator.shared.checkers import ClaimChecker
from bayplan.simulator.shared.families import GANGS, JOBS, TREES, family_of, of_gangs, of_queued_jobs
from bayplan.simulator.shared.pod_groups import PodGroupActors
from bayplan.simulator.shared.world import (
    SlotLevel,
    drawn_kind,
    drawn_world,
)
from bayplan.simulator.shared.zones import ZoneActors, zoned
from bayplan.simulator.subgroups.actors import SubgroupActors
from bayplan.simulator.subgroups.checkers import (
    SubgroupChecker,
    check_group_status,
    check_no_partial_groups,
    check_queue_status,
)
from bayplan.simulator.subgroups.run import WATCHED, check_same_queue_usage
from bayplan.state.cluster.shared_state import ClusterState

Object = dict[str, Any]
PAUSE, PAUSE_DENSE = 0.15, 0.02  # the chance that one of two processes pauses after a step
PAUSE_SECONDS = (0.5, 6.0)
DENSE = 0.7  # the share of dense worlds
AT_ONCE = 0.7  # the chance that two processes read before either of them writes, in a dense world


class SharedSimulation(SchedulerSimulation):
    """Queued jobs, groups with sub-groups, gangs and plain pods, under all roles of Bayplan."""

    fault_seconds = 100.0
    quiet_seconds = 900.0
    must_settle = False  # who waits is tried again now and then; but nothing may come of it

    def __init__(
        self,
        seed: int,
        chances: Chances | None = None,
        *,
        processes: int = 1,
        is_dense: bool | None = None,
        with_pod_groups: bool | None = None,
        with_zones: bool | None = None,
        slots: SlotLevel | None = None,
    ) -> None:
        """What is not given the seed decides: most worlds are dense, some have pod groups or zones."""
        rng = Random(f"shared {seed}")
        fault_chances = rng.choice(CHANCES_BY_SEED) if chances is None else chances
        fault_chances = replace(fault_chances, node_loss=0, node_flap=0)  # nodes have accidents of their own
        self.pace, zone_rng = Random(f"pace {seed}"), Random(f"zones {seed}")
        by_seed = self.pace.random() < DENSE
        self.is_dense = by_seed if is_dense is None else is_dense
        level, has_zones = drawn_kind(seed, slots, with_zones)
        world = drawn_world(rng, self.fault_seconds, self.pace if self.is_dense else None, level)
        self.world = zoned(world, zone_rng) if has_zones else world
        super().__init__(seed, rng, Random(f"ids {seed}"), fault_chances, GangApi((self.world.version,)))
        register_webhooks(self.store)
        self.create_initial(self.world.nodes, self.world.rules)
        self.jobs = JobActors(self.store, rng, self.world.jobs, EPOCH, self.fault_seconds)
        groups = group_kind(self.world.version)
        self.gangs = PodActors(self.store, rng, self.world.gangs, groups, EPOCH, self.fault_seconds)
        self.trees = SubgroupActors(
            self.store, rng, self.world.groups, EPOCH, self.fault_seconds, Random(f"minds {seed}")
        )
        self.processes = processes
        self.pod_groups = PodGroupActors(
            self.store, seed, self.world, EPOCH, with_pod_groups, small=self.is_dense, intrudes=processes == 2
        )
        self.zones = ZoneActors(self.store, zone_rng, self.world.nodes if has_zones else (), EPOCH)
        self.gangs.nodes = self.trees.nodes = self.jobs.nodes  # what one adds another may take away
        self.kinds = {
            **LISTED, "jobsets": JOB_SETS, "gangs": groups, "trees": names.POD_GROUP, "queues": names.QUEUE,
            "events": EVENTS,
        }  # fmt: skip
        self.compared = ("workloads", "jobs", "jobsets", "pods", "nodes", "gangs", "trees", "queues")
        self.environment = (
            self.jobs.step, self.pod_groups.step, self.gangs.step, self.trees.step,
            self.zones.step, self.fake_controllers().step,
        )  # fmt: skip
        self.second: tuple[RecordingBackend, Loop] | None = None  # the process of admission, if it is another
        self.dues: dict[Loop, float] = {}
        self.paused_until: dict[Loop, float] = {}
        self._make_checkers()
        self.report.jobs = len(self.world.jobs.arrivals)
        self.last_fault, self.faults = EPOCH, 0
        self.changed, self.seen = EPOCH, 0  # when any object did, and what that made of the store
        self.active: dict[str, str] = {}  # bound pods at the last look: gang by uid
        self.last_look = LastLook()
        self.disturbed: dict[str, None] = {}  # gangs that lost pods otherwise than by preemption
        self.admitted_at = -NEVER
        self.bound_at = {JOBS: -NEVER, TREES: -NEVER, GANGS: -NEVER}  # when a pod of a family was bound last
        self.checks = 0

    def _make_checkers(self) -> None:
        heal_seconds = self.world.profile.heal_seconds
        self.claims, self.job_checker = (
            ClaimChecker(self.processes, self.zones),
            JobGangChecker(self.jobs.written),
        )
        self.quota_checker = QueueChecker(is_quarantined=self.is_quarantined)
        self.tree_checker, self.pod_checker = SubgroupChecker(heal_seconds), PodChecker(heal_seconds)

    # ── processes ──

    def controllers(self) -> Sequence[Controller]:
        """The scheduler and the grouper, and the roles of admission if there is one process."""
        cluster = ClusterState()
        self.scheduler = self._new_scheduler(cluster)
        self.tree_checker.restarted()
        self.pod_checker.restarted()
        binding = (self.scheduler, PodGrouperController()) if self.world.with_grouper else (self.scheduler,)
        return binding if self.processes == 2 else (*self._admission_controllers(cluster), *binding)

    def _new_scheduler(self, cluster: ClusterState | None = None) -> SchedulerController:
        grouper = self.world.with_grouper
        return SchedulerController(self.world.profile, awaits_grouper=grouper, cluster=cluster)

    def _admission_controllers(self, cluster: ClusterState | None = None) -> Sequence[Controller]:
        settings = self.world.settings
        self.admission = AdmissionController(settings.profile, cluster=cluster)
        return (
            self.admission,
            ProvisioningController(),
            JobsController(settings.pods_ready),
            UngatingController(settings.batch_seconds),
            NodeHealthController(settings.health),
        )

    def start(self) -> None:
        """Start the process that binds; the first time also that of admission, if it is another one."""
        super().start()
        if self.processes == 2 and self.second is None:
            self.second = self.new_process(self._admission_controllers())

    def loops(self) -> Sequence[Loop]:
        return (self.loop,) if self.second is None else (self.loop, self.second[1])

    def step_processes(self) -> float:
        """Two processes step in random order, and while there are faults each of them pauses now and then."""
        if self.second is None:
            return super().step_processes()
        self._read_at_once(self.second[0])
        for loop in self.rng.sample(self.loops(), 2):
            if self.now < self.paused_until.get(loop, self.now):
                continue
            self.dues[loop] = loop.step(self.now)
            chance = PAUSE_DENSE if self.is_dense else PAUSE
            if self.now < EPOCH + self.fault_seconds and self.rng.random() < chance:
                self.report.faults["pause"] += 1
                self.paused_until[loop] = self.now + self.rng.uniform(*PAUSE_SECONDS)
        return min(self.dues.get(loop, self.now) for loop in self.loops())

    def _read_at_once(self, second: RecordingBackend) -> None:
        """In a dense world both processes often read before either of them writes."""
        faulty = self.is_dense and self.now < EPOCH + self.fault_seconds
        at_once = faulty and self.pace.random() < AT_ONCE
        for backend in (self.backend, second):
            backend.stale = at_once
            if at_once:
                backend.read()

    def inject_faults(self) -> None:
        super().inject_faults()
        if self.second is not None and (self.second[0].dead or self.occurs("crash")):
            self.second = self.new_process(self._admission_controllers())

    def end_faults(self) -> None:
        super().end_faults()
        self.paused_until.clear()  # a pause is a fault: who has not read all events is not idle
        if self.second is not None:
            self.second[0].calm()

    def recover_all(self) -> None:
        for actors in (self.jobs, self.gangs, self.trees):
            actors.recover_all()
        self.last_fault = self.now

    def act(self) -> None:
        super().act()
        faults = self.report.faults.total() - self.report.faults["pause"]  # these are short
        if faults != self.faults:
            self.last_fault, self.faults = self.now, faults
        if self.store.version != self.seen:
            self.changed, self.seen = self.now, self.store.version

    # ── what may never be seen ──

    def problems(self) -> Iterator[str]:
        self.checks += 1
        self._note_disturbed()
        seen = self.scheduler.state.store.pods
        held = {ref.name for ref in self.scheduler.state.store.claims.gangs}
        yield from self.claims.check(self.listed, self.now, self.last_fault, seen, held.__contains__)
        self.job_checker.taken = self.claims.taken(self.now)
        yield from self.job_checker.check(self._of_jobs, self.now)
        admissions = self.quota_checker.admissions
        yield from self.quota_checker.check(self._without_pods, self.now)
        if self.quota_checker.admissions != admissions:
            self.admitted_at = self.now
        yield from state_checker.check_consistency(self.admission.state)
        if self.checks % CAPACITY_CHECK_STEPS == 0:
            yield from state_checker.check_free_capacity(self.admission.state)
        yield from check_consistency(self.scheduler.state)
        last_change = max(self.outcome_lost_at, self.started_at, self.trees.changed_at)
        exact = self.now - last_change > UNCERTAIN_SECONDS
        yield from self.tree_checker.check(
            self._of_trees, self.now, seen, exact=exact and not self._groups_were_deleted()
        )
        yield from self.pod_checker.check(
            self._of_gangs, self.now, lambda pod: "", self.disturbed, exact=exact
        )

    def _groups_were_deleted(self) -> bool:
        """Whether a group was deleted: its pods count for no queue until it is created again."""
        return bool(self.trees.injected["group_deleted"] + self.trees.injected["gang_deleted"])

    def _note_disturbed(self) -> None:
        """Remember the gangs that lost bound pods, unless the scheduler preempted those.

        Also when pods that no queue knows were bound: they may use what a preempted gang left before the gang
        that preempted it is admitted.
        """
        if self.last_look.repeats(self.listed("pods")):
            return
        bound = [
            pod
            for pod in self.listed("pods")
            if pod["spec"].get("nodeName") and not is_terminating(pod) and phase_of(pod) != "Failed"
        ]
        active = {pod["metadata"]["uid"]: gang_of_pod(pod) for pod in bound}
        for pod in bound:
            if pod["metadata"]["uid"] not in self.active:
                self.bound_at[family_of(pod)] = self.now
        self.quota_checker.outside = max(self.bound_at[TREES], self.bound_at[GANGS])
        for uid, gang in self.active.items():
            if uid not in active and uid not in self.pod_checker.preempted:
                self.disturbed[gang] = None
        self.active = active

    def check_plan(self, plan: Plan) -> Iterator[str]:
        of_trees = Plan(tuple(one for one in plan.actions if _dialect(one) == names.DIALECT))
        yield from self.tree_checker.check_plan(of_trees, self._last_seen, self.scheduler.state, self.now)
        others = Plan(tuple(one for one in plan.actions if _dialect(one) != names.DIALECT))
        yield from self.pod_checker.check_plan(others, self._of_gangs, self.now)

    def _last_seen(self, plural: str) -> list[Object]:
        """All objects of a kind as the scheduler has last seen them."""
        kind = WATCHED[plural]
        known = (event.object for (of, _, _), event in self.backend.known.items() if of == kind)
        return [msgspec.to_builtins(one) for one in known]

    # ── the parts of the cluster ──

    def _of_jobs(self, plural: str) -> Sequence[Object]:
        """List objects of a kind; of pods, only those of queued jobs."""
        return of_queued_jobs(self.listed(plural)) if plural == "pods" else self.listed(plural)

    def _of_owned_jobs(self, plural: str) -> Sequence[Object]:
        """The same without queued groups of plain pods, which no job owns."""
        found = self._of_jobs(plural)
        if plural == "workloads":
            return [one for one in found if not pod_groups.is_of_pods(one)]
        return [pod for pod in found if not pod_groups.group_of(pod)] if plural == "pods" else found

    def _of_trees(self, plural: str) -> Sequence[Object]:
        """List objects of a kind; groups are those with sub-groups."""
        return self.listed("trees" if plural == "groups" else plural)

    def _of_gangs(self, plural: str) -> Sequence[Object]:
        """List objects of a kind: groups of the gang API, and pods that are neither queued nor in a tree."""
        if plural in ("jobs", "jobsets"):
            return ()
        found = self.listed("gangs" if plural == "groups" else plural)
        return of_gangs(found) if plural == "pods" else found

    def _without_pods(self, plural: str) -> Sequence[Object]:
        """List objects of a kind, but no pods: claims are checked more strictly."""
        return () if plural == "pods" else self.listed(plural)

    # ── what must hold whenever nothing is under way, and at the end ──

    def check_idle(self) -> Iterator[str]:
        """While idle: a fresh scheduler has the same state and would bind no other pod."""
        state = self.scheduler.state
        if self.scheduler.admissions.in_doubt() or not self.is_checkable():
            return
        fresh = self._new_scheduler()
        view = self.load_fresh(fresh)
        yield from check_same_state(state, fresh.state, with_nominations=self.outcome_lost_at == -NEVER)
        yield from check_same_queue_usage(state, fresh.state)
        for action in self.would_do(fresh, view):
            if isinstance(action, Bind):
                yield f"pod {action.pod.key.name} would fit on {action.node} but is pending"
            else:
                yield f"{action.by.name} could have {action.pod.key.name} preempted but is pending"

    def final_violations(self) -> Iterator[str]:
        if not self.is_quiet() and self.now - self.changed < REST_SECONDS:
            yield f"work continues after {self.now - EPOCH:.0f} s"
        for entry in self.scheduler.state.entries():
            if entry.state not in RESTING_STATES:
                yield f"{entry.ref.name} stays {entry.state} forever"
        yield from self.claims.check_end(self.listed)
        yield from self.quota_checker.check(self._without_pods, self.end)
        yield from jobs_checkers.final_violations(self._of_owned_jobs, self.jobs.written)
        yield from pod_groups.final_violations(self.listed, self.pod_groups.groups)
        yield from state_checker.final_violations(self.admission, self.store, self.now, self.error_injection)
        yield from self.tree_checker.check(self._of_trees, self.end, None, exact=False)
        yield from self.pod_checker.check(
            self._of_gangs, self.end, lambda pod: "", self.disturbed, exact=False
        )
        yield from self.tree_checker.check_useful_preemptions(self._undisturbed_since(JOBS, GANGS))
        yield from self.pod_checker.check_useful_preemptions(self._undisturbed_since(JOBS, TREES))
        yield from check_no_partial_groups(self._of_trees)
        yield from check_pending_reasons(self.listed)
        yield from check_group_status(self._of_trees)
        yield from check_queue_status(self._of_trees)

    def _undisturbed_since(self, *families: str) -> float:
        """Since when no fault happened, no gang was admitted and no pod of these families was bound.

        Each of them may use what another pod was preempted for.
        """
        disturbed = (self.last_fault, self.started_at, self.outcome_lost_at, self.admitted_at)
        return max(*disturbed, *(self.bound_at[family] for family in families)) + UNCERTAIN_SECONDS

    def summarize(self) -> None:
        jobs = [*self.listed("jobs"), *self.listed("jobsets")]
        self.report.finished = sum(
            any(c["status"] == "True" for c in (job.get("status") or {}).get("conditions") or ())
            for job in jobs
            if job["metadata"]["uid"] in self.jobs.written
        )
        self.report.workloads = len(self.listed("workloads"))
        self.report.admissions = self.quota_checker.admissions
        for actors in (self.jobs, self.gangs, self.trees):
            self.report.faults.update(actors.injected)
        self.report.faults["crossed"] += self.claims.crossed
        self.report.faults["displaced"] += len(
            self.tree_checker.preempted | self.pod_checker.preempted.keys()
        )


def _dialect(action: Any) -> str:
    gang = action.by if isinstance(action, PreemptPod) else action.gang
    return str(gang.dialect)
