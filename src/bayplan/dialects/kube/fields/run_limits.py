"""How long a job or a Workload may run, as far as its fields and annotations say."""

from __future__ import annotations

import re

from bayplan.dialects.kube.fields.reader import Field

EXPECTED_RUNTIME = "bayplan.dev/expected-runtime"
"""An annotation of jobs, Workloads and queues: `5400`, `90m` or `1h30m`."""
SECONDS_LONGEST = 10 * 365 * 86400.0
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION = re.compile(r"(?:\d{1,9}[dhms])+")
_DEADLINE = "activeDeadlineSeconds"


def run_limit(obj: object) -> float | None:
    """The shortest limit of a job, pod or Workload in seconds; None if it has none."""
    field = Field(obj)
    spec = field.at("spec")
    deadlines = [
        spec.at("maximumExecutionTimeSeconds").value,
        spec.at(_DEADLINE).value,
        spec.at("runPolicy", _DEADLINE).value,
        _longest([one.at("template", "spec", _DEADLINE).value for one in _items(spec.at("podSets"))]),
        _longest([one.at("template", "spec", _DEADLINE).value for one in _items(spec.at("replicatedJobs"))]),
    ]
    found = [float(one) for one in deadlines if isinstance(one, int | float) and one > 0]
    if (expected := annotated_limit(obj)) is not None:
        found.append(expected)
    return min(found, default=None)


def annotated_limit(obj: object) -> float | None:
    """The run time that the annotation of an object states; None without one that can be read."""
    annotations = Field(obj).at("metadata", "annotations").value
    text = annotations.get(EXPECTED_RUNTIME) if isinstance(annotations, dict) else None
    return parsed_duration(text) if isinstance(text, str) else None


def parsed_duration(text: str) -> float | None:
    """Seconds, given as such or as `1h30m`; None if the text is neither, or nothing."""
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) <= 9:
        seconds = float(text)
    elif _DURATION.fullmatch(text):
        seconds = sum(float(amount) * _UNITS[unit] for amount, unit in re.findall(r"(\d+)([dhms])", text))
    else:
        return None
    return seconds if 0 < seconds <= SECONDS_LONGEST else None


def _items(field: Field) -> list[Field]:
    return list(field.items()) if isinstance(field.value, list) else []


def _longest(values: list[object]) -> float | None:
    """The longest of the parts; one without a deadline has no end."""
    found = [float(one) for one in values if isinstance(one, int | float)]
    return max(found) if found and len(found) == len(values) else None
