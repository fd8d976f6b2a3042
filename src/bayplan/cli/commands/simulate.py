"""`bayplan simulate`: replays a trace on a cluster in virtual time, and compares policies."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from bayplan.cli.config.objects import gather
from bayplan.cli.config.options import takes_configuration
from bayplan.cli.config.output import echo
from bayplan.cli.config.read_files import read_files
from bayplan.cli.starts.journal_workload import is_journal, read_journal
from bayplan.configuration.settings import Settings
from bayplan.model.node import Node
from bayplan.model.profile import Profile
from bayplan.simulation.reports.comparison import SimulationReport
from bayplan.simulation.reports.images import can_draw, png
from bayplan.simulation.reports.plots import seconds_in_words
from bayplan.simulation.reports.sweep import SweepReport
from bayplan.simulation.reports.wait_target import parse_target
from bayplan.simulation.traces.cluster_shapes import InvalidShape, is_shape, parse_shape
from bayplan.simulation.traces.readers import ReadOptions, TraceFormat, read_node_table, read_trace
from bayplan.simulation.traces.trace_file import TraceError
from bayplan.simulation.traces.workload import Trace
from bayplan.simulation.virtual_time.added_racks import InvalidSweep, parse_sweep, with_racks
from bayplan.simulation.virtual_time.disruptions import (
    NEVER,
    Disruptions,
    InvalidDisruption,
    NodeOutage,
    draw_outages,
    read_outages,
    seconds_of,
)
from bayplan.simulation.virtual_time.outcome import RunOutcome
from bayplan.simulation.virtual_time.policies import DEFAULT_POLICIES, known_policies
from bayplan.simulation.virtual_time.virtual_run import RunSettings, VirtualRun

OF_THE_TRACE = "trace"
POLICY_NAMES = tuple(known_policies(Profile()))


@click.command()
@click.option(
    "--cluster",
    required=True,
    metavar="C",
    help="A shape ('4x8x16 gpu=8': blocks, racks, hosts), YAML or JSON with Nodes, the journal of "
    "`bayplan run`, a CSV table of nodes or switches, or 'trace' for the nodes that the trace counts.",
)
@click.option(
    "--trace",
    "path",
    required=True,
    metavar="T",
    help="A file, a file in an archive (a.tar.xz#b.csv), or the journal of `bayplan run`.",
)
@click.option(
    "--format", "form", type=click.Choice([one.value for one in TraceFormat]), help="The format of the trace."
)
@click.option("--policy", "policies", multiple=True, type=click.Choice(POLICY_NAMES), help="May be repeated.")
@click.option(
    "--seed", type=click.IntRange(0), default=42, show_default=True, help="For drawn jobs and random choices."
)
@click.option("--until", type=click.FloatRange(0, min_open=True), help="End after this many virtual seconds.")
@click.option(
    "--rates", metavar="FILE", default="", help="Steps per second of each job type, for Gavel traces."
)
@click.option(
    "--slowdown",
    "slowdowns",
    multiple=True,
    metavar="LEVEL=RATE",
    help="The rate of a job whose pods are in several domains of a level, such as 0.7. May be repeated.",
)
@click.option(
    "--node-failures",
    metavar="FILE|RATE",
    default="",
    help="Nodes that fail: a CSV table with node, start and seconds, or 'mtbf=30d repair=2h' of each node. "
    "Jobs on them start again.",
)
@click.option(
    "--job-failures",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="SHARE",
    help="The share of jobs that fail, at any moment of their run time.",
)
@click.option(
    "--leave-after", metavar="DURATION", default="", help="Jobs that wait longer leave the queue, such as 8h."
)
@click.option(
    "--sweep",
    metavar="RANGE",
    default="",
    help="Add racks like the largest one: 'racks=0..8'. Compares waiting times, for one policy.",
)
@click.option(
    "--target",
    "aim",
    metavar="TARGET",
    default="",
    help="With --sweep: 'p95 wait of 64-GPU gangs < 30m'; names the smallest capacity that meets it.",
)
@click.option(
    "--gpus",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="GPUs of a host in a table of switches.",
)
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where report.html and report.json are written.",
)
@takes_configuration
def simulate(
    cluster: str,
    path: str,
    form: str | None,
    policies: tuple[str, ...],
    seed: int,
    until: float | None,
    rates: str,
    slowdowns: tuple[str, ...],
    node_failures: str,
    job_failures: float,
    leave_after: str,
    sweep: str,
    aim: str,
    gpus: int,
    output: Path,
    settings: Settings,
) -> None:
    """Replay a trace on a cluster in virtual time, and compare policies.

    The scheduler is the one of `bayplan run`, without an API server. The report is one HTML page that opens
    without a network, the same figures as JSON, and a summary. Ctrl-C ends the run with what is there. One
    seed gives the same files.
    """
    slower = _slowdowns(slowdowns)
    if aim and not sweep:
        raise click.UsageError("--target needs --sweep: it names the smallest capacity of those tried")
    if sweep and len(policies) > 1:
        raise click.UsageError("--sweep compares capacities for one policy; give one")
    try:
        racks = parse_sweep(sweep) if sweep else None
        target = parse_target(aim) if aim else None
        given, trace = _cluster_and_trace(cluster, path, gpus, ReadOptions((), seed, rates), form)
        nodes = given or trace.nodes
        patience = seconds_of(leave_after) if leave_after else NEVER
        disruptions = Disruptions(_outages(node_failures, nodes, trace, seed), job_failures, patience)
    except (TraceError, InvalidShape, InvalidDisruption, InvalidSweep) as error:
        raise click.ClickException(str(error)) from None
    if not nodes:
        raise click.ClickException(f"{path} does not count any nodes; give the cluster with --cluster")
    run_settings = RunSettings(until or NEVER, slower, disruptions, seed)
    if unknown := [
        level for level in run_settings.slowdowns if not any(level in one.labels for one in nodes)
    ]:
        raise click.ClickException(f"--slowdown: no node has a label {unknown[0]}")
    notes = _notes(trace, run_settings)
    if racks is not None:
        policy = (policies or DEFAULT_POLICIES)[0]
        runs = _run_sweep(policy, racks, settings.profile, nodes, trace, run_settings)
        _finish(SweepReport(trace.source, cluster, policy, seed, tuple(runs), target, notes), output)
        return
    outcomes = _run_all(policies or DEFAULT_POLICIES, settings.profile, nodes, trace, run_settings, seed)
    _finish(SimulationReport(trace.source, cluster, seed, tuple(outcomes), notes), output)


def _cluster_and_trace(
    cluster: str, path: str, gpus: int, options: ReadOptions, form: str | None
) -> tuple[tuple[Node, ...], Trace]:
    """The nodes, empty if they are those of the trace, and the trace; a journal that is both is read once."""
    journals = {name: read_journal(name) for name in dict.fromkeys((cluster, path)) if is_journal(name)}
    if cluster in journals:
        given = journals[cluster].nodes()
    else:
        given = () if cluster == OF_THE_TRACE else _nodes(cluster, gpus)
    if path not in journals or form is not None:
        found = TraceFormat(form) if form else None
        return given, read_trace(path, replace(options, nodes=given), found)
    trace = journals[path].trace()
    return given, trace if given else replace(trace, nodes=journals[path].nodes())


def _finish(report: SimulationReport | SweepReport, output: Path) -> None:
    _write(report, output)
    echo(report.text())
    echo(f"{output / 'report.html'} and {output / 'report.json'} written")
    if not can_draw():
        echo("No PNG images: matplotlib is not installed; `pip install 'bayplan[sim]'` adds it.", err=True)


def _run_sweep(
    policy: str,
    racks: range,
    profile: Profile,
    nodes: Sequence[Node],
    trace: Trace,
    settings: RunSettings,
) -> list[tuple[int, RunOutcome]]:
    """One run for each number of racks, until an interrupt."""
    found: list[tuple[int, RunOutcome]] = []
    for count in racks:
        try:
            larger = with_racks(nodes, count)
        except InvalidSweep as error:
            raise click.ClickException(str(error)) from None
        (outcome,) = _run_all((policy,), profile, larger, trace, settings, settings.seed)
        found.append((count, outcome))
        if outcome.interrupted:
            break
    return found


def _run_all(
    policies: Sequence[str],
    profile: Profile,
    nodes: Sequence[Node],
    trace: Trace,
    settings: RunSettings,
    seed: int,
) -> list[RunOutcome]:
    """One run for each policy, until an interrupt."""
    known = known_policies(profile)
    outcomes = []
    for name in dict.fromkeys(policies):
        run = VirtualRun(name, nodes, trace, known[name].scheduler(nodes, seed, trace.jobs), settings)
        began = time.monotonic()
        with click.progressbar(length=run.total, label=name, file=sys.stderr) as bar:
            told = 0

            def show(arrived: int, total: int) -> None:
                nonlocal told
                if arrived - told >= max(total // 200, 1) or arrived == total != told:
                    bar.update(arrived - told)
                    told = arrived

            outcome = run.run(show)
        spent = max(time.monotonic() - began, 1e-9)
        echo(
            f"{name}: {outcome.decisions:,} decisions, {outcome.decisions / spent:,.0f} per second", err=True
        )
        outcomes.append(outcome)
        if outcome.interrupted:
            break
    return outcomes


def _nodes(cluster: str, gpus: int) -> tuple[Node, ...]:
    if is_shape(cluster):
        return parse_shape(cluster)
    if cluster.removesuffix(".xz").removesuffix(".gz").endswith(".csv"):
        return read_node_table(cluster, gpus)
    documents, problems = read_files([cluster])
    inputs = gather(documents)
    problems += inputs.problems
    if problems:
        raise click.ClickException("\n".join(map(str, problems)))
    usable = tuple(node for node in inputs.nodes.values() if node.ready and node.schedulable)
    if not usable:
        raise click.ClickException(f"{cluster} has no Node that is ready and schedulable; add the nodes")
    return tuple(sorted(usable, key=lambda node: node.name))


def _outages(text: str, nodes: Sequence[Node], trace: Trace, seed: int) -> tuple[NodeOutage, ...]:
    if not text:
        return ()
    return draw_outages(text, nodes, trace, seed) if "=" in text else read_outages(text, nodes)


def _slowdowns(texts: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        level, _, rate = text.rpartition("=")
        try:
            value = float(rate)
        except ValueError:
            value = 0.0
        if not level or not 0 < value <= 1:
            raise click.BadParameter(
                f"{text} is no LEVEL=RATE; give a rate above 0 and up to 1", param_hint="--slowdown"
            )
        found[level] = value
    return found


def _notes(trace: Trace, settings: RunSettings) -> tuple[str, ...]:
    notes = list(trace.notes)
    if any(job.gpu_share for job in trace.jobs):
        notes.append("shares of a GPU are counted per node, not per device")
    if unknown := sum(job.duration is None for job in trace.jobs):
        notes.append(f"{unknown} jobs without a run time in the trace are left out")
    if outages := settings.disruptions.outages:
        notes.append(f"{len(outages):,} node failures; jobs on the node start again from their beginning")
    if share := settings.disruptions.failing_share:
        notes.append(f"{share:.0%} of jobs fail at any moment of their run time")
    if settings.disruptions.patience < NEVER:
        notes.append(f"jobs leave after waiting for {seconds_in_words(settings.disruptions.patience)}")
    notes += [
        f"a job across domains of {level} runs at {rate:g} of its rate"
        for level, rate in settings.slowdowns.items()
    ]
    return tuple(notes)


def _write(report: SimulationReport | SweepReport, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(report.json(), encoding="utf-8")
        (folder / "report.html").write_text(report.html(), encoding="utf-8")
        if can_draw():
            for plot in report.plots():
                (folder / f"{plot.name}.png").write_bytes(png(plot))
    except OSError as error:
        raise click.ClickException(f"{folder}: {error.strerror or error}") from None
