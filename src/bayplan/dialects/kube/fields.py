"""Reading API objects: what is wrong with a field is noted with path, value and why, and reading goes on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

INT32_MAX = 2**31 - 1
_SHOWN_MAX = 60


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with an object: where, what stands there, and why that cannot be."""

    path: str
    value: object
    why: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f": {shorten(self.value)}"
        return f"{printable(self.path)}{shown}: {printable(self.why)}"


Notes = dict[tuple[str, str], FieldError]


class Field:
    """A value somewhere inside an API object. Fields of one object share one list of errors.

    Reading never raises: what has the wrong type is noted, and the default is returned in its place.
    """

    __slots__ = ("_above", "_noted", "_step", "value")

    def __init__(
        self, value: object, path: str | int = "", above: Field | None = None, noted: Notes | None = None
    ) -> None:
        self.value = value
        self._above = above
        self._step = path  # the whole path, or what continues the path above: a key, an index
        self._noted: Notes = {} if noted is None else noted

    @property
    def path(self) -> str:
        """Where the field stands. Put together on demand: few fields are ever complained about."""
        if isinstance(self._step, int):
            return f"{self._above.path if self._above else ''}[{self._step}]"
        return self._step if self._above is None else join(self._above.path, self._step)

    @property
    def present(self) -> bool:
        """Whether there is anything here. An explicit null is as good as nothing."""
        return self.value is not None

    @property
    def errors(self) -> tuple[FieldError, ...]:
        """Everything noted so far in the whole object, in the order of finding."""
        return tuple(self._noted.values())

    def error(self, why: str) -> None:
        """Note that this field is wrong; the same complaint about it is kept once."""
        self._noted.setdefault((self.path, why), FieldError(self.path, self.value, why))

    def derived(self, value: object, path: str) -> Field:
        """A field that stands nowhere in the object but was read out of it; it shares the list of errors."""
        return Field(value, path, noted=self._noted)

    def at(self, *keys: str) -> Field:
        """The field below, by the keys on the way to it."""
        found = self
        for key in keys:
            found = Field(found._mapping().get(key), key, found, found._noted)
        return found

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
