"""The plots of a report as PNG images; needs matplotlib, which the extra `sim` installs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from bayplan.simulation.reports.plots import HEIGHT, WIDTH, BarPlot, LinePlot, colour

DOTS_PER_INCH = 100
SCALE = 2
HOUR = 3600.0


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def png(plot: LinePlot | BarPlot) -> bytes:
    """One image. It has no date and no version in it: the same plot gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure((SCALE * WIDTH / DOTS_PER_INCH, SCALE * HEIGHT / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
    FigureCanvasAgg(figure)
    axes: Any = figure.add_subplot()
    axes.set_title(plot.title)
    if isinstance(plot, LinePlot):
        for number, (name, points) in enumerate(plot.series.items()):
            axes.step(
                [x / HOUR for x, _ in points],
                [y for _, y in points],
                where="post",
                color=colour(number),
                label=name,
            )
        axes.set_xlabel("virtual time in hours")
    else:
        _bars(axes, plot.classes, plot)
    axes.set_ylim(0, 1 if plot.percent else None)
    if plot.percent:
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    if plot.series:
        axes.legend()
    out = BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _bars(axes: Any, classes: Sequence[str], plot: BarPlot) -> None:
    width = 0.8 / max(len(plot.series), 1)
    for number, (name, values) in enumerate(plot.series.items()):
        known = [(place, value) for place, value in enumerate(values) if value is not None]
        places = [place + (number - (len(plot.series) - 1) / 2) * width for place, _ in known]
        axes.bar(places, [value for _, value in known], width, color=colour(number), label=name)
    axes.set_xticks(range(len(classes)), classes)
