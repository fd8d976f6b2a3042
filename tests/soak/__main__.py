"""`python -m tests.soak --minutes 60`: a real control plane, all families, a fault every few minutes."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
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
from tests.end_to_end.storm_checker import condition
from tests.end_to_end.test_storm import answering_at
from tests.soak.faults import FAULTS, Stage, fill_disk
from tests.soak.judge import Judge
from tests.soak.load import GANGS, GPUS_OF_HOST, GROUPS, JOB_SET, NAME, Submission, hosts, rules, submission
from tests.soak.proxy import Balancer
from tests.soak.replicas import Replica, replicas
from tests.soak.report import GROWTH_MAX, Findings, growth, told, write
from tests.support.listening import free_address
from tools.controlplane.build import unavailable
from tools.controlplane.cluster import Cluster
from tools.controlplane.plan import DEFAULT_KUBE
from tools.controlplane.start import control_plane

TARGET = 0.7
"""Of all GPUs are asked for by gangs that have not ended."""
PARTIAL_SECONDS = 300.0
STUCK_SECONDS = 1200.0
SAMPLE_SECONDS = 10.0
FINISHED = ("Complete", "Completed", "Failed")


def main() -> int:
    """Run, write the report, and return 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument(
        "--minutes", type=float, default=60.0, help="of load and faults (default %(default)s)"
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--every", type=float, default=180.0, metavar="SECONDS", help="between two faults")
    parser.add_argument(
        "--lasts", type=float, default=30.0, metavar="SECONDS", help="a fault lasts that long"
    )
    parser.add_argument("--run-seconds", type=int, nargs=2, default=(30, 180), metavar=("MIN", "MAX"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, default=Path("build/soak"))
    wishes = parser.parse_args()
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    if reason := unavailable(kube):
        print(f"Skipped: {reason}")
        return 0 if os.environ.get("CI") != "true" else 1
    with tempfile.TemporaryDirectory(prefix="bayplan-soak-") as name:
        with control_plane(kube, Path(name) / "cluster") as cluster:
            findings = Soak(wishes, cluster, Path(name)).run()
        if findings.violations:
            _keep_logs(Path(name), wishes.report)
    write(findings, wishes.report)
    print(told(findings), flush=True)
    print(f"Report: {wishes.report / 'soak.json'}, {wishes.report / 'soak.png'}")
    return 1 if findings.violations else 0


class Soak:
    """One run."""

    def __init__(self, wishes: argparse.Namespace, cluster: Cluster, folder: Path) -> None:
        self.wishes, self.cluster, self.folder = wishes, cluster, folder
        self.api = Api.of(cluster)
        self.findings = Findings(_commit(), wishes.seed, nodes=wishes.nodes)
        self.dice = random.Random(wishes.seed)
        self.open: dict[str, tuple[Submission, float]] = {}  # submitted and not ended, and since when
        self.began = time.monotonic()

    def run(self) -> Findings:
        """Furnish, load, break, wait for the end, judge."""
        wishes, gpus = self.wishes, self.wishes.nodes * GPUS_OF_HOST
        roles = ("admission", "scheduler", "webhooks")
        with ExitStack() as stack:
            site = stack.enter_context(
                installed(self.cluster, "soak-test", self.folder, may_be_refused=True, roles=roles)
            )
            for start in range(0, wishes.nodes, 200):
                site.add_hosts(*hosts(wishes.nodes)[start : start + 200])
            site.apply(*rules(gpus))
            addresses = [str(free_address()), str(free_address())]
            balancer = stack.enter_context(Balancer(addresses))
            stack.enter_context(answering_at(site.cluster, f"https://{balancer.address}"))
            alive = stack.enter_context(replicas(site, self.folder, addresses))
            nodes = [one for one in self.api.items(NODES) if one["metadata"]["name"].startswith(NAME)]
            queues = [one for one in self.api.items(QUEUES) if one["metadata"]["name"].startswith(NAME)]
            judge = Judge(nodes, queues, PARTIAL_SECONDS)
            self.began = judge.began = time.monotonic()
            pods = Recorder(self.api, PODS, self.began, take=judge.take_pod)
            workloads = Recorder(self.api, WORKLOADS, self.began, take=judge.take_workload)
            stage = Stage(site.cluster, self.api, alive, random.Random(wishes.seed + 1), wishes.lasts, None)
            with meanwhile(pods.run, workloads.run, partial(self._watch_over, alive, judge)):
                with meanwhile(partial(self._load, gpus), partial(self._break, stage)):
                    time.sleep(60 * wishes.minutes)
                self._wait_for_the_end()
            self.findings.violations += judge.violations()
            self.findings.violations += [line for one in alive for line in one.ended]
            self.findings.events = judge.events
            self._clean()
        self.findings.seconds = time.monotonic() - self.began
        for name, value in growth(self.findings.samples).items():
            if value > GROWTH_MAX:
                self.findings.violations.append(f"the memory of {name} grew by {100 * value:.1f} %")
        return self.findings

    # ── load ───────────────────────────────────────────────────────────────────────────────────────

    def _load(self, gpus: int, stop: threading.Event) -> None:
        """Keep so many GPUs asked for; take note of what has ended, and delete it."""
        number, counts = 0, Counter[str]()
        while not stop.is_set():
            asked = sum(one.gpus for one, _ in self.open.values())
            while asked < TARGET * gpus and not stop.is_set():
                given = submission(number, self.dice, tuple(self.wishes.run_seconds))
                number += 1
                for path, obj in given.objects:
                    self.api.create(path, obj)
                self.open[given.name] = (given, time.monotonic())
                counts[given.family] += 1
                asked += given.gpus
            self.findings.submitted = dict(counts)
            self._collect()
            stop.wait(2.0)

    def _collect(self) -> None:
        """Gangs that ended are counted and deleted."""
        try:
            found = {
                one["metadata"]["name"]: one
                for path in (JOBS, JOB_SETS)
                for one in self.api.items(path)
                if one["metadata"]["name"] in self.open
            }
            for name, one in found.items():
                over = [kind for kind in FINISHED if condition(one, kind).get("status") == "True"]
                if over:
                    self._ended(name, over[0])
        except Unanswered:
            return

    def _ended(self, name: str, how: str) -> None:
        given, since = self.open[name]
        path = JOB_SETS if given.family == JOB_SET else JOBS
        self.api.ask("DELETE", f"{path}/{name}?propagationPolicy=Background")
        for other, obj in given.objects:
            if other in (GROUPS, GANGS):
                self.api.ask("DELETE", f"{other}/{obj['metadata']['name']}")
        del self.open[name]
        if how == "Failed":
            self.findings.violations.append(f"{name} failed")
        self.findings.finished += 1
        took = time.monotonic() - since - self.wishes.run_seconds[1]
        self.findings.slowest_seconds = max(self.findings.slowest_seconds, took)

    def _wait_for_the_end(self) -> None:
        """All gangs end once nothing is broken any more."""
        before, changed = len(self.open), time.monotonic()
        while self.open and time.monotonic() - changed < STUCK_SECONDS:
            time.sleep(3.0)
            self._collect()
            if len(self.open) != before:
                before, changed = len(self.open), time.monotonic()
        for name, (_, since) in self.open.items():
            waited = time.monotonic() - since
            self.findings.violations.append(f"{name} has not ended {waited:.0f} s after it was submitted")

    # ── faults and figures ─────────────────────────────────────────────────────────────────────────

    def _break(self, stage: Stage, stop: threading.Event) -> None:
        kinds = [*FAULTS, *([fill_disk] if stage.journal_disk else [])]
        while not stop.wait(self.wishes.every * stage.dice.uniform(0.5, 1.5)):
            fault = stage.dice.choice(kinds)
            at = time.monotonic() - self.began
            what = fault(stage)
            self.findings.faults.append((at, what))
            print(f"{at:7.0f} s  {what}", flush=True)

    def _watch_over(self, alive: list[Replica], judge: Judge, stop: threading.Event) -> None:
        while not stop.wait(SAMPLE_SECONDS):
            at = time.monotonic() - self.began
            judge.look()
            for replica in alive:
                replica.note_end()
                if (sample := replica.sample(at)) is not None:
                    self.findings.samples.append(sample)
            used = sum(judge.used.values()) / (self.wishes.nodes * GPUS_OF_HOST)
            self.findings.allocation.append((at, used, len(self.open)))

    def _clean(self) -> None:
        for path in (JOB_SETS, JOBS, GROUPS, GANGS, PODS):
            try:
                self.api.ask("DELETE", f"{path}?propagationPolicy=Background")
            except Unanswered:
                continue


def _keep_logs(folder: Path, report: Path) -> None:
    report.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        (report / log.name).write_bytes(log.read_bytes())


def _commit() -> str:
    answer = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
