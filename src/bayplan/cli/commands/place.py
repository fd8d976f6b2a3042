"""`bayplan place`: where every pod of a gang would be placed, or why the gang does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from bayplan.cli.config.objects import Inputs, gather
from bayplan.cli.config.options import takes_configuration
from bayplan.cli.config.output import echo, echo_json, echo_yaml
from bayplan.cli.config.read_files import InputProblem, read_files
from bayplan.cli.inputs.placement_input import (
    InvalidInput,
    PlacementInput,
    PlacementResult,
    PlaceOptions,
    build_input,
    place_all,
    rows_of,
)
from bayplan.cli.inputs.report import outcome_report, problems_report
from bayplan.cli.render.console import console as new_console
from bayplan.cli.render.numa import current_zones, drawn, zone_pods
from bayplan.cli.render.topology_tree import draw, take_picture
from bayplan.dialects.kube.fields.reader import printable
from bayplan.explanation.devices import asked_text
from bayplan.explanation.misfit import Explanation, explain, request_text
from bayplan.explanation.text import counted, short_levels
from bayplan.model.assignment import Code
from bayplan.model.gang import PodSet
from bayplan.model.profile import Profile, Strategy

PLACED, MISFIT, BAD_INPUT = 0, 1, 2


@click.command()
@click.option(
    "-f", "--file", "files", multiple=True, required=True, metavar="FILE",
    help="YAML or JSON with any of Node, NodeResourceTopology, Pod, Topology, ResourceFlavor, Job, JobSet, "
    "Workload, DeviceClass, ResourceSlice, ResourceClaim, ResourceClaimTemplate, DeviceTaintRule, or lists "
    "of them as kubectl prints; - is standard input. May be repeated.",
)  # fmt: skip
@click.option(
    "--strategy",
    type=click.Choice([strategy.value for strategy in Strategy]),
    help="How to choose between domains. Default: the configured strategies; else best_fit, and pack_racks "
    "for gangs without a topology.",
)
@click.option(
    "--levels",
    metavar="A,B,C",
    help="Node labels from the widest level down; the host is added below. Default: the Topology in the "
    "files, else inferred from the labels of the nodes.",
)
@click.option("--topology", metavar="NAME", help="The Topology to use, if the files have several.")
@click.option("--flavor", metavar="NAME", help="The ResourceFlavor to use, if the files have several.")
@click.option(
    "-o", "--output", type=click.Choice(["tree", "json", "yaml"]), default="tree", show_default=True,
    help="A drawing, or all details as JSON or YAML.",
)  # fmt: skip
@click.option("--full", is_flag=True, help="Draw every host that gets a pod, one by one.")
@click.option(
    "--zones", is_flag=True,
    help="Draw the NUMA zones of nodes as well, from the NodeResourceTopology objects in the files.",
)  # fmt: skip
@takes_configuration
@click.pass_context
def place(ctx: click.Context, /, **options: Any) -> None:
    """Place the gangs in the files on the nodes in the files, in order.

    Draws the free capacity and what each gang takes of it; if a gang does not fit, shows what it requests,
    the domain that came closest, and what would help.

    Exit status: 0 all placed, 1 some gang does not fit, 2 bad input.
    """
    status = _run(options)
    ctx.exit(status)


def _run(options: dict[str, Any]) -> int:
    documents, problems = read_files(options["files"])
    inputs = gather(documents)
    problems += inputs.problems
    placement_input = None
    try:
        placement_input = build_input(inputs, _place_options(options))
    except InvalidInput as error:
        # If a file could not be read, an object that is missing may be in it.
        problems += [] if problems else error.problems
    if problems or placement_input is None:
        _print_problems(problems, options["output"])
        return BAD_INPUT
    outcomes = [(outcome, _explanation(outcome, placement_input)) for outcome in place_all(placement_input)]
    status = max((_status(outcome) for outcome, _ in outcomes), default=PLACED)
    if options["output"] == "tree":
        _print_drawings(
            placement_input,
            outcomes,
            _notes(inputs, placement_input),
            full=options["full"],
            zones=options["zones"],
        )
    else:
        _print_data(
            outcome_report(placement_input, outcomes, _notes(inputs, placement_input), status),
            options["output"],
        )
    return status


def _status(outcome: PlacementResult) -> int:
    misfit = outcome.placement.misfit
    if misfit is None:
        return PLACED
    return BAD_INPUT if misfit.code is Code.NOT_INSTALLED else MISFIT


def _place_options(options: dict[str, Any]) -> PlaceOptions:
    profile: Profile = options["settings"].profile
    if options["strategy"]:
        strategy = Strategy(options["strategy"])
        profile = replace(profile, required=strategy, preferred=strategy, unconstrained=strategy)
    return PlaceOptions(profile, options["levels"], options["topology"], options["flavor"])


def _explanation(outcome: PlacementResult, placement_input: PlacementInput) -> Explanation | None:
    if outcome.placement.misfit is None:
        return None
    found = explain(
        outcome.asked,
        outcome.placement.misfit,
        outcome.supply,
        placement_input.profile,
        placement_input.left_out,
    )
    return replace(found, found=(*found.found, *outcome.shortages))


def _notes(inputs: Inputs, placement_input: PlacementInput) -> list[str]:
    notes = []
    for (noun, text), number in inputs.notes.items():
        notes.append(f"{counted(number, noun)} {text}")
    elsewhere = sum(use.node not in inputs.nodes for use in inputs.uses)
    if elsewhere:
        notes.append(f"{counted(elsewhere, 'pod')} on nodes that are not in the input")
    notes += [f"{counted(number, 'node')} {why}" for why, number in placement_input.left_out.items()]
    return notes


def _print_problems(problems: Sequence[InputProblem], output: str) -> None:
    for problem in problems:
        echo(str(problem), err=True)
    echo(f"{counted(len(problems), 'problem')}: nothing was placed", err=True)
    if output != "tree":
        _print_data(problems_report(problems, BAD_INPUT), output)


def _print_drawings(
    placement_input: PlacementInput, outcomes: Sequence[tuple[PlacementResult, Explanation | None]],
    notes: Sequence[str], *, full: bool, zones: bool,
) -> None:  # fmt: skip
    console = new_console(soft_wrap=True)
    levels = short_levels(placement_input.topology.levels)
    steps = " ▸ ".join(levels[level] for level in placement_input.topology.levels)
    _say(
        console,
        f"{counted(len(placement_input.nodes), 'node')}, topology {placement_input.topology.name}: {steps}",
    )
    for note in notes:
        _say(console, f"note: {note}", "dim")
    for outcome, explanation in outcomes:
        console.print()
        _print_outcome(console, outcome, explanation, full=full)
        for line in _zones(placement_input, outcome) if zones else ():
            _say(console, f"    {line}")


def _print_outcome(
    console: Console, outcome: PlacementResult, explanation: Explanation | None, *, full: bool
) -> None:
    source, topology = outcome.gang.source, outcome.supply.tree.topology
    _say(console, f"{source.kind} {source.namespace}/{source.name}", "bold")
    for pod_set in outcome.gang.root.pod_sets():
        _say(console, f"  {pod_set.name}: {request_text(pod_set, topology)}{_claims(pod_set)}")
    if explanation is None:
        _say(console, f"  placed: {_summary(outcome)}", "green")
    else:
        _say(console, "  does not fit", "red")
        for head, sentences in (("found", explanation.found), ("try", explanation.advice)):
            for sentence in sentences:
                _say(console, f"  {head}: {sentence}")
    picture = take_picture(outcome.asked, outcome.placement, outcome.supply, outcome.classes)
    for line in draw(picture, full=full):
        console.print(Text("    ") + line)


def _claims(pod_set: PodSet) -> str:
    """`; claim gpus: 4 x gpu.example.com`."""
    devices = None if pod_set.template is None else pod_set.template.devices
    return "" if devices is None or not devices.claims else f"; {asked_text(devices)}"


def _zones(placement_input: PlacementInput, outcome: PlacementResult) -> list[str]:
    """The NUMA zones of the nodes of the gang before its placement; of all nodes, if it does not fit."""
    nodes, placement = outcome.supply.tree.nodes, outcome.placement
    if outcome.columns is None:
        return ["no NodeResourceTopology in the input: NUMA zones are unknown"]
    names = [node.name for node in nodes]
    reports = current_zones(placement_input.zones, names, outcome.columns)
    if not placement.ok or not placement_input.topology.ends_at_host:
        return drawn(names, reports, {})
    pods = {name: rows_of(outcome.supply, placement, name) for name in placement.assignments}
    used = sorted({row for rows in pods.values() for row in rows})
    pods_by_zone = zone_pods(outcome.gang, pods, outcome.columns, placement_input.profile.zones)
    return drawn(
        [names[row] for row in used], reports, {names[row]: zones for row, zones in pods_by_zone.items()}
    )


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(printable(text), style=style))


def _summary(outcome: PlacementResult) -> str:
    tree = outcome.supply.tree
    leaves = set()
    pods = 0
    for assignment in outcome.placement.assignments.values():
        pods += assignment.count
        leaves |= {outcome.supply.leaf(share.values) for share in assignment.shares}
    names = short_levels(tree.levels)
    touched = []
    for level in range(tree.lowest, -1, -1):
        paths = {tree.path(tree.lowest, leaf)[: level + 1] for leaf in leaves if leaf is not None}
        touched.append(counted(len(paths), names[tree.levels[level]]))
    proven = all(assignment.proven for assignment in outcome.placement.assignments.values())
    return f"{counted(pods, 'pod')} on {', '.join(touched)}{'; proven best' if proven else ''}"


def _print_data(data: dict[str, Any], output: str) -> None:
    (echo_json if output == "json" else echo_yaml)(data)
