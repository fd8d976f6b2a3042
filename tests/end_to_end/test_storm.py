"""Bayplan is killed again and again, and kube-apiserver under it, while jobs flow through a real cluster.

Moments and jobs come from one seed; BAYPLAN_STORM_SEED repeats it, as far as a real machine repeats itself.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.end_to_end.admission_site import Site, installed
from tests.end_to_end.objects import Object, eventually
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
    bind_all,
    delete_some,
    meanwhile,
    submit_all,
)
from tests.end_to_end.storm_checker import Checker, forgotten, left
from tests.end_to_end.storm_jobs import QUOTAS, hall, jobs, queues
from tests.end_to_end.test_kueue_api import CONFIGURATIONS, patch
from tests.support.listening import free_address
from tools.controlplane.plan import APISERVER, CONTROLLERS
from tools.controlplane.start import restart

if TYPE_CHECKING:
    from bayplan.runtime.webhooks.http_server import Address
    from tools.controlplane.cluster import Cluster

pytestmark = pytest.mark.long
log = logging.getLogger(__name__)
SEED = int(os.environ.get("BAYPLAN_STORM_SEED") or secrets.randbelow(1_000_000))
ALL_JOBS, JOB_SETS_AMONG_THEM = 200, 8
KILLS, CUTS = 10, 3
USERS, PODS_DELETED = 6, 15
AT_WORK = 0.8
"""How often it is killed once it works; else while it starts."""
PATIENCE, LIMIT = 180.0, 900.0
"""Seconds without any change, and in all, until what is missing is given up."""
REMINDER = 60.0
"""Seconds without any change until a Job controller that owes pods is started anew.

One that was not told how a creation ended while the API server was away expects it for five minutes, and
looks again only when something happens to that Job: never, if nothing does. Starting it anew tells Bayplan
nothing, so what Bayplan has missed stays missed.
"""
PARTIAL_PATIENCE = 90.0
"""Seconds that a gang may have some pods on their way and others gated, whoever is down meanwhile."""


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A cluster with hosts and queues, and nobody yet who admits."""
    folder = tmp_path_factory.mktemp("storm")
    with installed(cluster, "storm-test", folder, may_be_refused=True) as found:
        found.add_hosts(*hall())
        found.apply(*queues())
        yield found
        sweep(Api.of(cluster))


def sweep(api: Api) -> None:
    """After a failure, leave nothing that others would trip over."""
    for path in (JOB_SETS, JOBS, PODS):
        api.ask("DELETE", f"{path}?propagationPolicy=Background")
    for one in api.items(WORKLOADS):
        with suppress(Unanswered):
            bare = {**one, "metadata": {**one["metadata"], "finalizers": []}}
            api.ask("PUT", f"{WORKLOADS}/{one['metadata']['name']}", bare)


# ── who is killed ─────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Bayplan:
    """All of it in one process, which is killed and followed by another."""

    site: Site
    folder: Path
    options: tuple[str, ...]
    address: Address  # of its probes
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def begin(self) -> None:
        command = [sys.executable, "-m", "bayplan", "run", "--roles=admission,webhooks", *self.options]
        command += [f"--namespace={self.site.namespace}", f"--kubeconfig={self.site.kubeconfig}"]
        with (self.folder / f"log-{len(self.processes)}").open("w") as log:
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log))

    def is_at_work(self) -> bool:
        """Whether it has listed everything, leads, and goes round."""
        connection = http.client.HTTPConnection(self.address.host, self.address.port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self) -> None:
        """Without warning; it must have been there until then."""
        status = self.processes[-1].poll()
        assert status is None, f"it ended by itself with status {status}: {self.logs()[-1][-2000:]}"
        self.processes[-1].kill()
        self.processes[-1].wait()

    def end(self) -> None:
        """The last one, as a kubelet would end it."""
        self.processes[-1].terminate()
        assert self.processes[-1].wait(60) == 0, self.logs()[-1][-2000:]

    def logs(self) -> list[str]:
        return [(self.folder / f"log-{number}").read_text() for number in range(len(self.processes))]


@contextmanager
def bayplan(site: Site, folder: Path, *options: str) -> Iterator[Bayplan]:
    """The first of these processes, and whatever comes after it."""
    hooks, probes = free_address(), free_address()
    given = (f"--webhook-listen={hooks}", f"--listen={probes}", "--pod-batch-seconds=0.1", *options)
    found = Bayplan(site, folder, given, probes)
    with answering_at(site.cluster, f"https://{hooks}"):
        found.begin()
        try:
            yield found
            found.end()
        finally:
            found.processes[-1].kill()
            found.processes[-1].wait()
    bugs = [text[text.index("Traceback") :][:4000] for text in found.logs() if "Traceback" in text]
    assert not bugs, "\n".join(bugs)


@contextmanager
def answering_at(cluster: Cluster, url: str) -> Iterator[None]:
    """For a while another replica is asked what people may write."""
    known = {kind: cluster.get(kind, "bayplan")["webhooks"] for kind in CONFIGURATIONS}
    before = next(hook["clientConfig"]["url"] for hooks in known.values() for hook in hooks)

    def point(server: str) -> None:
        for kind, hooks in known.items():
            for hook in hooks:
                path = hook["clientConfig"]["url"].rpartition("/")[2]
                hook["clientConfig"]["url"] = f"{server}/{path}"
            patch(cluster, kind, "bayplan", "json", [{"op": "replace", "path": "/webhooks", "value": hooks}])

    point(url)
    try:
        yield
    finally:
        point(before.rpartition("/")[0])


# ── what is looked at ─────────────────────────────────────────────────────────────────────────────


def unfinished(api: Api, wanted: int) -> list[str]:
    """What is missing until all jobs have come to their end."""
    whole = [*api.items(JOB_SETS), *(one for one in api.items(JOBS) if not _has_parent(one))]
    found = [one for one in whole if one["metadata"]["name"].startswith("storm")]  # others share the cluster
    told = [f"{wanted - len(found)} jobs are not there"] if len(found) != wanted else []
    ours = [one for one in api.items(QUEUES) if one["metadata"]["name"] in QUOTAS]
    return [*told, *left(found, api.items(WORKLOADS), api.items(PODS), ours)]


def _has_parent(job: Object) -> bool:
    return any(owner.get("controller") for owner in job["metadata"].get("ownerReferences") or ())


def leftovers(api: Api) -> list[str]:
    """What is still there, when everything was deleted."""
    return [
        f"{one['kind']} {one['metadata']['name']} is there, finalizers {one['metadata'].get('finalizers')}"
        for path in (JOB_SETS, JOBS, WORKLOADS, PODS)
        for one in api.items(path)
    ]


def remind(cluster: Cluster, api: Api) -> None:
    """Let the Job controller begin anew, if there are Jobs whose pods it has forgotten to make."""
    names = forgotten(api.items(JOBS), api.items(PODS))
    if names:
        log.warning("the Job controller owes pods to %s; it is started anew", ", ".join(names))
        restart(cluster, CONTROLLERS)


def wait_until_none(missing: Callable[[], list[str]], remind: Callable[[], None] = lambda: None) -> list[str]:
    """What is still missing when nothing has changed for too long; a slow machine is no reason to give up."""
    before, changed, began = list[str](), time.monotonic(), time.monotonic()
    reminded = False
    while True:
        try:
            found = missing()
        except Unanswered as trouble:
            found = [str(trouble)]
        now = time.monotonic()
        if found != before:
            before, changed = found, now
        if not reminded and now - changed > REMINDER:
            reminded = True
            remind()
        if not found or now - changed > PATIENCE or now - began > LIMIT:
            return found
        time.sleep(2.0)  # to look at everything is work for the API server


def weather(
    site: Site,
    folder: Path,
    disturb: Callable[[Bayplan, random.Random], None],
    *options: str,
    may_be_refused: bool = False,
) -> None:
    """Let jobs flow through while something is disturbed; then tell everything that was ever wrong."""
    dice = random.Random(SEED)
    api, began = Api.of(site.cluster), time.monotonic()
    log.warning("the seed of this storm is %d", SEED)
    nodes = [one for one in api.items(NODES) if one["metadata"]["name"].startswith("storm-")]
    purses = [one for one in api.items(QUEUES) if one["metadata"]["name"] in QUOTAS]
    watchers = [Recorder(api, PODS, began), Recorder(api, WORKLOADS, began)]
    given = jobs(ALL_JOBS, JOB_SETS_AMONG_THEM, dice)
    users = [
        partial(submit_all, api, given[number::USERS], random.Random(dice.random()), 1.0)
        for number in range(USERS)
    ]
    vandal = partial(delete_some, api, random.Random(dice.random()), PODS_DELETED, 3.0)
    with ExitStack() as stack:
        stack.enter_context(meanwhile(*(one.run for one in watchers), partial(bind_all, site.cluster)))
        process = stack.enter_context(bayplan(site, folder, *options))
        with meanwhile(*users, vandal):
            disturb(process, dice)
            log.warning("quiet after %.0f s", time.monotonic() - began)
            wrong = wait_until_none(partial(unfinished, api, ALL_JOBS), partial(remind, site.cluster, api))
        log.warning("all jobs ended after %.0f s", time.monotonic() - began)
        for path in (JOB_SETS, JOBS):
            api.ask("DELETE", f"{path}?propagationPolicy=Background")
        wrong += wait_until_none(partial(leftovers, api))
    history = [seen for one in watchers for seen in one.seen]
    (folder / "history.jsonl").write_text("".join(f"{json.dumps(asdict(seen))}\n" for seen in history))
    log.warning("%d states, %d lives, %.0f s", len(history), len(process.processes), time.monotonic() - began)
    if not may_be_refused:
        wrong += [line for text in process.logs() for line in text.splitlines() if "forbidden" in line]
    wrong += Checker(nodes, purses, PARTIAL_PATIENCE).judge(history)
    assert not wrong, "\n  ".join([f"seed {SEED}, history in {folder}:", *wrong[:100]])


def test_killed_at_random_moments_every_job_ends_and_no_gang_is_torn(site: Site, tmp_path: Path) -> None:
    def kill(process: Bayplan, dice: random.Random) -> None:
        for _ in range(KILLS):
            if dice.random() < AT_WORK:
                eventually(process.is_at_work, "it is at work")
            time.sleep(dice.uniform(0, 4))
            process.kill()
            process.begin()

    weather(site, tmp_path, kill, "--no-elect")


def test_with_the_api_server_restarted_under_it_every_job_ends(site: Site, tmp_path: Path) -> None:
    def cut_off(process: Bayplan, dice: random.Random) -> None:
        for number in range(CUTS):
            eventually(process.is_at_work, "it is at work")
            time.sleep(dice.uniform(0, 6))
            if number == CUTS - 1:
                process.kill()
            restart(site.cluster, APISERVER, dice.uniform(0, 2))
        process.begin()

    weather(site, tmp_path, cut_off, may_be_refused=True)
