"""Whatever objects, files and journals say, no command lets it steer the terminal that somebody looks at."""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from bayplan.cli.render.console import console
from bayplan.dialects.kube.fields.terminal_text import clean, clean_json
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.change import NodeLost, Started
from bayplan.model.gang import Ref
from bayplan.model.plan import Bind, Plan
from bayplan.model.pod import Pod, PodKey
from bayplan.runtime.core.journal import FileJournal
from bayplan.runtime.telemetry import logs
from tests.support.manifests import RACK as PLACE_RACK
from tests.support.manifests import gpu_job as place_job
from tests.support.manifests import place, rack_node, run, writer
from tests.support.queued_cluster import (
    RACK,
    QueuedCluster,
    admitted,
    condition,
    furnish,
    queued_cluster,
    queued_job,
    queued_workload,
)

CLI = Path(__file__).parents[4] / "src" / "bayplan" / "cli"
EVIL = "\x1b]0;owned\x07\x1b[2J\r\x08\x9b31m\u202egpj\u2066\x00\x7f[red]x[/red][/nothing]"
TEXTS = st.text(st.sampled_from("\x1b\x07\r\x9b\u202e\x7f[]/;mJ0a\u2028\ud800\U000e0001é"), max_size=12)


def harmful(text: str) -> set[str]:
    """Everything in it that is neither printable nor a line break."""
    return {one for one in text if one != "\n" and not one.isprintable()}


@given(TEXTS)
def test_cleaned_text_is_harmless_and_clean_json_means_the_same(text: str) -> None:
    assert not harmful(clean(text))
    written = clean_json(json.dumps({text: [text]}, ensure_ascii=False))
    assert not harmful(written) and json.loads(written) == {text: [text]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueuedCluster]:
    """A cluster in which every free text is hostile."""
    with queued_cluster(tmp_path_factory.mktemp("hostile")) as made:
        furnish(made)
        running = admitted("left-queue", "a100", {"cpu": "8", "nvidia.com/gpu": "2"}, {"h1": 1})
        running["conditions"].append(condition("Evicted", 60, "Preempted", EVIL))
        running["admissionChecks"] = [
            {
                "name": "check",
                "state": "Pending",
                "message": EVIL,
                "lastTransitionTime": "2027-01-15T00:00:00Z",
            }
        ]
        made.submit(queued_workload("runs", 1, 2), running)
        waits = queued_workload("waits", 40, 4, required=RACK)
        waits["metadata"]["annotations"] = {"a": EVIL}
        waits["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {"x": EVIL}
        made.submit(waits, {"conditions": [condition("QuotaReserved", 9, "Pending", EVIL, "False")]})
        for obj in made.store.list(api_kinds.CLUSTER_QUEUES).items[:1]:
            status = {"conditions": [condition("Active", 9, "Ready", EVIL)]}
            made.store.patch(
                api_kinds.CLUSTER_QUEUES,
                "",
                obj["metadata"]["name"],
                {"status": status},
                subresource="status",
            )
        yield made


@pytest.mark.parametrize(
    "command",
    [
        ("list", "gangs", "-A"),
        ("list", "gangs", "-A", "-o", "wide"),
        ("list", "gangs", "-A", "-o", "json"),
        ("list", "gangs", "-n", EVIL.replace("\x00", "")),
        ("list", "queues"),
        ("list", "queues", "-o", "json"),
        ("list", "topologies"),
        ("explain", "ml/runs"),
        ("explain", "ml/waits"),
        ("explain", "ml/waits", "-o", "json"),
        ("explain", EVIL.replace("\x00", "")),
        (EVIL.replace("\x00", ""),),
    ],
)
def test_what_a_cluster_says_does_not_steer_a_terminal(
    cluster: QueuedCluster, command: tuple[str, ...]
) -> None:
    printed = run(*command) if len(command) == 1 else cluster.run(*command)
    assert printed.exception is None or isinstance(printed.exception, SystemExit), printed.exception
    assert printed.output and not harmful(printed.output)


def test_what_files_say_does_not_steer_a_terminal(cluster: QueuedCluster, tmp_path: Path) -> None:
    file = writer(tmp_path)
    good = [rack_node(f"n{EVIL}", rack=f"r{EVIL}"), rack_node("n2")]
    asked = place_job(f"j{EVIL}", 1)
    wrong = place_job(f"j{EVIL}", 2, podset_required_topology=f"{PLACE_RACK}{EVIL}")
    for objects in ([*good, asked], [*good, place_job(EVIL, 99)], [*good, wrong], [{"kind": EVIL}]):
        path = file(*objects, name=f"{len(objects)}.json")
        for form in ("tree", "json", "yaml"):
            printed = place(path, options=("-o", form))
            assert isinstance(printed.exception, SystemExit | None), printed.exception
            assert printed.output and not harmful(printed.output)
            if form != "tree":
                assert (json.loads if form == "json" else yaml.safe_load)(printed.stdout)
    planned = queued_job("plan", 1, 1, podset_required_topology=EVIL)
    planned["spec"]["template"]["spec"]["nodeSelector"] = {EVIL: EVIL}
    printed = cluster.run("plan", "-f", "-", stdin=json.dumps(planned))
    assert isinstance(printed.exception, SystemExit | None), printed.exception
    assert printed.output and not harmful(printed.output)
    assert not harmful(place(tmp_path / f"no{EVIL.replace(chr(0), '').replace('/', '')}").output)


def test_what_a_journal_says_does_not_steer_a_terminal(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "journal")
    journal.record(1.0, "change", Started(), "scheduler")
    journal.record(2.0, "change", NodeLost(EVIL), "scheduler")
    ref = Ref("jobs", "Job", "default", EVIL)
    pod = Pod(PodKey("default", EVIL), "u", {}, gang=ref)
    journal.record(3.0, "plan", Plan((Bind(ref, pod, EVIL),)), "scheduler")
    journal.record(4.0, "change", NodeLost(EVIL), EVIL)
    journal.close()
    for options in ((), ("--gang", EVIL.replace("\x00", ""))):
        printed = run("replay", tmp_path / "journal", *options)
        assert isinstance(printed.exception, SystemExit | None), printed.exception
        assert "1 pods on" in printed.output or options
        assert not harmful(printed.output)


def shown(text: str) -> str:
    """A live view of the text on a terminal, without what the console itself says to it."""
    stream = io.StringIO()
    made = console(file=stream, force_terminal=True, width=200)
    table = Table.grid()
    table.add_row(text, Text(text, style="red"))
    with Live(console=made, auto_refresh=False) as live:
        live.update(Group(Text(text), Panel(table, title=Text(text))), refresh=True)
    made.print(text)
    own = r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[[0-9]*[AK]|\r"
    return re.sub(own, "", stream.getvalue().replace("\x1b[2K", ""))


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(TEXTS)
def test_a_live_view_passes_no_control_on(text: str) -> None:
    assert not harmful(shown(text))
    assert "owned" in shown(EVIL) and "\x1b" not in shown(EVIL)


@pytest.mark.parametrize("style", list(logs.Format))
def test_the_log_passes_no_control_on(style: logs.Format) -> None:
    stream = io.StringIO()
    logs.set_up(style, stream=stream)
    try:
        raise ValueError(EVIL)
    except ValueError:
        logs.logger("test").warning(EVIL, name=EVIL, other=[EVIL], exc_info=True)
    assert "owned" in stream.getvalue() and "Traceback" in stream.getvalue()
    assert not harmful(stream.getvalue())


def calls(path: Path) -> Iterator[str]:
    for found in ast.walk(ast.parse(path.read_text())):
        if isinstance(found, ast.Call):
            yield ast.unparse(found.func)


def test_all_commands_print_through_one_module() -> None:
    ways: set[Any] = {"click.echo", "click.secho", "Console", "print", "rich.print", "sys.stdout.write"}
    for path in sorted(CLI.rglob("*.py")):
        if path.name != "output.py":
            assert not ways & set(calls(path)), path.name
