"""Which devices a CEL selector selects: evaluated once for each distinct set of the values it mentions."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any

from bayplan.dialects.kube.devices.cel_values import (
    ValueProblem,
    declarations,
    parse_version,
    quantity_value,
    version_value,
)
from bayplan.dialects.kube.devices.expressions import (
    ATTRIBUTES,
    CAPACITY,
    LENGTH_MAX,
    Mentions,
    for_library,
    mentions,
    only_driver,
)
from bayplan.model.devices.inventory import UNIT, AttributeValue, Device, DeviceSlice, SelectorVerdicts

NO_LIBRARY = "selectors cannot be read without the CEL library: pip install 'bayplan[cel]'"
EXPRESSIONS_MAX = 512
TUPLES_MAX = 100_000
NO, YES, ERROR = 0, 1, 2
HINT = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for "
    "optional fields"
)
_CODE = re.compile(r"[A-Z_]+: ")
_NO_KEY = re.compile(r'Key not found in map : "(.*)"')
PLAIN_TYPES = frozenset(("string", "strings", "int", "ints", "bool", "bools"))
"""Of attributes whose values need not be parsed."""
Verdict = bool | str


class DeviceSelectors:
    """Evaluates selectors. Results are cached by slice and by the values that a selector mentions."""

    def __init__(self) -> None:
        self._expressions: dict[str, _Expression] = {}

    def select(self, expression: str, part: DeviceSlice) -> SelectorVerdicts:
        """Which devices of a slice the expression selects."""
        known = self._expressions.get(expression)
        if known is None:
            while len(self._expressions) >= EXPRESSIONS_MAX:
                del self._expressions[next(iter(self._expressions))]
            known = self._expressions[expression] = _Expression(expression)
        return known.on(part)

    def forget(self, part: DeviceSlice) -> None:
        """A slice was deleted."""
        for known in self._expressions.values():
            known.by_slice.pop((part.pool, part.name), None)


class _Expression:
    def __init__(self, text: str) -> None:
        self.driver = only_driver(text)
        self.mentions = mentions(text)
        self.program: Any = None
        self.flaw = ""
        if self.driver is None:
            self.program, self.flaw = _compiled(text)
        self.by_slice: dict[Hashable, tuple[DeviceSlice, SelectorVerdicts]] = {}
        self.by_values: dict[Hashable, Verdict] = {}
        self.has_domains = any(not key for _, _, key in self.mentions.names or ())
        self._names: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def on(self, part: DeviceSlice) -> SelectorVerdicts:
        found = self.by_slice.get((part.pool, part.name))
        if found is not None and found[0] is part:
            return found[1]
        verdicts = SelectorVerdicts(flaw=self.flaw) if self.flaw else self._evaluated(part)
        self.by_slice[part.pool, part.name] = part, verdicts
        return verdicts

    def _evaluated(self, part: DeviceSlice) -> SelectorVerdicts:
        driver, flaws = part.pool.driver, _flaws(part)
        if self.driver is not None and not flaws:
            return SelectorVerdicts(bytes([YES if driver == self.driver else NO]) * len(part.devices))
        matches, errors = bytearray(), []
        for index, device in enumerate(part.devices):
            verdict = flaws.get(index) or self._verdict(driver, device)
            if isinstance(verdict, str):
                errors.append((index, verdict))
                matches.append(ERROR)
            else:
                matches.append(YES if verdict else NO)
        return SelectorVerdicts(bytes(matches), tuple(errors))

    def _verdict(self, driver: str, device: Device) -> Verdict:
        if self.driver is not None:
            return driver == self.driver
        values = self._values(driver, device)
        verdict = self.by_values.get(values)
        if verdict is None:
            if len(self.by_values) >= TUPLES_MAX:
                self.by_values.clear()
            verdict = self.by_values[values] = _evaluate(self.program, driver, device)
        return verdict

    def _values(self, driver: str, device: Device) -> Hashable:
        """The values of a device that the expression mentions."""
        mentioned = self.mentions
        ends = driver if mentioned.driver else None, device.shareable if mentioned.shareable else None
        if mentioned.names is None:
            return (*ends, driver, device.attributes, device.capacity)
        names = self._names.get(driver)
        if names is None:
            names = _names(mentioned, driver, ATTRIBUTES), _names(mentioned, driver, CAPACITY)
            self._names[driver] = names
        attributes, capacity = names
        chosen = [one for one in device.attributes if one[0] in attributes]
        amounts = [one for one in device.capacity if one[0] in capacity] if capacity else ()
        whole = tuple(_of_domains(mentioned, driver, device)) if self.has_domains else ()
        # without its domain a name is that of the driver
        return (*ends, driver if chosen or amounts else None, tuple(chosen), tuple(amounts), whole)


def _names(mentioned: Mentions, driver: str, sort: str) -> frozenset[str]:
    """The names in slices of a driver that an expression means."""
    found = set()
    for one, domain, key in mentioned.names or ():
        if one == sort and key:
            found.add(f"{domain}/{key}")
            if domain == driver:
                found.add(key)
    return frozenset(found)


def _of_domains(mentioned: Mentions, driver: str, device: Device) -> Iterator[Hashable]:
    """All values of the domains that an expression uses as a whole."""
    for sort, domain, key in mentioned.names or ():
        if not key:
            entries = device.attributes if sort == ATTRIBUTES else device.capacity
            kept = (one for one in entries if not domain or _qualified(one[0], driver)[0] == domain)
            yield driver, sort, domain, tuple(kept)


def _flaws(part: DeviceSlice) -> dict[int, str]:
    """By index: why no selector can be evaluated on a device of a slice."""
    found = {}
    for index, device in enumerate(part.devices):
        for _, attribute in device.attributes:
            if attribute.type not in PLAIN_TYPES:
                if flaw := _attribute_flaw(device):
                    found[index] = flaw
                break
    return found


def _attribute_flaw(device: Device) -> str:
    """An attribute that cannot be read makes every selector fail on a device."""
    for name, attribute in device.attributes:
        if not attribute.type:
            return f"attribute {name}: unsupported attribute value"
        if attribute.type in ("version", "versions"):
            texts = attribute.value if isinstance(attribute.value, tuple) else (attribute.value,)
            problem = next(filter(None, (_version_problem(str(one)) for one in texts)), "")
            if problem:
                return f"attribute {name}: parse semantic version: {problem}"
    return ""


@cache
def _environment() -> Any:
    """What compiles selectors; None without the library."""
    try:
        from cel_expr_python import cel  # noqa: PLC0415 — large, and needed for claims only
        from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings  # noqa: PLC0415
    except ImportError:
        return None
    extensions = [ext_optional.ExtOptional(), ext_strings.ExtStrings(), ext_bindings.ExtBindings()]
    device = {"device": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)}
    return cel.NewEnv(variables=device, extensions=extensions, functions=declarations(cel))


def _compiled(text: str) -> tuple[Any, str]:
    """The program of an expression, or why there is none."""
    environment = _environment()
    if environment is None:
        return None, NO_LIBRARY
    if len(text) > LENGTH_MAX:
        return None, f"the expression has {len(text)} characters, at most {LENGTH_MAX} are allowed"
    try:
        return environment.compile(for_library(text)), ""
    except Exception as error:
        return None, f"compilation failed: {error}"


def _evaluate(program: Any, driver: str, device: Device) -> Verdict:
    """Whether a program selects a device, or its error."""
    found = program.eval(data={"device": _data(driver, device)})
    value = found.value()
    if isinstance(value, bool):
        return value
    if found.type().name() != "ERROR":
        return f"CEL result of type {found.type().name().lower()} could not be converted to bool"
    text = _CODE.sub("", str(value), count=1)
    missing = _NO_KEY.search(text)
    if missing is not None:
        return f"no such key: {missing[1]}{HINT}"
    return "no such overload" if text.startswith("No matching overloads") else text


def _data(driver: str, device: Device) -> dict[str, Any]:
    attributes: dict[str, dict[str, Any]] = {}
    capacity: dict[str, dict[str, Any]] = {}
    for name, attribute in device.attributes:
        domain, key = _qualified(name, driver)
        attributes.setdefault(domain, {})[key] = _attribute_data(attribute)
    for name, amount in device.capacity:
        domain, key = _qualified(name, driver)
        capacity.setdefault(domain, {})[key] = quantity_value(Fraction(amount.value, UNIT))
    return {
        "driver": driver,
        "allowMultipleAllocations": device.shareable,
        ATTRIBUTES: attributes,
        CAPACITY: capacity,
    }


def _attribute_data(attribute: AttributeValue) -> Any:
    if attribute.type == "version":
        return version_value(parse_version(str(attribute.value)))
    if attribute.type == "versions" and isinstance(attribute.value, tuple):
        return [version_value(parse_version(str(one))) for one in attribute.value]
    return list(attribute.value) if isinstance(attribute.value, tuple) else attribute.value


@cache
def _version_problem(text: str) -> str:
    try:
        parse_version(text)
    except ValueProblem as problem:
        return str(problem)
    return ""


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, mark, key = name.partition("/")
    return (domain, key) if mark else (driver, name)
