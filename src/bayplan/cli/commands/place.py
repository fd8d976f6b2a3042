"""`bayplan place`: say where every pod of a gang goes, or exactly why it cannot."""

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
    build_scene,
    place_all,
    rows_of,
)
from bayplan.cli.inputs.report import outcome_report, problems_report
from bayplan.cli.render.console import console as new_console
from bayplan.cli.render.numa import as_found, drawn, guests_of
from bayplan.cli.render.topology_tree import draw, take_picture
from bayplan.dialects.kube.fields.reader import printable
from bayplan.explanation.misfit import Explanation, explain, wish
from bayplan.explanation.text import counted, short_levels
from bayplan.model.assignment import Code
from bayplan.model.profile import Profile, Strategy

PLACED, MISFIT, BAD_INPUT = 0, 1, 2


@click.command()
@click.option(
    "-f", "--file", "files", multiple=True, required=True, metavar="FILE",
    help="YAML or JSON with any of Node, NodeResourceTopology, Pod, Topology, ResourceFlavor, Job, JobSet, "
    "Workload, or lists of them as kubectl prints; - is standard input. May be given several times.",
)  # fmt: skip
@click.option(
    "--strategy",
    type=click.Choice([strategy.value for strategy in Strategy]),
    help="How to choose between domains. Default: as configured; else best_fit, and least_free for gangs "
    "without a topology.",
)
@click.option(
    "--levels",
    metavar="A,B,C",
    help="Node labels from the widest level down; the host is added below. Default: the Topology in the "
    "files, else what the labels of the nodes suggest.",
)
@click.option("--topology", metavar="NAME", help="Which Topology to use, if the files have several.")
@click.option("--flavor", metavar="NAME", help="Which ResourceFlavor to use, if the files have several.")
@click.option(
    "-o", "--output", type=click.Choice(["tree", "json", "yaml"]), default="tree", show_default=True,
    help="A drawing for people, or everything for machines.",
)  # fmt: skip
@click.option("--full", is_flag=True, help="Draw every host that gets a pod, one by one.")
@click.option(
    "--zones", is_flag=True,
    help="Draw the zones inside nodes as well, from the NodeResourceTopology objects in the files.",
)  # fmt: skip
@takes_configuration
@click.pass_context
def place(ctx: click.Context, /, **options: Any) -> None:
    """Place the gangs in the files on the nodes in the files, one after the other.

    Draws what was free and what each gang takes; when a gang does not fit, says what was asked, what was
    found and what would help.

    Exit status: 0 all placed, 1 some gang does not fit, 2 bad input.
    """
    status = _run(options)
    ctx.exit(status)


def _run(options: dict[str, Any]) -> int:
    documents, problems = read_files(options["files"])
    inputs = gather(documents)
    problems += inputs.problems
    scene = None
    try:
        scene = build_scene(inputs, _wishes(options))
    except InvalidInput as trouble:
        # Without every file, what is missing from the rest means nothing.
        problems += [] if problems else trouble.problems
    if problems or scene is None:
        _tell_problems(problems, options["output"])
        return BAD_INPUT
    told = [(outcome, _explanation(outcome, scene)) for outcome in place_all(scene)]
    status = max((_status(outcome) for outcome, _ in told), default=PLACED)
    if options["output"] == "tree":
        _tell(scene, told, _notes(inputs, scene), full=options["full"], zones=options["zones"])
    else:
        _print_data(outcome_report(scene, told, _notes(inputs, scene), status), options["output"])
    return status


def _status(outcome: PlacementResult) -> int:
    misfit = outcome.placement.misfit
    if misfit is None:
        return PLACED
    return BAD_INPUT if misfit.code is Code.NOT_INSTALLED else MISFIT


def _wishes(options: dict[str, Any]) -> PlaceOptions:
    profile: Profile = options["settings"].profile
    if options["strategy"]:
        strategy = Strategy(options["strategy"])
        profile = replace(profile, required=strategy, preferred=strategy, unconstrained=strategy)
    return PlaceOptions(profile, options["levels"], options["topology"], options["flavor"])


def _explanation(outcome: PlacementResult, scene: PlacementInput) -> Explanation | None:
    if outcome.placement.misfit is None:
        return None
    return explain(outcome.asked, outcome.placement.misfit, outcome.supply, scene.profile, scene.left_out)


def _notes(inputs: Inputs, scene: PlacementInput) -> list[str]:
    notes = []
    for (noun, text), number in inputs.notes.items():
        notes.append(f"{counted(number, noun)} {text}")
    strays = sum(use.node not in inputs.nodes for use in inputs.uses)
    if strays:
        notes.append(f"{counted(strays, 'pod')} on nodes that are not in the input")
    notes += [f"{counted(number, 'node')} {why}" for why, number in scene.left_out.items()]
    return notes


def _tell_problems(problems: Sequence[InputProblem], output: str) -> None:
    for problem in problems:
        echo(str(problem), err=True)
    echo(f"{counted(len(problems), 'problem')}: nothing was placed", err=True)
    if output != "tree":
        _print_data(problems_report(problems, BAD_INPUT), output)


def _tell(
    scene: PlacementInput, told: Sequence[tuple[PlacementResult, Explanation | None]], notes: Sequence[str], *, full: bool,
    zones: bool,
) -> None:  # fmt: skip
    console = new_console(soft_wrap=True)
    levels = short_levels(scene.topology.levels)
    steps = " ▸ ".join(levels[level] for level in scene.topology.levels)
    _say(console, f"{counted(len(scene.nodes), 'node')}, topology {scene.topology.name}: {steps}")
    for note in notes:
        _say(console, f"note: {note}", "dim")
    for outcome, explanation in told:
        console.print()
        _tell_outcome(console, outcome, explanation, full=full)
        for line in _zones(scene, outcome) if zones else ():
            _say(console, f"    {line}")


def _tell_outcome(
    console: Console, outcome: PlacementResult, explanation: Explanation | None, *, full: bool
) -> None:
    source, topology = outcome.gang.source, outcome.supply.tree.topology
    _say(console, f"{source.kind} {source.namespace}/{source.name}", "bold")
    for pod_set in outcome.gang.root.pod_sets():
        _say(console, f"  {pod_set.name}: {wish(pod_set, topology)}")
    if explanation is None:
        _say(console, f"  placed: {_summary(outcome)}", "green")
    else:
        _say(console, "  does not fit", "red")
        for head, sentences in (("found", explanation.found), ("try", explanation.advice)):
            for sentence in sentences:
                _say(console, f"  {head}: {sentence}")
    for line in draw(take_picture(outcome.asked, outcome.placement, outcome.supply), full=full):
        console.print(Text("    ") + line)


def _zones(scene: PlacementInput, outcome: PlacementResult) -> list[str]:
    """The zones of the nodes that the gang uses, as it found them; of all nodes, if it has no place."""
    nodes, placement = outcome.supply.tree.nodes, outcome.placement
    if outcome.columns is None:
        return ["no NodeResourceTopology in the input: nothing is known of zones"]
    names = [node.name for node in nodes]
    told = as_found(scene.zones, names, outcome.columns)
    if not placement.ok or not scene.topology.ends_at_host:
        return drawn(names, told, {})
    pods = {name: rows_of(outcome.supply, placement, name) for name in placement.assignments}
    used = sorted({row for rows in pods.values() for row in rows})
    guests = guests_of(outcome.gang, pods, outcome.columns, scene.profile.zones)
    return drawn([names[row] for row in used], told, {names[row]: there for row, there in guests.items()})


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
