"""The formats of configuration values: each parses a field, and describes what it accepts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from fractions import Fraction
from typing import Any

from bayplan.dialects.kube.fields.name_rules import dns_label_problems, label_key_problems, subdomain_problems
from bayplan.dialects.kube.fields.quantity import CPU, parse_quantity
from bayplan.dialects.kube.fields.reader import Field, type_name
from bayplan.dialects.kueue.fields.counting import CounterSource, DeviceClassMapping, Transformation
from bayplan.model.profile import FairRule

RETAIN, REPLACE = "Retain", "Replace"
FAIR_RULES = (
    (FairRule.FINAL_SHARE, FairRule.INITIAL_SHARE),
    (FairRule.FINAL_SHARE,),
    (FairRule.INITIAL_SHARE,),
)
"""The allowed combinations of rules, in the order they are tried."""
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(h|ms|m|s|us|ns)", re.ASCII)
_DURATION = re.compile(rf"0|({_PART.pattern})+", re.ASCII)
SECONDS_MAX = 1e11  # some thousand years: later dates cannot be printed
MAPPINGS_MAX, CLASSES_MAX = 16, 8
_LISTED_MAX = 8  # known names that an error lists if none is similar


@dataclass(frozen=True, slots=True)
class ValueForm:
    """The format of a value. `read` parses a field that is present, and adds errors to it."""

    words: str
    read: Callable[[Field], Any]


def _flag(field: Field) -> bool:
    return field.flag()


FLAG = ValueForm("`true` or `false`", _flag)


def seconds(*, above_zero: bool = False) -> ValueForm:
    """A number of seconds, with fractions."""
    return ValueForm(
        "seconds" + (", above 0" if above_zero else ""),
        _numbers("a number of seconds", " seconds", above_zero),
    )


def number(*, above_zero: bool = False) -> ValueForm:
    """A number with fractions."""
    return ValueForm(
        "a number " + ("above 0" if above_zero else "of at least 0"), _numbers("a number", "", above_zero)
    )


def _numbers(words: str, unit: str, above_zero: bool) -> Callable[[Field], float]:
    def read(field: Field) -> float:
        value = field.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            field.error(f"must be {words}, not {type_name(value)}")
        elif not value >= 0 or (above_zero and value == 0):  # false for NaN
            field.error(f"must be {words} " + ("above 0" if above_zero else "of at least 0"))
        else:
            return _bounded(field, value, unit)
        return 0.0

    return read


def _duration(field: Field) -> float:
    """A duration as Go writes it: 90s, 1h30m."""
    text = field.text()
    if not _DURATION.fullmatch(text):
        if isinstance(field.value, str):
            field.error("must be a duration such as 90s, 5m or 1h30m")
        return 0.0
    return _bounded(field, sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))


def _bounded(field: Field, value: float, unit: str = " seconds") -> float:
    if value > SECONDS_MAX:
        field.error(f"must be at most {SECONDS_MAX:.0f}{unit}")
        return 0.0
    return float(value)


DURATION = ValueForm("a duration such as `90s`, `5m` or `1h30m`", _duration)


def _count(field: Field) -> int:
    return field.integer()


COUNT = ValueForm("a whole number of at least 0", _count)


def _label_key(field: Field) -> str:
    text = field.text()
    if isinstance(field.value, str):
        for problem in label_key_problems(text):
            field.error(f"is not a valid label key: {problem}")
    return text


LABEL_KEY = ValueForm("a label key", _label_key)


def _object_name(field: Field) -> tuple[str, str] | None:
    text = field.text()
    namespace, _, name = text.partition("/")
    if not isinstance(field.value, str):
        return None
    if dns_label_problems(namespace) or subdomain_problems(name):
        field.error("must be a namespace and a name such as bayplan-system/defaults")
    return namespace, name


CONFIG_MAP = ValueForm("a ConfigMap as `NAMESPACE/NAME`", _object_name)


def choice(kind: type[StrEnum]) -> ValueForm:
    """One member of an enum."""
    return some_of(kind)


def some_of(kind: type[StrEnum], *left_out: StrEnum) -> ValueForm:
    """One member of an enum, except some."""
    known = [one.value for one in kind if one not in left_out]

    def read(field: Field) -> StrEnum | None:
        text = chosen(field, known)
        return kind(text) if text else None

    return ValueForm(_one_of([f"`{word}`" for word in known]), read)


def chosen(field: Field, known: Sequence[str]) -> str:
    """The text if it is a known word; else an error lists the known ones."""
    text = field.text()
    if isinstance(field.value, str) and text not in known:
        field.error(f"must be {_one_of(known)}{_meant(text, known)}")
        return ""
    return text


def several_of(kind: type[StrEnum]) -> ValueForm:
    """An ordered list of members of an enum, each at most once."""
    known = [one.value for one in kind]

    def read(field: Field) -> tuple[StrEnum, ...]:
        found = tuple(kind(text) for item in field.items() if (text := chosen(item, known)))
        if len(set(found)) < len(found):
            field.error("must contain each value only once", value=None)
        return found

    return ValueForm(f"a list of {', '.join(f'`{word}`' for word in known)}, in order", read)


def fair_rules(names: dict[str, FairRule]) -> ValueForm:
    """A list of fair-sharing preemption rules; `names` are the names of the rules in the file."""
    called = {rule: name for name, rule in names.items()}
    allowed = " or ".join(f"[{', '.join(called[rule] for rule in rules)}]" for rules in FAIR_RULES)

    def read(field: Field) -> tuple[FairRule, ...]:
        items = field.items()
        found = tuple(names[text] for item in items if (text := chosen(item, list(names))))
        if isinstance(field.value, list) and len(found) == len(items) and found not in FAIR_RULES:
            field.error(f"must be {allowed}", value=None)
        return found

    return ValueForm(f"`{allowed.replace(' or ', '` or `')}`", read)


def _prefixes(field: Field) -> tuple[str, ...]:
    found = tuple(item.text() for item in field.items())
    for item in field.items():
        if item.value in ("", None):
            item.error("must not be empty: it would match every resource")
    return found


PREFIXES = ValueForm("a list of strings", _prefixes)


def _transformations(field: Field) -> tuple[Transformation, ...]:
    seen: set[str] = set()
    found = []
    for item in field.items():
        unknown_keys(item, ("input", "strategy", "multiplyBy", "outputs"))
        resource = item.at("input").text()
        if not resource:
            item.at("input").error("must name a resource")
        elif resource in seen:
            item.at("input").error("is transformed more than once")
        seen.add(resource)
        keep = chosen(item.at("strategy"), (RETAIN, REPLACE)) != REPLACE
        outputs = {name: _factor(resource, name, value) for name, value in item.at("outputs").entries()}
        found.append(Transformation(resource, outputs, keep, item.at("multiplyBy").text()))
    return tuple(found)


TRANSFORMATIONS = ValueForm("a list, see below", _transformations)


def _device_classes(field: Field) -> tuple[DeviceClassMapping, ...]:
    for item in field.items():
        unknown_keys(item, ("name", "deviceClassNames", "sources"))
        for source in item.at("sources").items():
            if source.at("capacity").present:
                source.at("capacity").error("is not supported: quota counts devices or counters", value=None)
    return device_classes(field)


DEVICE_CLASSES = ValueForm("a list, see below", _device_classes)


def device_classes(field: Field) -> tuple[DeviceClassMapping, ...]:
    """Mappings of device classes to resources, within the limits of Kueue."""
    found: list[DeviceClassMapping] = []
    resource_of: dict[str, str] = {}
    counted: dict[str, set[str]] = {}  # counters by class
    _at_most(field, MAPPINGS_MAX)
    for item in field.items():
        name, names = item.at("name"), item.at("deviceClassNames")
        resource = _label_key(name)
        if not resource and not isinstance(name.value, str):
            name.error("must name a resource", value=None)
        elif any(one.resource == resource for one in found):
            name.error("is mapped more than once: list all its classes in one mapping")
        if not names.items():
            names.error("must list at least one device class", value=None)
        _at_most(names, CLASSES_MAX)
        counters = tuple(_counters(item.at("sources")))
        mine = {one.counter for one in counters}
        for entry in names.items():
            before, others = resource_of.setdefault(_label_key(entry), resource), counted.get(entry.text())
            if before != resource and not (mine and others and mine.isdisjoint(others)):
                entry.error(f"is already mapped to the resource {before}")
            counted.setdefault(entry.text(), set()).update(mine)
        found.append(DeviceClassMapping(resource, tuple(entry.text() for entry in names.items()), counters))
    return tuple(found)


def is_by_capacity(mapping: Field) -> bool:
    """Whether a mapping counts capacities of devices."""
    return any(source.at("capacity").present for source in mapping.at("sources").items())


def _counters(sources: Field) -> Iterator[CounterSource]:
    for source in sources.items():
        unknown_keys(source, ("counter", "capacity"))
        counter = source.at("counter")
        if source.at("capacity").present:
            continue
        if not counter.present:
            source.error("must have a counter", value=None)
            continue
        unknown_keys(counter, ("name", "driver", "deviceSelector"))
        expression = counter.at("deviceSelector", "cel", "expression")
        for one in (counter.at("name"), counter.at("driver"), expression):
            if not one.text():
                one.error("must be set", value=None)
        yield CounterSource(counter.at("name").text(), counter.at("driver").text(), expression.text())


def _at_most(field: Field, limit: int) -> None:
    if len(field.items()) > limit:
        field.error(f"must have at most {limit} entries", value=None)


def _factor(source: str, output: str, value: Field) -> Fraction:
    """How much of the output, in our units, one unit of the source counts as."""
    try:
        number = parse_quantity(value.value)
    except ValueError as error:
        value.error(str(error))
        return Fraction(0)
    return number * (1000 if output == CPU else 1) / (1000 if source == CPU else 1)


def _weights(field: Field) -> tuple[tuple[str, int], ...]:
    return tuple((name, value.integer(minimum=1)) for name, value in field.entries())


WEIGHTS = ValueForm("whole numbers of at least 1 by resource, such as `{cpu: 1, memory: 2}`", _weights)


def unknown_keys(field: Field, known: Iterable[str]) -> None:
    """Add an error for each unknown key, with the known key that was probably meant."""
    names = list(known)
    for key, value in field.entries():
        if key not in names:
            value.error(f"is not a known key{_meant(key, names) or _listed(names)}", value=None)


def _meant(word: str, known: Sequence[str]) -> str:
    by_case = {name.lower(): name for name in known}
    near = get_close_matches(word.lower().replace("-", "_"), list(by_case), n=1)
    return f"; did you mean {by_case[near[0]]}?" if near else ""


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _LISTED_MAX
    return f"; known keys are {', '.join(names[:_LISTED_MAX])}" + (f" and {more} more" if more > 0 else "")


def _one_of(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]
