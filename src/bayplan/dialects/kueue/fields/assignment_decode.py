"""Decode topology assignments: `slices` in any valid form (v1beta2) or `domains` (v1beta1), with errors."""

from __future__ import annotations

from typing import TypeVar

from bayplan.dialects.kube.fields.reader import INT32_MAX, Field, type_name
from bayplan.dialects.kueue.fields.assignment_encode import ROOTS_MAX, SLICES_MAX
from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.node import LEVELS_MAX

DOMAINS_MAX = 1_000_000
"""Limit of decoded domains: a small object with a large domainCount must not exhaust memory."""

T = TypeVar("T")


def decode_assignment(field: Field) -> Assignment | None:
    """The assignment in either form; None if it is invalid, with the errors recorded at the field."""
    if not _is_mapping(field):
        return None
    levels = _levels(field.at("levels"))
    domains, slices = field.at("domains"), field.at("slices")
    if domains.present and slices.present:
        field.error("must have domains or slices, not both")
        return None
    read = _domains if domains.present else _slices
    shares = read(domains if domains.present else slices, len(levels or ()))
    return None if levels is None or shares is None else Assignment(levels, tuple(shares))


def _levels(field: Field) -> tuple[str, ...] | None:
    items = field.items()
    if not items:
        field.error("must name at least one level")
    elif len(items) > LEVELS_MAX:
        field.error(f"must not have more than {LEVELS_MAX} levels")
    else:
        names = _texts(field)
        if names is not None and len(set(names)) < len(names):
            field.error("must not name a level twice")
            return None
        return None if names is None else tuple(names)
    return None


def _domains(field: Field, levels: int) -> list[DomainAssignment] | None:
    """The shares of a v1beta1 assignment."""
    shares: list[DomainAssignment | None] = []
    for item in filter(_is_mapping, field.items()):
        values = _level_list(item.at("values"), levels)
        count = _count(item.at("count"))
        shares.append(None if values is None or count is None else DomainAssignment(tuple(values), count))
    complete = isinstance(field.value, list) and len(shares) == len(field.value)
    return _complete(shares) if complete else None


def _level_list(field: Field, levels: int) -> list[str] | None:
    values = _texts(field)
    if values is not None and levels and len(values) != levels:
        field.error(f"must have a value for each of the {levels} levels, not {len(values)}")
        return None
    return values


def _slices(field: Field, levels: int) -> list[DomainAssignment] | None:
    """The shares of a v1beta2 assignment, slice after slice."""
    items_given = field.items()
    if len(items_given) > SLICES_MAX:
        field.error(f"must not have more than {SLICES_MAX} slices")
        return None
    items = list(filter(_is_mapping, items_given))
    sizes = [_size(item.at("domainCount")) for item in items]
    if sum(size or 0 for size in sizes) > DOMAINS_MAX:
        field.error(f"must not have more than {DOMAINS_MAX} domains in all")
        return None
    parts = _complete([_slice(item, size, levels) for item, size in zip(items, sizes, strict=True)])
    if parts is None or len(parts) < len(items_given) or not isinstance(field.value, list | None):
        return None
    return [share for part in parts for share in part]


def _size(field: Field) -> int | None:
    if not field.present:
        field.error("must be given")
    return field.integer(minimum=1, maximum=ROOTS_MAX) or None


def _slice(field: Field, size: int | None, levels: int) -> list[DomainAssignment] | None:
    per_level, pod_counts = field.at("valuesPerLevel"), field.at("podCounts")
    entries = per_level.items()
    complete = len(entries) == levels or not levels
    if not complete:
        per_level.error(f"must have an entry for each of the {levels} levels, not {len(entries)}")
    columns = _complete([_column(entry, size) for entry in entries])
    counts = _pod_counts(pod_counts, size)
    if size is None or columns is None or counts is None or not complete:
        return None
    return list(map(DomainAssignment, zip(*columns, strict=True), counts))


def _column(field: Field, size: int | None) -> list[str] | None:
    """The value of one level for each domain of a slice."""
    universal, individual = field.at("universal"), field.at("individual")
    if not _exactly_one(field, universal, individual):
        return None
    if universal.present:
        value = _text(universal)
        return None if value is None else [value] * (size or 0)
    roots = individual.at("roots")
    texts = _texts(roots)
    ends = _complete([_text(end) if end.present else "" for end in map(individual.at, ("prefix", "suffix"))])
    if texts is None or ends is None or not _fits(roots, len(texts), size):
        return None
    prefix, suffix = ends
    return [f"{prefix}{root}{suffix}" for root in texts] if prefix or suffix else texts


def _pod_counts(field: Field, size: int | None) -> list[int] | None:
    universal, individual = field.at("universal"), field.at("individual")
    if not _exactly_one(field, universal, individual):
        return None
    if universal.present:
        count = _count(universal)
        return None if count is None else [count] * (size or 0)
    if not isinstance(individual.value, list):
        individual.items()
        return None
    fits = _fits(individual, len(individual.value), size)
    if all(type(count) is int and 0 < count <= INT32_MAX for count in individual.value):
        return individual.value if fits else None
    counts = _complete([_count(item) for item in individual.items()])
    return counts if fits else None


def _is_mapping(field: Field) -> bool:
    if isinstance(field.value, dict):
        return True
    field.error(f"must be a mapping, not {type_name(field.value)}")
    return False


def _exactly_one(field: Field, universal: Field, individual: Field) -> bool:
    if field.present and not isinstance(field.value, dict):
        return False  # recorded already
    if universal.present == individual.present:
        field.error("must have exactly one of universal and individual")
        return False
    return True


def _fits(field: Field, length: int, size: int | None) -> bool:
    """Whether a list has an entry for each domain of its slice (`size` None: their number is not known)."""
    if size is not None and length != size:
        field.error(f"must have an entry for each of the {size} domains (domainCount), not {length}")
        return False
    return True


def _count(field: Field) -> int | None:
    if not field.present:
        field.error("must be given")
    return field.integer(minimum=1, maximum=INT32_MAX) or None


def _texts(field: Field) -> list[str] | None:
    """A list of strings."""
    values = field.value
    if not isinstance(values, list):
        field.error("must be given" if values is None else f"must be a list, not {type_name(values)}")
        return None
    if all(type(value) is str for value in values):
        return values
    return _complete([_text(item) for item in field.items()])


def _text(field: Field) -> str | None:
    if field.value is None:
        field.error("must be text, not nothing")
    value = field.text()
    return value if isinstance(field.value, str) else None


def _complete(parts: list[T | None]) -> list[T] | None:
    """The parts if all of them could be read."""
    whole = [part for part in parts if part is not None]
    return whole if len(whole) == len(parts) else None
