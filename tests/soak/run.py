"""One soak: furnish a cluster, load it, break things, wait for the end, judge."""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from tests.end_to_end.admission_site import installed
from tests.end_to_end.storm import (
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    QUEUES,
    WORKLOADS,
    Api,
    Recorder,
    Unanswered,
    meanwhile,
)
from tests.end_to_end.storm_checker import forgotten, unstarted
from tests.end_to_end.test_storm import answering_at
from tests.soak.faults import FAULTS, KILLS, Fault, Stage, settled
from tests.soak.judge import CalmClock, Judge
from tests.soak.load import GANGS, GPUS_OF_HOST, GROUPS, NAME, hosts, rules
from tests.soak.proxy import Balancer
from tests.soak.replicas import Replica, replicas
from tests.soak.report import Findings, leaks, steady_at
from tests.soak.users import Users
from tests.support.listening import free_address
from tools.controlplane import processes
from tools.controlplane.cluster import Cluster, load
from tools.controlplane.plan import APISERVER, CONTROLLERS, ETCD, JOBSET, KWOK
from tools.controlplane.start import restart

TARGET = 0.7
"""Of all GPUs are asked for by gangs that have not ended."""
PARTIAL_SECONDS = 60.0
"""That a gang may be bound in part while nothing is broken."""
STUCK_SECONDS = 300.0
"""Without any end of a gang, once nothing is broken."""
SAMPLE_SECONDS = 5.0
REMIND_SECONDS = 90.0
"""That a Job may have too few pods, or a bound pod not run, until what owes them is started anew.

A Job controller that was not told how a creation ended while the API server was away expects it for five
minutes, and looks again only when something happens to that Job. kwok gives up on pods that it cannot write.
"""
AT_WORK = 0.7
"""How often a kill finds a replica that leads; else it comes while they recover from the last one."""
PROGRAMS = {one.name: one for one in (ETCD, APISERVER, CONTROLLERS, KWOK, JOBSET)}


class Soak:
    """One run; everything that starts a process is done in the main thread."""

    def __init__(
        self, wishes: argparse.Namespace, cluster: Cluster, folder: Path, say: Callable[[str], None]
    ) -> None:
        self.wishes, self.cluster, self.folder, self.say = wishes, cluster, folder, say
        self.api = Api.of(cluster)
        self.gpus = wishes.nodes * GPUS_OF_HOST
        self.findings = Findings(commit(), wishes.seed, nodes=wishes.nodes)
        self.users = Users(
            self.api, random.Random(wishes.seed), TARGET * self.gpus, tuple(wishes.run_seconds)
        )
        self.enough = threading.Event()  # asked to end early
        self.owing: dict[str, float] = {}  # Jobs with too few pods, and since when
        self.idle: dict[str, float] = {}  # bound pods that do not run, and since when
        self.began = time.monotonic()

    def run(self) -> None:
        """Furnish, load, break, wait for the end, judge; `findings` has the result."""
        wishes, roles = (
            self.wishes,
            ("admission", "scheduler", "webhooks", "grouper"),
        )  # whose kinds it brings
        with ExitStack() as stack:
            site = stack.enter_context(
                installed(self.cluster, "soak-test", self.folder, may_be_refused=True, roles=roles)
            )
            for start in range(0, wishes.nodes, 200):
                site.add_hosts(*hosts(wishes.nodes)[start : start + 200])
            site.apply(*rules(self.gpus))
            balancer = stack.enter_context(Balancer())
            hooks = [str(free_address()), str(free_address())]
            alive = stack.enter_context(replicas(site, self.folder, hooks))
            balancer.targets = lambda: [one.hooks for one in alive if one.serves]
            stack.enter_context(answering_at(site.cluster, f"https://{balancer.address}"))
            judge = self._judge()
            self.began = judge.began = time.monotonic()
            watching: list[Callable[[threading.Event], None]] = [
                Recorder(self.api, PODS, self.began, take=judge.take_pod).run,
                Recorder(self.api, WORKLOADS, self.began, take=judge.take_workload).run,
                partial(self._sample, alive, judge),
            ]
            stage = Stage(site.cluster, self.api, alive, random.Random(wishes.seed + 1), wishes.lasts)
            with meanwhile(*watching, partial(_probe, alive)):
                with meanwhile(self.users.run):
                    self._break(stage, judge.calm)
                self._wait_for_the_end()
            self._conclude(stage, judge, alive)
            self._clean()

    def _judge(self) -> Judge:
        nodes = [one for one in self.api.items(NODES) if one["metadata"]["name"].startswith(NAME)]
        queues = [one for one in self.api.items(QUEUES) if one["metadata"]["name"].startswith(NAME)]
        return Judge(nodes, queues, PARTIAL_SECONDS)

    # ── faults ─────────────────────────────────────────────────────────────────────────────────────

    def _break(self, stage: Stage, calm: CalmClock) -> None:
        """Break one thing after the other until the time is over, everything at least once."""
        end = time.monotonic() + 60 * self.wishes.minutes
        for number, fault in enumerate(self._faults(stage.dice)):
            over = number >= len(FAULTS) and not self.wishes.kills and time.monotonic() > end
            if over or self.enough.is_set():
                break
            self._idle(self.wishes.every * stage.dice.uniform(0.5, 1.5))
            at = time.monotonic() - self.began
            calm.stop()
            what = fault(stage)
            if not self.wishes.kills or stage.dice.random() < AT_WORK:
                settled(stage)
                calm.start()
            self.findings.faults.append((at, what))
            self.say(f"{at:7.0f} s  {what}")
        settled(stage)
        calm.start()

    def _faults(self, dice: random.Random) -> Iterator[Fault]:
        """All faults in a random order, again and again; or so many kills of each component."""
        rounds = range(self.wishes.kills) if self.wishes.kills else itertools.count()
        for _ in rounds:
            kinds = [*(KILLS if self.wishes.kills else FAULTS)]
            dice.shuffle(kinds)
            yield from kinds

    def _idle(self, seconds: float) -> None:
        """Let time pass and look after the components."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 2.0))
            self._look_after_components()

    def _look_after_components(self) -> None:
        """Start again what ended by itself, and a Job controller or a kwok that has forgotten pods."""
        self.cluster = load(self.cluster.state) or self.cluster
        for process in self.cluster.processes:
            if not processes.alive(process) and process.name in PROGRAMS:
                self._restart(process.name, "it had ended by itself")
        try:
            pods = self.api.items(PODS)
            names = forgotten(self.api.items(JOBS), pods)
        except Unanswered:
            return
        now = time.monotonic()
        self.owing = {name: self.owing.get(name, now) for name in names}
        if any(now - since > REMIND_SECONDS for since in self.owing.values()):
            self.owing = dict.fromkeys(self.owing, now)
            self._restart(CONTROLLERS.name, f"it owed pods to {', '.join(names[:5])}")
        self.idle = {name: self.idle.get(name, now) for name in unstarted(pods)}
        if late := [name for name, since in self.idle.items() if now - since > REMIND_SECONDS]:
            self.idle = dict.fromkeys(self.idle, now)
            self._restart(KWOK.name, f"it did not start {', '.join(late[:5])}")

    def _restart(self, name: str, why: str) -> None:
        at = time.monotonic() - self.began
        self.cluster = restart(self.cluster, PROGRAMS[name])
        self.findings.restarts.append((at, f"{name}: {why}"))
        self.say(f"{at:7.0f} s  started {name} again: {why}")

    # ── the end ────────────────────────────────────────────────────────────────────────────────────

    def _wait_for_the_end(self) -> None:
        """All gangs end once nothing is broken any more."""
        self.findings.loaded_seconds = time.monotonic() - self.began
        before, changed = len(self.users.open), time.monotonic()
        while (self.users.open or self.users.unwanted) and time.monotonic() - changed < STUCK_SECONDS:
            self._idle(2.0)
            self.users.collect()
            if len(self.users.open) != before:
                before, changed = len(self.users.open), time.monotonic()
        for name, gang in self.users.open.items():
            waited = time.monotonic() - gang.since
            self.findings.violations.append(f"{name} has not ended {waited:.0f} s after it was submitted")

    def _conclude(self, stage: Stage, judge: Judge, alive: list[Replica]) -> None:
        """Everything that was found; the replicas end, and their journals are decided on again."""
        found, users = self.findings, self.users
        found.seconds = time.monotonic() - self.began
        found.submitted, found.finished = dict(users.submitted), users.finished
        found.slowest_seconds, found.events = users.slowest, judge.events
        found.violations += [*users.violations, *stage.violations, *judge.violations()]
        for replica in alive:
            replica.end()
            found.violations += replica.ended
            log = replica.log.read_text(errors="replace")
            if "Traceback" in log:
                found.violations.append(f"{replica.name} logged {log.count('Traceback')} tracebacks")
            told, same = replayed(replica.journal)
            found.replays[replica.name] = told
            if not same:
                found.violations.append(f"the journal of {replica.name}: {told}")
        found.violations += leaks(found.samples, self.wishes.warm_up, steady_at(found.allocation))

    def _clean(self) -> None:
        for path in (JOB_SETS, JOBS, GROUPS, GANGS, PODS):
            try:
                self.api.ask("DELETE", f"{path}?propagationPolicy=Background")
            except Unanswered:
                continue

    # ── figures ────────────────────────────────────────────────────────────────────────────────────

    def _sample(self, alive: list[Replica], judge: Judge, stop: threading.Event) -> None:
        while not stop.wait(SAMPLE_SECONDS):
            at = time.monotonic() - self.began
            judge.look()
            for replica in alive:
                replica.note_end()
                if (sample := replica.sample(at)) is not None:
                    self.findings.samples.append(sample)
            used = sum(judge.used.values()) / self.gpus
            self.findings.allocation.append((at, used, len(self.users.open)))


def _probe(alive: list[Replica], stop: threading.Event) -> None:
    while not stop.wait(SAMPLE_SECONDS):
        for replica in alive:
            replica.probe()


def replayed(journal: Path) -> tuple[str, bool]:
    """What `bayplan replay` says of a journal at the end, and whether all decisions are the same."""
    command = [sys.executable, "-m", "bayplan", "replay", "--quiet", str(journal)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (answer.stdout + answer.stderr).strip().splitlines()
    return "; ".join(lines[-4:]), answer.returncode == 0


def commit() -> str:
    """The commit that is checked out, with a plus sign if files differ from it."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return answer.stdout.strip()
