"""Reading API objects: what is wrong with a field is noted with path, value and why, and reading goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

INT32_MAX = 2**31 - 1
_SHOWN_MAX = 60
_QUOTED_MAX = 1000


class FieldErrorType(StrEnum):
    """What sort of wrong a field is, in the words of the API."""

    UNREADABLE = ""  # not what the schema promises
    INVALID = "Invalid value"
    REQUIRED = "Required value"
    FORBIDDEN = "Forbidden"
    DUPLICATE = "Duplicate value"
    UNSUPPORTED = "Unsupported value"
    NOT_FOUND = "Not found"
    TOO_LONG = "Too long"
    TOO_MANY = "Too many"


_WITHOUT_VALUE = (FieldErrorType.REQUIRED, FieldErrorType.FORBIDDEN, FieldErrorType.TOO_LONG)


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with an object: where, what stands there, and why that cannot be."""

    path: str
    value: object
    why: str
    fault: FieldErrorType = FieldErrorType.UNREADABLE

    def __str__(self) -> str:
        show = quote if self.fault else shorten
        hidden = self.value is None or self.fault in _WITHOUT_VALUE
        parts = (self.path, str(self.fault), "" if hidden else show(self.value), self.why)
        return ": ".join(printable(part) for part in parts if part)


Notes = dict[tuple[str, str], FieldError]
Step = str | int | tuple[str]
"""The name of a field, an index into a list, or (alone in its tuple) a key of a map."""
_HERE = object()


class Field:
    """A value somewhere inside an API object. Fields of one object share one list of errors.

    Reading never raises: what has the wrong type is noted, and the default is returned in its place.
    """

    __slots__ = ("_above", "_noted", "_step", "value")

    def __init__(
        self, value: object, path: Step = "", above: Field | None = None, noted: Notes | None = None
    ) -> None:
        self.value = value
        self._above = above
        self._step = path  # the whole path, or what continues the path above
        self._noted: Notes = {} if noted is None else noted

    @property
    def path(self) -> str:
        """Where the field stands. Put together on demand: few fields are ever complained about."""
        if not isinstance(self._step, str):
            step = self._step if isinstance(self._step, int) else self._step[0]
            return f"{self._above.path if self._above else ''}[{step}]"
        return self._step if self._above is None else join(self._above.path, self._step)

    @property
    def present(self) -> bool:
        """Whether there is anything here. An explicit null is as good as nothing."""
        return self.value is not None

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """Everything noted so far in the whole object, in the order of finding."""
        return tuple(self._noted.values())

    def error(
        self, why: str, fault: FieldErrorType = FieldErrorType.UNREADABLE, value: object = _HERE
    ) -> None:
        """Note that this field is wrong; the same complaint about it is kept once.

        The value shown is the one that stands here, unless another says it better; None shows nothing.
        """
        shown = self.value if value is _HERE else value
        self._noted.setdefault((self.path, why), FieldError(self.path, shown, why, fault))

    def adopt(self, errors: Iterable[FieldError], advice: str = "") -> None:
        """Note what was found wrong elsewhere, each with the same advice added."""
        for error in errors:
            told = replace(error, why=error.why + advice)
            self._noted.setdefault((told.path, told.why), told)

    def derived(self, value: object, path: str) -> Field:
        """A field that stands nowhere in the object but was read out of it; it shares the list of errors."""
        return Field(value, path, noted=self._noted)

    def at(self, *keys: str) -> Field:
        """The field below, by the keys on the way to it."""
        found = self
        for key in keys:
            found = Field(found._mapping().get(key), key, found, found._noted)
        return found

    def key(self, name: str) -> Field:
        """The entry of a map; its path has the key in brackets."""
        return Field(self._mapping().get(name), (name,), self, self._noted)

    def items(self) -> list[Field]:
        """The elements of a list."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.error(f"must be a list, not {type_name(self.value)}")
            return []
        return [Field(value, index, self, self._noted) for index, value in enumerate(self.value)]

    def entries(self) -> Iterator[tuple[str, Field]]:
        """The keys of a mapping with the fields below them."""
        for key, value in self._mapping().items():
            name = key if isinstance(key, str) else str(key)
            field = Field(value, name, self, self._noted)
            if not isinstance(key, str):
                field.error(f"the key must be text, not {type_name(key)}: write it in quotes")
            yield name, field

    def text(self, default: str = "") -> str:
        """A string."""
        if self.value is None:
            return default
        if not isinstance(self.value, str):
            hint = ": write it in quotes" if isinstance(self.value, bool | int | float) else ""
            self.error(f"must be text, not {type_name(self.value)}{hint}")
            return default
        return self.value

    def flag(self, *, default: bool = False) -> bool:
        """A true or false."""
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            self.error(f"must be true or false, not {type_name(self.value)}")
            return default
        return self.value

    def integer(self, default: int = 0, minimum: int = 0, maximum: int = INT32_MAX) -> int:
        """A whole number within bounds."""
        number = self.value
        if number is None:
            return default
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int):
            self.error(f"must be a whole number, not {type_name(self.value)}")
        elif number < minimum:
            self.error(f"must not be less than {minimum}")
        elif number > maximum:
            self.error(f"must not be more than {maximum}")
        else:
            return number
        return default

    def texts(self) -> dict[str, str]:
        """A mapping of strings to strings, such as labels."""
        return {key: field.text() for key, field in self.entries()}

    def _mapping(self) -> Mapping[object, object]:
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            self.error(f"must be a mapping, not {type_name(self.value)}")
            return {}
        return self.value


def join(path: str, key: str) -> str:
    """The path of a key below a path; keys that hold dots or slashes stand in brackets."""
    if not key or any(character in key for character in "./[] "):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def shorten(value: object) -> str:
    """A value for people: quoted if text, cut if long, and only its size if it holds others."""
    if isinstance(value, dict | list):
        return f"{type_name(value)} of {len(value)}"
    if isinstance(value, str):
        text = printable(value)
        return f'"{text[:_SHOWN_MAX]}…"' if len(text) > _SHOWN_MAX else f'"{text}"'
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN_MAX:
        return f"a number of {value.bit_length()} bits"  # Python refuses to print very long ones
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def quote(value: object) -> str:
    """A value as the API quotes it back."""
    return json.dumps(value[:_QUOTED_MAX], ensure_ascii=False) if isinstance(value, str) else shorten(value)


def printable(text: str) -> str:
    """The text with escapes for what does not print, so that no input can steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def type_name(value: object) -> str:
    """What people call the type of a value read from YAML or JSON."""
    if value is None:
        return "nothing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "a mapping" if isinstance(value, dict) else type(value).__name__)
