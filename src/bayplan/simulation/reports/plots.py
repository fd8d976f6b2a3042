"""Plots: lines over time, and bars by class, drawn as inline SVG."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 34
COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#7d5ba6", "#4a4a4a", "#00798c", "#a44a3f", "#8f8f3f")

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class LinePlot:
    """Steps over virtual time: a value holds until the next."""

    name: str  # of the image
    title: str
    series: Mapping[str, Points]
    percent: bool = False

    def svg(self) -> str:
        """The plot as an element of a page."""
        across = max((x for points in self.series.values() for x, _ in points), default=0.0) or 1.0
        most = _most((y for points in self.series.values() for _, y in points), self.percent)
        parts = [_axes(most, self.percent), _x_axis(across, "virtual time")]
        for number, points in enumerate(self.series.values()):
            path, height = [], None
            for x, y in points:
                at = f"{_x(x / across):.1f}"
                path.append(f"M{at},{_y(y / most):.1f}" if height is None else f"H{at}V{_y(y / most):.1f}")
                height = y
            parts.append(
                f'<path d="{"".join(path)}" fill="none" stroke="{colour(number)}" stroke-width="1.5"/>'
            )
        return _svg(parts)


@dataclass(frozen=True, slots=True)
class BarPlot:
    """Bars side by side for each class; a missing value has no bar."""

    name: str  # of the image
    title: str
    classes: Sequence[str]
    series: Mapping[str, Sequence[float | None]]
    percent: bool = False

    def svg(self) -> str:
        """The plot as an element of a page."""
        known = (value for values in self.series.values() for value in values if value is not None)
        most = _most(known, self.percent)
        parts = [_axes(most, self.percent)]
        room = (WIDTH - LEFT - RIGHT) / max(len(self.classes), 1)
        width = 0.8 * room / max(len(self.series), 1)
        for place, name in enumerate(self.classes):
            left = LEFT + place * room + 0.1 * room
            for number, values in enumerate(self.series.values()):
                value = values[place]
                if value is not None:
                    top = _y(value / most)
                    parts.append(
                        f'<rect x="{left + number * width:.1f}" y="{top:.1f}" width="{width:.1f}" '
                        f'height="{HEIGHT - BOTTOM - top:.1f}" fill="{colour(number)}"/>'
                    )
            parts.append(_text(left + 0.4 * room, HEIGHT - BOTTOM + 16, name, "middle"))
        return _svg(parts)


def legend(names: Sequence[str]) -> str:
    """The colour of each series."""
    return " ".join(
        f'<span class="key"><i style="background:{colour(number)}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )


def seconds_in_words(seconds: float | None) -> str:
    """`-`, `40 s`, `12 min`, `3.4 h`, `2.1 d`."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _most(values: Iterable[float], percent: bool) -> float:
    """The upper end of the axis."""
    return 1.0 if percent else max(values, default=0.0) or 1.0


def _x(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _y(share: float) -> float:
    return HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM)


def colour(number: int) -> str:
    """The colour of a series."""
    return COLOURS[number % len(COLOURS)]


def _axes(most: float, percent: bool) -> str:
    parts = []
    for quarter in range(5):
        y = _y(quarter / 4)
        label = f"{25 * quarter} %" if percent else f"{most * quarter / 4:,.4g}"
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, y + 4, label, "end"))
    return "".join(parts)


def _x_axis(across: float, title: str) -> str:
    labels = [
        _text(_x(at / 4), HEIGHT - BOTTOM + 16, seconds_in_words(across * at / 4), "middle")
        for at in range(4)
    ]
    return "".join(labels) + _text(WIDTH - RIGHT, HEIGHT - 4, title, "end")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg>'
