"""Reading API objects: errors are recorded with path, value and reason, and reading continues."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

INT32_MAX = 2**31 - 1
_SHOWN_MAX = 60
_QUOTED_MAX = 1000


class FieldErrorType(StrEnum):
    """The type of a field error, as in the API."""

    UNREADABLE = ""  # does not match the schema
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
    """One error of an object: path, value and reason."""

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
"""The name of a field, a list index, or (as a tuple) the key of a map."""
_HERE = object()


class Field:
    """A value inside an API object. The fields of one object share a list of errors.

    Reading never raises: a wrong type is recorded, and the default is returned.
    """

    __slots__ = ("_above", "_errors", "_step", "value")

    def __init__(
        self, value: object, path: Step = "", above: Field | None = None, noted: Notes | None = None
    ) -> None:
        self.value = value
        self._above = above
        self._step = path  # the whole path, or the step from the field above
        self._errors: Notes = {} if noted is None else noted

    @property
    def path(self) -> str:
        """The path of the field. Built on demand, since few fields have errors."""
        if not isinstance(self._step, str):
            step = self._step if isinstance(self._step, int) else self._step[0]
            return f"{self._above.path if self._above else ''}[{step}]"
        return self._step if self._above is None else join(self._above.path, self._step)

    @property
    def present(self) -> bool:
        """Whether the field has a value. An explicit null is no value."""
        return self.value is not None

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """All errors of the object so far, in the order in which they were found."""
        return tuple(self._errors.values())

    def error(
        self, why: str, fault: FieldErrorType = FieldErrorType.UNREADABLE, value: object = _HERE
    ) -> None:
        """Record an error of this field; an equal error is recorded once.

        `value` replaces the value shown; None shows no value.
        """
        shown = self.value if value is _HERE else value
        self._errors.setdefault((self.path, why), FieldError(self.path, shown, why, fault))

    def adopt(self, errors: Iterable[FieldError], advice: str = "") -> None:
        """Record errors that were found elsewhere, each with the same advice appended."""
        for error in errors:
            advised = replace(error, why=error.why + advice)
            self._errors.setdefault((advised.path, advised.why), advised)

    def derived(self, value: object, path: str) -> Field:
        """A field with a value derived from the object; it shares the list of errors."""
        return Field(value, path, noted=self._errors)

    def at(self, *keys: str) -> Field:
        """The field at a path of keys below this one."""
        field = self
        for key in keys:
            field = Field(field._mapping().get(key), key, field, field._errors)
        return field

    def key(self, name: str) -> Field:
        """The entry of a map; its path has the key in brackets."""
        return Field(self._mapping().get(name), (name,), self, self._errors)

    def items(self) -> list[Field]:
        """The elements of a list."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            self.error(f"must be a list, not {type_name(self.value)}")
            return []
        return [Field(value, index, self, self._errors) for index, value in enumerate(self.value)]

    def entries(self) -> Iterator[tuple[str, Field]]:
        """The keys of a mapping, with their fields."""
        for key, value in self._mapping().items():
            name = key if isinstance(key, str) else str(key)
            field = Field(value, name, self, self._errors)
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
        """A boolean."""
        if self.value is None:
            return default
        if not isinstance(self.value, bool):
            self.error(f"must be true or false, not {type_name(self.value)}")
            return default
        return self.value

    def integer(self, default: int = 0, minimum: int = 0, maximum: int = INT32_MAX) -> int:
        """An integer within bounds."""
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
    """The path of a key below a path; keys with dots or slashes are put in brackets."""
    if not key or any(character in key for character in "./[] "):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def shorten(value: object) -> str:
    """A value for messages: strings are quoted and shortened, containers only have their size."""
    if isinstance(value, dict | list):
        return f"{type_name(value)} of {len(value)}"
    if isinstance(value, str):
        text = printable(value)
        return f'"{text[:_SHOWN_MAX]}…"' if len(text) > _SHOWN_MAX else f'"{text}"'
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN_MAX:
        return f"a number of {value.bit_length()} bits"  # Python does not print very long integers
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)


def quote(value: object) -> str:
    """A value as the API quotes it."""
    return json.dumps(value[:_QUOTED_MAX], ensure_ascii=False) if isinstance(value, str) else shorten(value)


def printable(text: str) -> str:
    """The text with escapes for unprintable characters, so that no input can control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def type_name(value: object) -> str:
    """The name of a YAML or JSON type for messages."""
    if value is None:
        return "nothing"
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(value), "a mapping" if isinstance(value, dict) else type(value).__name__)
