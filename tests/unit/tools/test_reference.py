"""The generated pages of the reference are those of the code, and no reason, metric or option is missing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bayplan.assembly import job_kinds_reference, settings_reference
from bayplan.cli.commands.main import COMMANDS, main
from bayplan.model.plan import EvictionReason
from tools.reference import commands, metrics, reason_table
from tools.reference.annotations import KEYS
from tools.reference.markdown import plain, table
from tools.reference.pages import PAGES

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference"
GENERATED = {
    **PAGES,
    settings_reference.PAGE: settings_reference.page,
    settings_reference.EXAMPLE: settings_reference.example,
    job_kinds_reference.PAGE: job_kinds_reference.page,
}

# Where reasons are made, and words there that look like one and are none.
SOURCES = (
    "dialects/kai/status", "dialects/kube/encode", "dialects/kueue/jobs", "dialects/kueue/pods",
    "dialects/kueue/provisioning", "dialects/kueue/status", "dialects/nrt/decoder.py", "runtime/controllers",
)  # fmt: skip
NOT_REASONS = (
    {"BlockedOnPreemptionGates", "DeactivationTarget", "DisruptionTarget", "Evicted", "Finished", "PodsReady"}
    | {"Requeued", "TerminatedByKueue", "TerminationTarget", "UnschedulableOnNodePool"}
    | {"WaitingForReplacementPods"}  # types of conditions
    | {"AdmissionCheck", "ClusterQueue", "CompositePodGroup", "ConfigMap", "LocalQueue"}
    | {"PodGroup", "PodTemplate", "PriorityClass", "ProvisioningRequest", "ProvisioningRequestConfig"}
    | {"ResourceFlavor", "Topology", "Workload", "WorkloadPriorityClass", "Binding", "Event", "Node"}  # kinds
    | {"Accepted", "BookingExpired", "CapacityRevoked", "Provisioned"}  # conditions of ProvisioningRequests
    | {"Pending", "Rejected", "Retry", "Running", "Closed", "None"}  # states of checks, pods and gates
    | {"NoCandidates", "NoFit", "Preempt", "Reclaim"}  # words of messages
    | {"IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"}  # values of fields
    | {"NoExecute", "NoSchedule"}  # effects of taints
    | {"Exists", "Never", "RuntimeDefault"}  # values of fields of the pods that hold a place
    | {
        "DueTo",
        "EvictedDueTo",
        "Injected",
        "Joining",
        "GPUs",
        "Normal",
        "Warning",
        "True",
        "False",
        "UNKNOWN",
    }
    | {"Restarted"}  # of reasons that begin with the kind of a queue
)
REASON = re.compile(r"[A-Z][A-Za-z]{3,}")
TOLD = {one.name for group in reason_table.GROUPED for one in group.reasons}


@pytest.mark.parametrize("name", GENERATED)
def test_a_page_is_up_to_date(name: str) -> None:
    found = (REFERENCE / name).read_text(encoding="utf-8")
    assert found == GENERATED[name](), "run make reference"


def written() -> Iterator[str]:
    """Every word in the code that may be a reason."""
    for source in SOURCES:
        path = ROOT / "src" / "bayplan" / source
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            for found in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                match found:
                    case ast.Constant(value=str(word)) if REASON.fullmatch(word):
                        yield word


def test_every_reason_that_the_code_writes_is_explained_and_no_other() -> None:
    found = set(written())
    assert found - TOLD - NOT_REASONS == set(), "add them to tools/reference/reason_table.py"
    made_of_two = {
        f"{kind}{word}" for kind in ("ClusterQueue", "LocalQueue") for word in ("Stopped", "Restarted")
    }
    assert TOLD - found - made_of_two == set(), "nothing writes these"
    assert NOT_REASONS - found == set(), "these are not in the code any more"


def test_every_reason_is_explained_once_in_its_place_with_what_to_do() -> None:
    for group in reason_table.GROUPED:
        names = [one.name for one in group.reasons]
        assert len(names) == len(set(names)), group.title
        assert all(one.meaning.endswith(".") and one.action for one in group.reasons), group.title
    assert len(EvictionReason) == 7, "a new reason of evictions belongs into the table"


def options(command: click.Command, above: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=command.name, parent=above)
    for parameter in command.get_params(context):
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield from parameter.opts
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from options(below, context)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_is_in_its_section(name: str) -> None:
    context = click.Context(main, info_name="bayplan")
    command = main.get_command(context, name) if isinstance(main, click.Group) else None
    assert command is not None
    section = commands.page().partition(f"\n## `bayplan {name}`\n")[2].partition("\n## `")[0]
    assert section and [one for one in options(command, context) if one not in section + "--help -h"] == []


def test_every_metric_has_a_type_and_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| .*? ?\| (.+) \|$", metrics.page(), re.MULTILINE)
    assert len(rows) > 60 and len({name for name, _, _ in rows}) == len(rows)
    assert {sort for _, sort, _ in rows} == {"counter", "gauge", "histogram"}
    assert all(name.endswith("_total") == (sort == "counter") for name, sort, _ in rows)


def test_every_label_and_annotation_is_listed_once() -> None:
    names = [key.name for key in KEYS]
    assert len(names) == len(set(names))


def test_text_of_help_is_no_markup() -> None:
    assert plain("a_b <c> `d_e`\n  f") == r"a\_b \<c> `d_e` f"
    assert table(("a",), [("x|y",)]) == "| a |\n|---|\n| x\\|y |\n"
