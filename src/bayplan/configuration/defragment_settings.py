"""The section `defragmentation`: what the role defragment, and `bayplan defragment --standing`, keep to."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.configuration.fields import COUNT, ValueForm, number, seconds


@dataclass(frozen=True, slots=True)
class DefragmentSettings:
    """Budget, hysteresis and times of moves without a person."""

    every_seconds: float = 60.0
    wait_seconds: float = 900.0
    again_seconds: float = 1800.0
    least_run_seconds: float = 600.0
    gain_ratio: float = 2.0
    moves_per_hour: int = 12
    gpu_hours_per_day: float = 500.0
    checkpoint_seconds: float = 3600.0
    timeout_seconds: float = 300.0


ROWS: tuple[tuple[str, str, ValueForm, str], ...] = (
    ("everySeconds", "every_seconds", seconds(above_zero=True), "time between two rounds"),
    ("waitSeconds", "wait_seconds", seconds(),
     "how long a gang has to wait for room in one domain before others move for it"),
    ("againAfterSeconds", "again_seconds", seconds(),
     "time until moves are searched again for the same gang"),
    ("leastRunSeconds", "least_run_seconds", seconds(),
     "how long a gang runs before it is moved, also after it was moved"),
    ("gainRatio", "gain_ratio", number(above_zero=True),
     "moves are made if the GPU-hours that the gang has waited are at least so many times the GPU-hours of"
     " work that are done again"),
    ("movesPerHour", "moves_per_hour", COUNT, "the most gangs that are moved in an hour"),
    ("gpuHoursPerDay", "gpu_hours_per_day", number(),
     "the most GPU-hours of work that are done again in a day because of moves"),
    ("assumedCheckpointSeconds", "checkpoint_seconds", seconds(),
     "how old the last checkpoint of a gang is at most, if no annotation states it"),
    ("timeoutSeconds", "timeout_seconds", seconds(above_zero=True),
     "how long a gang may take to leave, and to run again"),
)  # fmt: skip
"""Path below the section, field, format and meaning of each option."""
