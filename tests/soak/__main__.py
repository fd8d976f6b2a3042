"""`python -m tests.soak --minutes 60`: a real control plane, all families, a fault every few minutes."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

from tests.soak.report import WARM_UP, told, write
from tests.soak.run import Soak
from tools.controlplane.build import unavailable
from tools.controlplane.plan import DEFAULT_KUBE
from tools.controlplane.start import control_plane


def main() -> int:
    """Run, write the report, and return 1 if anything was violated."""
    wishes = _wishes()
    kube = os.environ.get("KUBE") or DEFAULT_KUBE
    if reason := unavailable(kube):
        print(f"Skipped: {reason}")
        return 0 if os.environ.get("CI") != "true" else 1
    folder = Path(tempfile.mkdtemp(prefix="bayplan-soak-"))
    try:
        with control_plane(kube, folder / "cluster") as cluster:
            soak = Soak(wishes, cluster, folder, partial(print, flush=True))
            for number in (signal.SIGINT, signal.SIGTERM):  # it ends early, with a report
                signal.signal(number, lambda *_: soak.enough.set())
            try:
                soak.run()
            finally:  # what was found until then, whatever went wrong
                write(soak.findings, wishes.report)
                print(told(soak.findings, wishes.warm_up), flush=True)
                print(f"Report: {wishes.report / 'soak.json'}, {wishes.report / 'soak.png'}", flush=True)
        return 1 if soak.findings.violations else 0
    finally:
        _keep_logs(folder, wishes.report)
        shutil.rmtree(folder, ignore_errors=True)


def _wishes() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of load and faults (%(default)s)")
    parser.add_argument(
        "--kills", type=int, default=0,
        help="kill -9 a replica, kube-apiserver and etcd that often each, instead of faults for some minutes",
    )  # fmt: skip
    parser.add_argument("--nodes", type=int, default=1000, help="of eight GPUs (%(default)s)")
    for name, default, meaning in (
        ("--every", 180.0, "between two faults, about"),
        ("--lasts", 30.0, "that a fault lasts"),
        ("--warm-up", WARM_UP, "until memory is to be flat"),
    ):
        parser.add_argument(
            name, type=float, default=default, metavar="SECONDS", help=f"{meaning} (%(default)s)"
        )
    parser.add_argument("--run-seconds", type=int, nargs=2, default=(180, 600), metavar=("MIN", "MAX"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, default=Path("build/soak"))
    return parser.parse_args()


def _keep_logs(folder: Path, report: Path) -> None:
    """Of the last run, whatever it found."""
    report.mkdir(parents=True, exist_ok=True)
    for log in [*folder.glob("*.log"), *folder.glob("cluster/logs/*.log"), *folder.glob("webhooks/log")]:
        shutil.copyfile(log, report / log.name)
    for journal in folder.glob("journal-*"):
        shutil.copytree(journal, report / journal.name, dirs_exist_ok=True)


if __name__ == "__main__":
    sys.exit(main())
