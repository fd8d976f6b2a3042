"""Validation of topology annotations; every violation is recorded with its field."""

from __future__ import annotations

import re
from collections.abc import Callable

from bayplan.dialects.kube.fields.name_rules import label_key_problems
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType
from bayplan.dialects.kueue.fields.topology_request import (
    LAYERS_COUNT,
    LAYERS_MAX,
    parse_bool,
    parse_size,
    read_layers,
)
from bayplan.dialects.kueue.names.annotations import (
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
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches

LOCALITIES = (REQUIRED, PREFERRED, UNCONSTRAINED)
LAYERS_GATE = "TASMultiLayerTopology"
_LEVELS = (REQUIRED, PREFERRED, SEGMENT_LEVEL, REQUIRE, PREFER)
_UINT64_MAX = 2**64 - 1


def check_annotations(
    metadata: Field, default_size: int | None = None, rules: FeatureSwitches = RULES
) -> None:
    """Record every error in the topology annotations of a pod set that does not depend on its size."""
    field, annotations = metadata.at("annotations"), read_annotations(metadata)
    _check_localities(field, annotations)
    for name in _LEVELS:
        if name in annotations:
            check_label_key(field.at(name), annotations[name])
    if GROUP in annotations:
        _check_group(field.at(GROUP), annotations)
    if UNCONSTRAINED in annotations and not _reads(parse_bool, annotations[UNCONSTRAINED]):
        _invalid(field.at(UNCONSTRAINED), "must be a boolean value", annotations[UNCONSTRAINED])
    _check_size(field.at(SEGMENT_SIZE), annotations, default_size)
    if SEGMENT_LAYERS in annotations:
        _check_layers(field, annotations, rules)


def check_sizes(metadata: Field, count: int, rules: FeatureSwitches = RULES) -> None:
    """Record segments that are larger than the pod set of `count` pods."""
    field, annotations = metadata.at("annotations"), read_annotations(metadata)
    why = f"must not be greater than pod set count {count}"
    if SEGMENT_SIZE in annotations:
        if not _reads(parse_size, annotations[SEGMENT_SIZE]):
            _invalid(field.at(SEGMENT_SIZE), "must be a numeric value", annotations[SEGMENT_SIZE])
        elif parse_size(annotations[SEGMENT_SIZE]) > count:
            _invalid(field.at(SEGMENT_SIZE), why, annotations[SEGMENT_SIZE])
    if SEGMENT_LAYERS in annotations:
        try:
            layers = read_layers(annotations[SEGMENT_LAYERS], forgiving=rules.lenient)
        except ValueError:
            return
        if layers and _size(layers[0]) > count:
            _invalid(field.at(SEGMENT_LAYERS), why, layers[0]["size"])


def check_label_key(field: Field, text: str) -> None:
    """A level is named by the key of a node label."""
    for problem in label_key_problems(text):
        _invalid(field, problem, text)


def check_level(field: Field) -> None:
    """A topology level in a field of an object."""
    text = field.text()
    if not text:
        field.error("must name a topology level")
    elif label_key_problems(text):
        field.error("must be a node label key such as topology.kubernetes.io/zone")


def _check_localities(notes: Field, annotations: dict[str, str]) -> None:
    drafts = [name for name in (REQUIRE, PREFER) if name in annotations]
    if len(drafts) + sum(name in annotations for name in LOCALITIES) > 1:
        listed = ", ".join(f'"{name}"' for name in (*LOCALITIES, *drafts))
        _invalid(notes, f"must not contain more than one topology annotation: [{listed}]", None)


def _check_group(group: Field, annotations: dict[str, str]) -> None:
    text = annotations[GROUP]
    if re.fullmatch("[0-9]{1,20}", text) and int(text) <= _UINT64_MAX:
        _invalid(group, "must not be a number", text)
    for name in (SEGMENT_SIZE, SEGMENT_LEVEL):
        if name in annotations:
            group.error(f"may not be set when '{name}' is specified", FieldErrorType.FORBIDDEN)
    if not any(name in annotations for name in (REQUIRED, PREFERRED, REQUIRE, PREFER)):
        why = f"may not be set when neither '{PREFERRED}' nor '{REQUIRED}' is specified"
        group.error(why, FieldErrorType.FORBIDDEN)


def _check_size(size: Field, annotations: dict[str, str], default_size: int | None) -> None:
    if SEGMENT_SIZE not in annotations:
        if SEGMENT_LEVEL in annotations and default_size is None:
            size.error(f"must be set when '{SEGMENT_LEVEL}' is specified", FieldErrorType.REQUIRED)
        return
    if SEGMENT_LEVEL not in annotations:
        size.error(f"may not be set when '{SEGMENT_LEVEL}' is not specified", FieldErrorType.FORBIDDEN)
    if not _reads(parse_size, annotations[SEGMENT_SIZE]):
        _invalid(size, "must be a numeric value", annotations[SEGMENT_SIZE])
    elif parse_size(annotations[SEGMENT_SIZE]) < 1:
        _invalid(size, "must be greater than or equal to 1", annotations[SEGMENT_SIZE])


def _check_layers(notes: Field, annotations: dict[str, str], rules: FeatureSwitches) -> None:
    field, text = notes.at(SEGMENT_LAYERS), annotations[SEGMENT_LAYERS]
    if not rules.layers:
        field.error(
            f"the {LAYERS_GATE} feature gate must be enabled to use this annotation", FieldErrorType.FORBIDDEN
        )
        return
    for name in (SEGMENT_LEVEL, SEGMENT_SIZE):
        if name in annotations:
            field.error(f"may not be set when '{name}' is specified", FieldErrorType.FORBIDDEN)
    if GROUP in annotations:
        notes.at(GROUP).error(
            f"may not be set when '{SEGMENT_LAYERS}' is specified", FieldErrorType.FORBIDDEN
        )
    try:
        layers = read_layers(text, forgiving=rules.lenient)
    except ValueError as wrong:
        _invalid(field, f"must be a valid JSON array: {wrong}", text)
        return
    if not 1 <= len(layers) <= LAYERS_MAX:
        _invalid(field, LAYERS_COUNT, text)
        return
    _check_each_layer(field, layers)


def _check_each_layer(field: Field, layers: list[dict[str, object]]) -> None:
    seen: dict[str, int] = {}
    for index, layer in enumerate(layers):
        level, size = (
            field.derived(layer[key], f"{field.path}[{index}].{key}") for key in ("topology", "size")
        )
        name, here = str(layer["topology"]), _size(layer)
        check_label_key(level, name)
        if name in seen:
            level.error("", FieldErrorType.DUPLICATE, f"{name} (also at index {seen[name]})")
        seen.setdefault(name, index)
        if here < 1:
            _invalid(size, "must be greater than or equal to 1", here)
        elif index and _size(layers[index - 1]) % here:
            _invalid(size, f"must evenly divide the parent layer size {_size(layers[index - 1])}", here)


def _size(layer: dict[str, object]) -> int:
    size = layer["size"]
    assert isinstance(size, int)
    return size


def _invalid(field: Field, why: str, value: object) -> None:
    field.error(why, FieldErrorType.INVALID, value)


def _reads(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True
