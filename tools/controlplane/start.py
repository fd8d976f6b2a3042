"""Start a control plane in a state folder, component by component, each waited for."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TextIO

from tools.controlplane import certs, components, jobsets, processes
from tools.controlplane.build import build
from tools.controlplane.cluster import Cluster, down, load, save
from tools.controlplane.components import LOOPBACK, PORTS, Site, answers
from tools.controlplane.plan import (
    APISERVER,
    CONTROLLERS,
    DEFAULT_KUBE,
    ETCD,
    JOBSET,
    KUBECTL,
    KWOK,
    NEEDED,
    SCHEDULER,
    Program,
    Trouble,
    check_version,
    default_state,
    switches,
)

PORT_RANGE = range(20000, 32000)
"""Below the ports that the system hands out by itself."""

PATIENCE = 300.0
"""Seconds that a component may take to become ready on a busy machine."""

USERS: dict[str, tuple[str, ...]] = {
    "admin": ("system:masters",),
    "bayplan": (),  # has exactly the rights that Bayplan's own ClusterRole gives it
    "system:kube-controller-manager": (),
    "system:kube-scheduler": (),
    "kwok": ("system:masters",),
    "jobset": ("system:masters",),
}
TOKEN_USERS = ("admin", "bayplan")


@dataclass(frozen=True, slots=True)
class Component:
    """A program, its arguments, and the addresses that answer once it is ready."""

    program: Program
    arguments: Callable[[Site], list[str]]
    ready: tuple[str, ...]
    expected: str = ""


def up(
    kube: str = DEFAULT_KUBE,
    state: Path | None = None,
    *,
    scheduler: bool = False,
    dies_with_us: bool = False,
    store: Path | None = None,
    out: TextIO | None = None,
) -> Cluster:
    """Build what is missing, start everything, wait until it is ready.

    With `store`, a folder that etcd wrote before, the API has the objects of that one, and no controllers
    run that would change them; an empty or missing folder means a new store without controllers.
    """
    kube, state, out = check_version(kube), (state or default_state()).absolute(), out or sys.stderr
    programs = build(kube, (*NEEDED, SCHEDULER) if scheduler else NEEDED, out)
    began = time.monotonic()
    _make_room(state)
    if store is not None and store.exists():
        shutil.copytree(store, state / "etcd")
    site = Site(state, _free_ports(), switches(kube))
    _write_identities(site)
    cluster = Cluster(kube, state, site.api, programs[KUBECTL.name], dict(site.ports))
    save(cluster)
    try:
        for group in _groups(site, scheduler=scheduler)[: None if store is None else 2]:
            if any(component.program is JOBSET for component in group):
                _install_jobset(cluster, site)
            for component in group:
                cluster = _start(cluster, site, component, programs, dies_with_us=dies_with_us)
            for component, process in zip(group, cluster.processes[-len(group) :], strict=True):
                processes.wait_until(partial(_ready, site, component), process, PATIENCE)
                out.write(f"{component.program.name} is ready after {time.monotonic() - began:.1f} s\n")
    except BaseException:
        down(state)
        raise
    return cluster


@contextmanager
def control_plane(
    kube: str = DEFAULT_KUBE,
    state: Path | None = None,
    *,
    scheduler: bool = False,
    store: Path | None = None,
    out: TextIO | None = None,
) -> Iterator[Cluster]:
    """A control plane that lasts as long as the block, and no longer than this process."""
    with ExitStack() as stack:
        if state is None:
            state = Path(tempfile.mkdtemp(prefix="bayplan-cluster-"))
            stack.callback(shutil.rmtree, state, ignore_errors=True)
        stack.callback(down, state)
        yield up(kube, state, scheduler=scheduler, dies_with_us=True, store=store, out=out)


def restart(cluster: Cluster, program: Program, down_seconds: float = 0.0) -> Cluster:
    """Kill one program of a running cluster without warning, start it again and wait until it is ready.

    It does what it did before: same arguments, same store, same log. What is started lives as long as the
    calling thread, if it had been tied to this process.
    """
    cluster = load(cluster.state) or cluster
    old = next(process for process in cluster.processes if process.name == program.name)
    processes.kill(old)
    time.sleep(down_seconds)
    site = Site(cluster.state, cluster.ports, switches(cluster.kube))
    groups = _groups(site, scheduler=cluster.has_scheduler)
    component = next(one for group in groups for one in group if one.program is program)
    command = [str(build(cluster.kube, (program,))[program.name]), *component.arguments(site)]
    new = processes.start(program.name, command, Path(old.log), os.environ, dies_with_us=old.dies_with_us)
    everyone = tuple(new if process is old else process for process in cluster.processes)
    cluster = replace(cluster, processes=everyone)
    save(cluster)
    processes.wait_until(partial(_ready, site, component), new, PATIENCE)
    return cluster


def _groups(site: Site, *, scheduler: bool) -> list[list[Component]]:
    """Components that start together; a group waits for the one before it."""
    at = {name: f"{LOOPBACK}:{port}" for name, port in site.ports.items()}
    account = f"{site.api}/api/v1/namespaces/default/serviceaccounts/default"  # pods can be made from now on
    etcd = Component(ETCD, components.etcd, (f"http://{at['etcd']}/health",), "true")
    api = Component(APISERVER, components.apiserver, (f"{site.api}/readyz",), "ok")
    rest = [
        Component(
            CONTROLLERS, components.controllers, (f"https://{at['kube-controller-manager']}/healthz", account)
        ),
        Component(KWOK, components.kwok, (f"http://{at['kwok']}/healthz",)),
        Component(JOBSET, components.jobset, (f"http://{at['jobset']}/readyz",)),
    ]
    if scheduler:
        rest.append(Component(SCHEDULER, components.scheduler, (f"https://{at['kube-scheduler']}/readyz",)))
    return [[etcd], [api], rest]


def _start(
    cluster: Cluster, site: Site, component: Component, programs: dict[str, Path], *, dies_with_us: bool
) -> Cluster:
    name = component.program.name
    command = [str(programs[name]), *component.arguments(site)]
    log = site.folder / "logs" / f"{name}.log"
    process = processes.start(name, command, log, os.environ, dies_with_us=dies_with_us)
    cluster = replace(cluster, processes=(*cluster.processes, process))
    save(cluster)
    return cluster


def _ready(site: Site, component: Component) -> bool:
    return all(answers(site, url, component.expected) for url in component.ready)


def _install_jobset(cluster: Cluster, site: Site) -> None:
    """Apply the JobSet API and wait until it is served: `kubectl wait` trips over a new CRD."""
    cluster.apply(*jobsets.objects(site, cluster.kube))
    served = partial(answers, site, f"{site.api}/apis/jobset.x-k8s.io/v1alpha2", '"jobsets"')
    processes.wait_until(served, cluster.processes[-1], PATIENCE)


def _make_room(state: Path) -> None:
    """Clear the state folder of an earlier cluster; never touch any other folder."""
    earlier = load(state)
    if earlier and (running := [process.name for process in earlier.processes if processes.alive(process)]):
        raise Trouble(
            f"A cluster was to be started in {state}; {', '.join(running)} of {earlier.kube} run there. "
            "Stop it first (make cluster-down), or give another folder with --state."
        )
    if state.exists() and earlier is None and any(state.iterdir()):
        raise Trouble(
            f"{state} was to hold the state of a cluster; it has other files in it. Give an empty folder."
        )
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True, mode=0o700)


def _free_ports() -> dict[str, int]:
    """A free port on loopback for each listener; all are held until all are found."""
    found: dict[str, int] = {}
    with ExitStack() as held:
        for name in PORTS:
            for _ in range(1000):
                port = secrets.choice(PORT_RANGE)
                listener = held.enter_context(socket.socket())
                try:
                    listener.bind((LOOPBACK, port))
                except OSError:
                    continue
                found[name] = port
                break
            else:
                raise Trouble(
                    f"{name} needs a port between {PORT_RANGE.start} and {PORT_RANGE.stop}; none was free."
                )
    return found


def _write_identities(site: Site) -> None:
    """The authority, the server's certificate, and each user's certificate, kubeconfig and token."""
    pki = site.folder / "pki"
    authority = certs.make_authority()
    certs.write_private(pki / "ca.crt", authority.pem)
    server = certs.server(authority)
    for name in ("server", "webhook/tls"):
        certs.write_private(pki / f"{name}.crt", server.certificate)
        certs.write_private(pki / f"{name}.key", server.key)
    signer = certs.service_account_key()
    certs.write_private(pki / "service-account.pub", signer.certificate)
    certs.write_private(pki / "service-account.key", signer.key)
    for user, groups in USERS.items():
        pair = certs.client(authority, user, *groups)
        name = user.removeprefix("system:")
        certs.write_private(pki / f"{name}.crt", pair.certificate)
        certs.write_private(pki / f"{name}.key", pair.key)
        certs.write_private(site.kubeconfig(name), certs.kubeconfig(site.api, authority, user, pair))
    lines = []
    for user in TOKEN_USERS:
        token = secrets.token_urlsafe(24)
        certs.write_private(pki / f"{user}.token", token)
        lines.append(f'{token},{user},{user},"{",".join(USERS[user])}"\n')
    certs.write_private(pki / "tokens.csv", "".join(lines))
