"""What topology annotations must satisfy before they can be read; every breach is noted."""

from __future__ import annotations

import re

from bayplan.dialects.kube.fields import Field
from bayplan.dialects.kueue.annotations import (
    GROUP,
    PREFER,
    PREFERRED,
    REQUIRE,
    REQUIRED,
    SEGMENT_LAYERS,
    SEGMENT_LEVEL,
    SEGMENT_SIZE,
    UNCONSTRAINED,
    read_annotations,
)
from bayplan.dialects.kueue.topology_request import parse_bool, parse_layers, parse_size

LOCALITIES = (REQUIRED, PREFERRED, UNCONSTRAINED)
_LEVELS = (REQUIRED, PREFERRED, SEGMENT_LEVEL, REQUIRE, PREFER)

_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]"
_DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_KEY = re.compile(rf"(?:({_DNS})(\.{_DNS})*/)?{_NAME}")
_KEY_MAX = 253 + 1 + 63


def check_annotations(metadata: Field, count: int, default_size: int | None = None) -> None:
    """Note everything wrong with the topology annotations of a pod set of `count` pods."""
    notes, found = metadata.at("annotations"), read_annotations(metadata)
    _check_localities(notes, found)
    for name in _LEVELS:
        if name in found:
            check_level(notes.at(name))
    if GROUP in found:
        _check_group(notes, found)
    if UNCONSTRAINED in found:
        _check_flag(notes.at(UNCONSTRAINED), found[UNCONSTRAINED])
    _check_size(notes, found, count, default_size)
    if SEGMENT_LAYERS in found:
        _check_layers(notes, found, count)


def check_level(field: Field) -> None:
    """A level is named by a node label key."""
    text = field.text()
    if not text:
        field.error("must name a topology level")
    elif len(text) > _KEY_MAX or not _LABEL_KEY.fullmatch(text):
        field.error("must be a node label key such as topology.kubernetes.io/zone")


def _check_localities(notes: Field, found: dict[str, str]) -> None:
    stated = [name for name in (*LOCALITIES, REQUIRE, PREFER) if name in found]
    if len(stated) > 1:
        listed = ", ".join(f'"{name}"' for name in stated)
        whole = notes.derived(None, notes.path)
        whole.error(f"must not contain more than one topology annotation: [{listed}]")


def _check_group(notes: Field, found: dict[str, str]) -> None:
    group = notes.at(GROUP)
    if re.fullmatch(r"[0-9]+", found[GROUP]):
        group.error("must not be a number")
    for name in (SEGMENT_SIZE, SEGMENT_LEVEL, SEGMENT_LAYERS):
        if name in found:
            group.error(f"may not be set when '{name}' is specified")
    if not any(name in found for name in (REQUIRED, PREFERRED, REQUIRE, PREFER)):
        group.error(f"may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified")


def _check_size(notes: Field, found: dict[str, str], count: int, default_size: int | None) -> None:
    size = notes.at(SEGMENT_SIZE)
    if SEGMENT_SIZE not in found:
        if SEGMENT_LEVEL in found and default_size is None:
            size.error(f"must be set when '{SEGMENT_LEVEL}' is specified")
        return
    if SEGMENT_LEVEL not in found:
        size.error(f"may not be set when '{SEGMENT_LEVEL}' is not specified")
    try:
        number = parse_size(found[SEGMENT_SIZE])
    except ValueError:
        size.error("must be a numeric value")
        return
    if number < 1:
        size.error("must be greater than or equal to 1")
    elif number > count:
        size.error(f"must not be greater than pod set count {count}")


def _check_layers(notes: Field, found: dict[str, str], count: int) -> None:
    field = notes.at(SEGMENT_LAYERS)
    for name in (SEGMENT_LEVEL, SEGMENT_SIZE):
        if name in found:
            field.error(f"may not be set when '{name}' is specified")
    try:
        layers = parse_layers(found[SEGMENT_LAYERS])
    except ValueError as wrong:
        field.error(str(wrong))
        return
    seen: set[str] = set()
    parent = 0
    for index, layer in enumerate(layers):
        entry = field.derived(layer, f"{field.path}[{index}]")
        level, size = entry.at("topology"), entry.at("size")
        check_level(level)
        if level.text() in seen:
            level.error("must not be named by two layers")
        seen.add(level.text())
        here = size.integer(minimum=1)
        if here and parent and parent % here:
            size.error(f"must evenly divide the parent layer size {parent}")
        if index == 0 and here > count:
            size.error(f"must not be greater than pod set count {count}")
        parent = here


def _check_flag(field: Field, text: str) -> None:
    try:
        parse_bool(text)
    except ValueError:
        field.error("must be a boolean value")
