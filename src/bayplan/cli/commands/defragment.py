"""`bayplan defragment`: the cheapest moves of running gangs after which a gang fits."""

from __future__ import annotations

import secrets
from typing import NoReturn

import click

from bayplan.cli.config.output import echo
from bayplan.cli.live.state import ClusterTarget, cluster_options
from bayplan.cli.planning.defragment_report import report_lines, report_record
from bayplan.cli.planning.defragmentation import (
    RoomOptions,
    defragmentation,
    read_fragmented,
    require_room,
)
from bayplan.cli.render.tables import say, say_json
from bayplan.cli.running.defragment_standing import StandingDefragmentation
from bayplan.cli.running.defragment_steps import PlanExecution, StepSettings
from bayplan.dialects.kube.fields.run_limits import parsed_duration
from bayplan.scheduling.defragment.cost import CostRules
from bayplan.scheduling.defragment.policy import DefragmentPolicy
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
    "--assume-checkpoint", metavar="DURATION", default="1h", show_default=True,
    help="How old the last checkpoint of a gang is at most, if no annotation states it.",
)  # fmt: skip
@click.option("--apply", is_flag=True, help="Make the moves, one gang after the other.")
@click.option(
    "--timeout", metavar="DURATION", default="5m", show_default=True,
    help="With --apply: how long a gang may take to leave, and to run again.",
)  # fmt: skip
@click.option(
    "--standing", is_flag=True,
    help="Make room again and again for gangs that wait long for one domain, within the budget below.",
)  # fmt: skip
@click.option("--every", metavar="DURATION", default="1m", show_default=True, help="With --standing.")
@click.option(
    "--waits", metavar="DURATION", default="15m", show_default=True,
    help="With --standing: a gang has to wait so long before others move for it.",
)  # fmt: skip
@click.option(
    "--moves-per-hour", type=click.IntRange(1), default=12, show_default=True, help="With --standing."
)
@click.option(
    "--gpu-hours-per-day", type=click.FloatRange(0), default=500.0, show_default=True,
    help="With --standing: the work that may be done again because of moves.",
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
    assume_checkpoint: str,
    apply: bool,
    timeout: str,
    standing: bool,
    every: str,
    waits: str,
    moves_per_hour: int,
    gpu_hours_per_day: float,
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
    evicts the gang and waits until it runs again. If something does not hold, it stops and says why.

    With --standing, it runs until it is ended and makes such moves for pending gangs that have waited long
    for one domain, if the work done again is less than half of the time waited, times the GPUs of the gang.

    Exit status: 0 the gang fits, now or after the moves; 3 no moves make room for it; 4 --apply stopped;
    2 bad input; 1 bad input that only the cluster shows, or the cluster does not answer.
    """
    costs = CostRules(assumed_checkpoint=int(_seconds("--assume-checkpoint", assume_checkpoint)))
    options = RoomOptions(wanted, level, costs)
    settings = StepSettings(secrets.token_hex(4), _seconds("--timeout", timeout))
    if standing:
        if wanted or level:
            raise click.UsageError("--standing finds the gangs that wait itself; leave out --for and --level")
        policy = DefragmentPolicy(
            _seconds("--waits", waits), moves_per_hour=moves_per_hour, gpu_hours_per_day=gpu_hours_per_day
        )
        _stand(StandingDefragmentation(target, policy, costs, settings, _tell), _seconds("--every", every))
    require_room(options)
    ctx.exit(_once(target, options, settings if apply else None, as_json=output == "json", full=full))


def _once(
    target: ClusterTarget, options: RoomOptions, settings: StepSettings | None, *, as_json: bool, full: bool
) -> int:
    """Show the moves, and make them if there are settings for that; returns the exit status."""
    with target.live() as live:
        answer = defragmentation(read_fragmented(live, options))
        if as_json:
            say_json(report_record(answer))
        else:
            say(report_lines(answer, full=full))
    if not isinstance(answer.found, DefragmentPlan):
        return NO_ROOM
    if settings is None or not answer.found.moves:
        return DONE
    stopped = PlanExecution(target, options, settings, _tell).run(answer.found)
    _tell(stopped or f"{answer.cluster.room.title}: fits now")
    return STOPPED if stopped else DONE


def _stand(standing: StandingDefragmentation, every: float) -> NoReturn:
    """Rounds until the process is ended; what cannot be read or written now is tried again."""
    while True:
        try:
            standing.round()
        except click.ClickException as error:
            _tell(error.message)
        standing.target.clock.sleep(every)


def _tell(line: str) -> None:
    echo(line, err=True)


def _seconds(option: str, text: str) -> float:
    found = parsed_duration(text)
    if found is None:
        raise click.UsageError(f"{option} is {text[:40]!r}; give a duration such as 90m")
    return found
