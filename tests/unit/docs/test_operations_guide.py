"""The operations guide is true: options, times and names are those of the program."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from bayplan.assembly.manifests import ALL_ROLES, HEALTH_PORT, NAMESPACE, SERVED_ROLES, WEBHOOK_PORT
from bayplan.assembly.rbac import LEASE_NAME, ROLES
from bayplan.assembly.webhooks import SECRET_NAME
from bayplan.cli.commands.install import install
from bayplan.cli.commands.run import run
from bayplan.runtime.core import journal
from bayplan.runtime.process.election import JITTER, Timing
from bayplan.runtime.process.shutdown import GRACE_SECONDS
from bayplan.runtime.webhooks import certificates, server

GUIDE = (Path(__file__).parents[3] / "docs" / "guide" / "operations.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", GUIDE, re.MULTILINE | re.DOTALL)
    assert found, f"the guide has no section '{title}'"
    return found[1]


def options(command: click.Command) -> set[str]:
    shown = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    return {name for one in shown for name in (*one.opts, *one.secondary_opts)} - {"-h", "--help"}


@pytest.mark.parametrize(("command", "title"), [(run, "`bayplan run`"), (install, "Installing")])
def test_every_option_is_listed_and_no_other(command: click.Command, title: str) -> None:
    rows = [line for line in section(title).splitlines() if line.startswith("| `-")]
    listed = {name for row in rows for name in re.findall(r"`(--?[a-z-]+)`", row.split("|")[1])}
    assert listed == options(command)


def test_rights_are_those_of_the_table() -> None:
    text = section("Roles and rights")
    for role in ALL_ROLES:
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{role}` |")]
        for right in (*ROLES[role].clusterwide, *ROLES[role].namespaced):
            assert all(verb in row for verb in right.verbs), right
            assert all(name in row for name in right.names), right
    assert f"`{LEASE_NAME}`" in text and f"`{SECRET_NAME}`" in text


def test_times_and_sizes() -> None:
    timing = Timing()
    election = section("Leader election")
    for words, value in (
        ("are apart", timing.retry_seconds),
        ("take at most", timing.call_seconds),
        ("stops after", timing.renew_seconds),
        ("takes over after", timing.lease_seconds),
    ):
        assert re.search(rf"{words} \| {value:g}\b", election), words
    assert JITTER == 0.2 and f"at least {timing.write_seconds:g} s" in election
    assert timing.lease_seconds / timing.renew_seconds == 1.5, "differ by up to half"
    assert f"within {GRACE_SECONDS:g} s" in section("`bayplan run`")

    webhooks = section("Webhooks and their certificate")
    assert (
        f"| {certificates.SERVING_DAYS.days} days | {certificates.RENEW_BEFORE.days} days before" in webhooks
    )
    before = (certificates.SERVING_DAYS + 2 * certificates.SETTLE).days
    assert certificates.AUTHORITY_DAYS.days == 2 * 365 and f"| 2 years | {before} days before" in webhooks
    mebi = 1024 * 1024
    assert f"hold {server.ADMISSION_BYTES // mebi} MiB" in webhooks
    assert f"({server.CONVERSION_BYTES // mebi} MiB for conversion)" in webhooks
    assert f"within {server.LIMITS.seconds:g} s" in webhooks

    kept = section("The journal")
    assert f"up to {journal.SIZE_MAX // mebi} MiB; the newest {journal.FILES_MAX} are kept" in kept
    assert f"up to {journal.WAITING_MAX // mebi} MiB wait" in kept


def test_names_and_ports() -> None:
    assert f"default `{NAMESPACE}`" in GUIDE
    assert f"port {HEALTH_PORT} (probes; metrics" in GUIDE
    assert f"{WEBHOOK_PORT} (webhooks)" in " ".join(GUIDE.split())
    assert f"default `{','.join(SERVED_ROLES)}`" in GUIDE
