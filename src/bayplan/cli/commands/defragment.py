"""`bayplan defragment`: the cheapest moves of running gangs after which a gang fits."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

import click

from bayplan.cli.config.output import echo
from bayplan.cli.live.scheduled_state import read_scheduled
from bayplan.cli.live.state import ClusterTarget, cluster_options
from bayplan.cli.planning.defragment_report import report_lines, report_record
from bayplan.cli.planning.defragmentation import RoomOptions, defragmentation, fragmented, require_room
from bayplan.cli.render.tables import say, say_json
from bayplan.cli.running.defragment_leftovers import at_work, find_leftovers, put_right
from bayplan.cli.running.defragment_standing import ended_by_signal, stand, standing_defragmentation
from bayplan.cli.running.defragment_steps import PlanExecution, StepSettings
from bayplan.configuration.defragment_settings import DefragmentSettings
from bayplan.dialects.kube.fields.run_limits import parsed_duration
from bayplan.scheduling.defragment.cost import CostRules
from bayplan.scheduling.defragment.problem import DefragmentPlan

DONE, STOPPED, NO_ROOM = 0, 4, 3


@click.command()
@click.option(
    "--for", "wanted", metavar="GANG", default="",
    help="The gang that needs room: 'gang of 64 gpu in one rack', 'gang of 8 x 4 gpu in one block', or the"
    " name of a pending gang.",
)  # fmt: skip
@click.option(
    "--level", metavar="LEVEL", default="",
    help="Make room for a gang that fills a whole domain of this level.",
)  # fmt: skip
@click.option(
    "--assume-checkpoint", metavar="DURATION",
    help="How old the last checkpoint of a gang is at most, if no annotation states it"
    " (default: of the configuration, 1h).",
)  # fmt: skip
@click.option("--apply", is_flag=True, help="Make the moves, one gang after the other.")
@click.option(
    "--timeout", metavar="DURATION",
    help="With --apply: how long a gang may take to leave, and to run again (default: of the configuration,"
    " 5m).",
)  # fmt: skip
@click.option(
    "--standing", is_flag=True,
    help="Make room again and again for gangs that wait long for one domain, within the budget of the"
    " configuration.",
)  # fmt: skip
@click.option("--every", metavar="DURATION", help="With --standing: the time between rounds (default: 1m).")
@click.option(
    "--waits", metavar="DURATION",
    help="With --standing: a gang has to wait so long before others move for it (default: 15m).",
)  # fmt: skip
@click.option("--moves-per-hour", type=click.IntRange(1), help="With --standing (default: 12).")
@click.option(
    "--gpu-hours-per-day", type=click.FloatRange(0),
    help="With --standing: the work that may be done again because of moves (default: 500).",
)  # fmt: skip
@click.option(
    "--undo", is_flag=True,
    help="Take back what a run has left behind that was killed: start stopped gangs, remove held places and"
    " taints.",
)  # fmt: skip
@cluster_options
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print JSON.")
@click.option("--full", is_flag=True, help="Draw every host that is concerned.")
@click.pass_context
def defragment(
    ctx: click.Context,
    target: ClusterTarget,
    wanted: str,
    level: str,
    assume_checkpoint: str | None,
    apply: bool,
    timeout: str | None,
    standing: bool,
    every: str | None,
    waits: str | None,
    moves_per_hour: int | None,
    gpu_hours_per_day: float | None,
    undo: bool,
    output: str | None,
    full: bool,
) -> None:
    """Find the cheapest moves of running gangs after which a gang fits, and show them.

    Whole gangs move, never a part of one. A gang may move if it is preemptible and its priority is not higher
    than that of the gang that needs room, or if it has the label bayplan.dev/movable=true; and if its
    PodDisruptionBudgets allow all its pods to be evicted at once. Each move has a place that is free while
    the gang still runs. The cost is the work that is done again, in GPU-hours. Nothing is written without
    --apply.

    With --apply, each step reads the cluster again and proves the rest of the plan, holds the new place,
    evicts the gang and waits until it runs again. If something does not hold, it stops and says why. What a
    run that was killed has left behind is put right first, or at once with --undo.

    With --standing, it runs until it is ended and makes such moves for pending gangs that have waited long
    for one domain, if the work done again is less than half of the time waited, times the GPUs of the gang.
    The role defragment of `bayplan run` does the same in the leader.

    Exit status: 0 the gang fits, now or after the moves; 3 no moves make room for it; 4 --apply stopped;
    2 bad input; 1 bad input that only the cluster shows, or the cluster does not answer.
    """
    given = {
        "checkpoint_seconds": _seconds("--assume-checkpoint", assume_checkpoint),
        "timeout_seconds": _seconds("--timeout", timeout),
        "every_seconds": _seconds("--every", every),
        "wait_seconds": _seconds("--waits", waits),
        "moves_per_hour": moves_per_hour,
        "gpu_hours_per_day": gpu_hours_per_day,
    }
    limits = _overridden(target.settings.defragmentation, given)
    name = secrets.token_hex(4)
    if standing + undo + bool(wanted or level) > 1:
        raise click.UsageError("give only one of --for or --level, --standing, and --undo")
    if undo:
        _undo(target)
    elif standing:
        with ended_by_signal():
            stand(standing_defragmentation(target, limits, name, _tell), limits.every_seconds)
    else:
        options = RoomOptions(wanted, level, CostRules(assumed_checkpoint=int(limits.checkpoint_seconds)))
        require_room(options)
        settings = StepSettings(name, limits.timeout_seconds)
        ctx.exit(_once(target, options, settings if apply else None, as_json=output == "json", full=full))


def _overridden(limits: DefragmentSettings, given: dict[str, Any]) -> DefragmentSettings:
    """The limits of the configuration, or the options that were given instead."""
    return replace(limits, **{name: value for name, value in given.items() if value is not None})


def _once(
    target: ClusterTarget, options: RoomOptions, settings: StepSettings | None, *, as_json: bool, full: bool
) -> int:
    """Show the moves, and make them if there are settings for that; returns the exit status."""
    with target.live() as live:
        scheduled = read_scheduled(live)
        leftovers = find_leftovers(live, scheduled)
        if settings is None or not leftovers:
            answer = defragmentation(fragmented(live, scheduled, options))
    if leftovers and settings is not None:
        busy = [one for one in leftovers if one.until > target.clock.wall()]
        if busy:
            _tell(f"nothing was moved: {at_work(busy[0])}")
            return STOPPED
        put_right(target, leftovers, _tell)
        return _once(target, options, settings, as_json=as_json, full=full)
    for one in leftovers:
        _tell(at_work(one))
    if as_json:
        say_json(report_record(answer))
    else:
        say(report_lines(answer, full=full))
    if not isinstance(answer.found, DefragmentPlan):
        return NO_ROOM
    if settings is None or not answer.found.moves:
        return DONE
    with ended_by_signal():
        stopped = PlanExecution(target, options, settings, _tell).run(answer.found)
    _tell(stopped or f"{answer.cluster.room.title}: fits now")
    return STOPPED if stopped else DONE


def _undo(target: ClusterTarget) -> None:
    """Put right what killed runs have left behind, also what a run may be at work on."""
    with target.live() as live:
        leftovers = find_leftovers(live, read_scheduled(live))
    put_right(target, leftovers, _tell)
    if not leftovers:
        _tell("nothing was left behind: no taint, pod or gang has the mark of a plan")


def _tell(line: str) -> None:
    echo(line, err=True)


def _seconds(option: str, text: str | None) -> float | None:
    found = parsed_duration(text) if text is not None else None
    if text is not None and found is None:
        raise click.UsageError(f"{option} is {text[:40]!r}; give a duration such as 90m")
    return found
