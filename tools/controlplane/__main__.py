"""Commands: up, down, status, build, pin."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

from tools.controlplane.build import build
from tools.controlplane.cluster import Cluster, down, load
from tools.controlplane.pin import (
    pin_addons,
    pin_helm,
    pin_kai,
    pin_kubernetes,
    pin_kueue,
    pin_promtool,
    pin_volcano,
)
from tools.controlplane.plan import (
    ADDONS_MODULE,
    DEFAULT_KUBE,
    HELM,
    HELM_MODULE,
    KAI_MODULE,
    KUEUE_MODULE,
    NEEDED,
    PROMTOOL,
    PROMTOOL_MODULE,
    SCHEDULER,
    VOLCANO_MODULE,
    Trouble,
    default_state,
)
from tools.controlplane.processes import alive
from tools.controlplane.start import up


def main(arguments: list[str] | None = None) -> int:
    """Run one command; errors give a message and exit code 1."""
    given = _parser().parse_args(arguments)
    try:
        return COMMANDS[given.command](given)
    except Trouble as trouble:
        sys.stderr.write(f"{trouble}\n")
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted. What was built is kept; run the command again to go on.\n")
    return 1


def _up(given: argparse.Namespace) -> int:
    cluster = load(given.state)
    if cluster is None or not _healthy(cluster) or not _as_asked(cluster, given):
        cluster = up(given.kube, given.state, scheduler=given.scheduler)
    sys.stderr.write(f"Kubernetes {cluster.kube} runs at {cluster.server}. Its kubeconfig is\n")
    sys.stdout.write(f"{cluster.kubeconfig}\n")
    return 0


def _down(given: argparse.Namespace) -> int:
    stopped = down(given.state)
    sys.stderr.write(
        f"Stopped {', '.join(stopped)}.\n" if stopped else f"Nothing of {given.state} was running.\n"
    )
    return 0


def _status(given: argparse.Namespace) -> int:
    cluster = load(given.state)
    if cluster is None or not cluster.processes:
        sys.stdout.write(f"No cluster runs in {given.state}. Start one with: make cluster\n")
        return 1
    sys.stdout.write(f"Kubernetes {cluster.kube} at {cluster.server}, kubeconfig {cluster.kubeconfig}\n")
    for process in cluster.processes:
        found = "running" if alive(process) else "gone"
        sys.stdout.write(f"  {process.name:24} {found:8} pid {process.pid:<8} {process.log}\n")
    return 0 if _healthy(cluster) else 1


def _build(given: argparse.Namespace) -> int:
    wanted = (
        (*NEEDED, SCHEDULER, HELM, PROMTOOL)
        if given.all
        else (*NEEDED, SCHEDULER)
        if given.scheduler
        else NEEDED
    )
    for path in build(given.kube, wanted).values():
        sys.stdout.write(f"{path}\n")
    return 0


def _pin(given: argparse.Namespace) -> int:
    pinned = {
        ADDONS_MODULE: pin_addons,
        HELM_MODULE: pin_helm,
        PROMTOOL_MODULE: pin_promtool,
        KUEUE_MODULE: pin_kueue,
        KAI_MODULE: pin_kai,
        VOLCANO_MODULE: pin_volcano,
    }.get(given.version)
    sys.stdout.write(f"{pin_kubernetes(given.version) if pinned is None else pinned()}\n")
    return 0


COMMANDS = {"up": _up, "down": _down, "status": _status, "build": _build, "pin": _pin}


def _as_asked(cluster: Cluster, given: argparse.Namespace) -> bool:
    return cluster.kube == given.kube.removeprefix("v") and (cluster.has_scheduler or not given.scheduler)


def _healthy(cluster: Cluster) -> bool:
    return bool(cluster.processes) and all(alive(process) for process in cluster.processes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.controlplane", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("up", "start a control plane and print the path of its kubeconfig"),
        ("down", "stop what `up` started"),
        ("status", "say what runs"),
        ("build", "build what is missing and print the path of every program"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        if name in {"up", "build"}:
            kube = os.environ.get("KUBE") or DEFAULT_KUBE
            command.add_argument("--kube", default=kube, help=f"Kubernetes version (now {kube})")
            command.add_argument("--scheduler", action="store_true", help="kube-scheduler too")
        if name == "build":
            command.add_argument("--all", action="store_true", help="kube-scheduler, helm and promtool too")
        else:
            command.add_argument(
                "--state", type=Path, default=default_state(), help="the cluster's own folder"
            )
    text = "write the Go module files of a Kubernetes version (or `addons`, `helm`, `promtool`, `kueue`)"
    commands.add_parser("pin", help=text, description=text).add_argument("version")
    return parser


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a start that is ended stops what it started
    sys.exit(main())
