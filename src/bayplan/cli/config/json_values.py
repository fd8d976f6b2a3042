"""Values of the model as JSON: camelCase keys, enums by value, and units beside amounts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from bayplan.explanation.text import unit


def camel_case(value: Any) -> Any:
    """A dataclass as a JSON object with camelCase keys; keys of mappings are data and stay as they are.

    An object with a resource gets the unit of its amounts.
    """
    if is_dataclass(value):
        record = {_camel(one.name): camel_case(getattr(value, one.name)) for one in fields(value)}
        return record | {"unit": unit(record["resource"])} if record.get("resource") else record
    if isinstance(value, Mapping):
        return {str(key): camel_case(one) for key, one in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [camel_case(one) for one in value]
    return value.value if isinstance(value, Enum) else value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
