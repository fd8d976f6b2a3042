"""A local cluster in this process: an in-memory store, fake controllers, the loop, and an API for kubectl."""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from bayplan.assembly.in_process_webhooks import register_webhooks
from bayplan.assembly.install_settings import NAME, NAMESPACE
from bayplan.backends.crds import DEFINITIONS, define
from bayplan.backends.embedded.cluster import new_store
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.backends.embedded.http.kubeconfig_merge import Merged
from bayplan.backends.embedded.http.server import ApiServer
from bayplan.backends.fake_controllers.controller_manager import FakeControllerManager
from bayplan.backends.fake_controllers.crds import foreign_crds
from bayplan.backends.fake_controllers.device_claims import CLASSES, SLICES
from bayplan.backends.fake_controllers.manifests import Object, device_class, node, resource_slice, topology
from bayplan.configuration.settings import DEFAULTS, Settings
from bayplan.dialects.errors import ApiError
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kai.api.names import DIALECT as POD_GROUPS_DIALECT
from bayplan.dialects.kube.decode.wire import NODES
from bayplan.dialects.kube.encode.gang_messages import message_for
from bayplan.dialects.kueue.decode import scheduled_jobs
from bayplan.explanation.misfit import brief
from bayplan.model.assignment import Misfit
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, Topology
from bayplan.model.plan import Bind, Plan, PreemptPod, ReportUnschedulable
from bayplan.model.rejection import Rejection
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.provisioning.controller import ProvisioningController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.ungating import UngatingController
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.journal import Journal, NullJournal
from bayplan.runtime.core.loop import Loop
from bayplan.state.cluster.shared_state import ClusterState

IDLE_SECONDS = 0.2
DECISIONS_MAX = 200
DEFAULT_SCHEDULER = "default-scheduler"
OUR_USER = f"system:serviceaccount:{NAMESPACE}:{NAME}"
CONTROLLERS_USER = "system:serviceaccount:kube-system:controllers"


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The size of the cluster."""

    blocks: int = 4
    racks: int = 4  # per block
    hosts: int = 8  # per rack
    gpus: int = 8  # per host
    devices: int = 0  # per host, to be had by claim

    @property
    def nodes(self) -> int:
        return self.blocks * self.racks * self.hosts


class DecisionLog:
    """The last decisions as text; everything goes on to the journal."""

    def __init__(self, why: Callable[[Rejection, Ref], str], journal: Journal) -> None:
        self.why, self.journal = why, journal
        self.lines: deque[tuple[float, str]] = deque(maxlen=DECISIONS_MAX)
        self.decided = 0

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        """Add a line for each gang of a plan."""
        self.journal.record(now, what, body, role)
        if what != "plan" or not isinstance(body, Plan):
            return
        placed: dict[Any, list[str]] = {}
        for action in body.actions:
            match action:
                case Bind(gang, _, node):
                    placed.setdefault(gang, []).append(node)
                case ReportUnschedulable(gang, why, changed=True):
                    self.say(now, f"{gang.kind} {gang.name} is pending: {self.why(why, gang)}")
                case PreemptPod(pod, by):
                    self.say(now, f"Pod {pod.key.name} is preempted for {by.kind} {by.name}")
        for gang, nodes in placed.items():
            hosts = sorted(set(nodes))
            where = hosts[0] if len(hosts) == 1 else f"{hosts[0]} … {hosts[-1]} ({len(hosts)} hosts)"
            pods = "1 pod" if len(nodes) == 1 else f"{len(nodes)} pods"
            self.say(now, f"{gang.kind} {gang.name} starts: {pods} on {where}")

    def say(self, now: float, line: str) -> None:
        """Add a line."""
        self.lines.append((now, line))
        self.decided += 1


class LocalCluster:
    """The cluster of `bayplan up`. One thread runs fake controllers and loop; the API server has its own."""

    def __init__(
        self,
        shape: ClusterShape,
        clock: Clock,
        port: int = 0,
        settings: Settings = DEFAULTS,
        *,
        grouper: bool = False,
        journal: Journal | None = None,
    ) -> None:
        self.clock, self.shape = clock, shape
        self.lock = threading.RLock()
        letters = Random(uuid.uuid4().int)
        self.store = new_store(
            clock.wall,
            lambda: str(uuid.uuid4()),
            lambda: "".join(letters.choices("bcdfghjklmnpqrstvwxz", k=5)),
        )
        self._populate(grouper)
        self.decision_log = DecisionLog(self.reason_text, journal or NullJournal())
        self.containment = Containment(self._report)
        self.controller_manager = FakeControllerManager(
            EmbeddedBackend(self.store, self.lock, CONTROLLERS_USER), failed=self._contained
        )
        self.backend = EmbeddedBackend(self.store, self.lock, OUR_USER)
        cluster = ClusterState()
        self.scheduler = SchedulerController(
            None,
            {DEFAULT_SCHEDULER: settings.profile} | settings.profiles,
            settings.numa_staleness,
            awaits_grouper=grouper,
            one_by_one={DEFAULT_SCHEDULER} - settings.profiles.keys(),
            cluster=cluster,
        )
        self.admission = AdmissionController(
            settings.profile, settings.resources, numa_policy=settings.numa_staleness, cluster=cluster
        )
        jobs = JobsController(settings.pods_ready_policy, settings.feature_switches)
        ungating = UngatingController(settings.ungating.batch_seconds)
        others = (ProvisioningController(), jobs, ungating, NodeHealthController(settings.nodes))
        groups = (PodGrouperController(settings.profiles, settings.grouper),) if grouper else ()
        roles = (*groups, self.scheduler, self.admission, *others)
        self.loop = Loop(self.backend, roles, self.decision_log, containment=self.containment)
        self.api_server = ApiServer(self.store, self.lock, port=port)
        self._merged: Merged | None = None  # the kubeconfig with our context
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="bayplan-loop", daemon=True)
        self.error: BaseException | None = None

    def start(self, kubeconfig: Path) -> None:
        """Start the API server, add its context to a kubeconfig, and start the loop."""
        self.api_server.start()
        try:
            self._merged = self.api_server.merge_kubeconfig(kubeconfig)
        except ApiError:
            self.api_server.stop()
            raise
        self._thread.start()

    def stop(self) -> None:
        """Remove the context from the kubeconfig, and stop all threads."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(10)
        self.api_server.stop()
        self.decision_log.journal.close()
        if self._merged is not None:
            self._merged.take_out()
            self._merged = None

    def step(self) -> float:
        """Run everything that is due; return the time of the next step."""
        with self.lock:
            now = self.clock.wall()
            return min(self.controller_manager.step(now), self.loop.step(now))

    def submit(self, job: Object) -> None:
        """Create a job, as a user would."""
        with self.lock:
            self.store.create(JOBS, job)

    def jobs(self) -> list[Object]:
        with self.lock:
            return self.store.list(JOBS).items

    def misfit_text(self, misfit: Misfit) -> str:
        """A misfit as text, as in `bayplan place`."""
        clusters = self.scheduler.state.store.nodes.topologies
        cluster = clusters.get(misfit.topology)
        return brief(misfit, Topology("", (HOSTNAME,)) if cluster is None else cluster.topology)

    def reason_text(self, why: Rejection, gang: Ref) -> str:
        """Why a gang is pending, as in `bayplan place` where that explains it."""
        if gang.dialect == POD_GROUPS_DIALECT:
            return self.scheduler.message_for(gang, why)
        return (
            self.misfit_text(why.misfit)
            if why.misfit is not None
            else message_for(why, gang, self.misfit_text)
        )

    def _contained(self, error: Exception, kind: str, name: str) -> None:
        self.containment.failed(error, "controllers", kind, name)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                due = self.step()
                self.backend.wait(max(min(due - self.clock.wall(), IDLE_SECONDS), 0.01))
        except BaseException as error:
            self.error = error
            raise

    def _report(self, sentence: str, error: BaseException, **facts: str) -> None:
        """Show a contained error among the decisions."""
        self.decision_log.say(self.clock.wall(), f"{sentence}: {error!r} (error id {facts['id']})")

    def _populate(self, grouper: bool) -> None:
        """Create kinds, topology and nodes, and register the webhooks."""
        register_webhooks(self.store)
        define(self.store, groups=grouper)
        for definition in foreign_crds():
            self.store.create(DEFINITIONS, definition)
        self.store.create(scheduled_jobs.TOPOLOGIES, topology())
        plain = replace(NODES, wire=None)
        for host in nodes(self.shape):
            self.store.create(plain, host)
            if self.shape.devices:
                self.store.create(SLICES, resource_slice(host["metadata"]["name"], self.shape.devices))
        if self.shape.devices:
            self.store.create(CLASSES, device_class())


def nodes(shape: ClusterShape) -> list[Object]:
    """Ready nodes, named after their block, rack and host."""
    hosts = []
    for block in range(shape.blocks):
        for rack in range(shape.racks):
            for host in range(shape.hosts):
                place = f"b{block + 1:02d}", f"r{rack + 1:02d}"
                hosts.append(node(f"{'-'.join(place)}-h{host + 1:02d}", *place, shape.gpus))
    return hosts
