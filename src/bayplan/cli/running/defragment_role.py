"""The process of the role defragment: rounds of moves while the replica that started it leads.

Each line of standard input is a moment of the monotonic clock until which the process may write. When the
input ends, so does the process. Each line of standard output is what became of a search, for the metrics of
the replica.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import click

from bayplan.cli.config.cluster_access import takes_cluster
from bayplan.cli.config.options import takes_configuration
from bayplan.cli.config.output import echo
from bayplan.cli.live.state import ClusterTarget
from bayplan.cli.running.defragment_standing import (
    ROLE_PREFIX,
    DefragmentSearch,
    ended_by_signal,
    stand,
    standing_defragmentation,
)
from bayplan.configuration.settings import Settings
from bayplan.runtime.core.clock import Clock, SystemClock
from bayplan.runtime.telemetry import logs


class GrantedLeadership:
    """Until when the replica leads, as it told last."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._until = clock, 0.0
        self.first = threading.Event()  # set with the first line

    def holds(self) -> bool:
        """Whether this process may write now."""
        return self._clock.monotonic() < self._until

    def follow(self, lines: Iterable[str]) -> None:
        """Read what the replica tells, until it ends; then end this process."""
        for line in lines:
            self._until = float(line)
            self.first.set()
        os.kill(os.getpid(), signal.SIGTERM)


def _report(search: DefragmentSearch) -> None:
    echo(json.dumps(asdict(search)))


@click.command()
@takes_cluster
@takes_configuration
@click.option("--log-format", type=click.Choice([str(one) for one in logs.Format]), default="console")
@click.option("--log-level", type=click.Choice(list(logs.LEVELS)), default="info")
def main(
    kubeconfig: Path | None, context: str | None, settings: Settings, log_format: str, log_level: str
) -> None:
    """Make rounds until standard input ends."""
    logs.set_up(logs.Format(log_format), log_level)
    clock, log = SystemClock(), logs.logger("defragment")
    leadership = GrantedLeadership(clock)
    target = ClusterTarget(kubeconfig, context, None, clock, settings, leadership.holds)
    name = f"{ROLE_PREFIX}{secrets.token_hex(4)}"
    standing = standing_defragmentation(target, settings.defragmentation, name, log.info, _report)
    try:
        with ended_by_signal():
            threading.Thread(target=leadership.follow, args=(sys.stdin,), daemon=True).start()
            leadership.first.wait()
            stand(standing, settings.defragmentation.every_seconds)
    except KeyboardInterrupt:
        log.info("stopping")


if __name__ == "__main__":
    main()
