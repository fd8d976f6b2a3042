"""Topology request of a pod set: annotations → PodSetTopologyRequest → locality and segments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.dialects.kube.fields.reader import INT32_MAX, Field
from bayplan.dialects.kueue.fields.json_lists import read_layer_list
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
)
from bayplan.model.gang import Locality, Segment

LAYERS_MAX = 3
LAYERS_UNREADABLE = "failed to parse multi-layer topology constraints annotation"
LAYERS_COUNT = "topology constraints must contain between 1 and 3 entries"

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
_TRAILING_COMMA = re.compile(r",(\s*[\]}])")
_QUOTED_SIZE = re.compile(r'("size"\s*:\s*)"([0-9]{1,10})"')


@dataclass(frozen=True, slots=True)
class Numbering:
    """How the pods of a pod set are numbered: by a label, within numbered sub-groups or not."""

    index_label: str | None = None
    subgroup_label: str | None = None
    subgroup_count: int | None = None


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """A decoded topology request."""

    locality: Locality
    segments: tuple[Segment, ...] = ()
    group: str = ""


UNNUMBERED = Numbering()


def topology_request(
    annotations: Mapping[str, str],
    numbering: Numbering = UNNUMBERED,
    *,
    default_size: int | None = None,
    forgiving: bool = True,
) -> dict[str, object] | None:
    """The PodSetTopologyRequest (v1beta2) of annotations, or None if they request nothing.

    `default_size` is the segment size of job kinds that have a natural one. With `forgiving`, quoted
    layer sizes and trailing commas are accepted. ValueError if a value is invalid.
    """
    request: dict[str, object] = {}
    required = annotations.get(REQUIRED, annotations.get(REQUIRE))
    preferred = annotations.get(PREFERRED, annotations.get(PREFER))
    if required is not None:
        request["required"] = required
    elif preferred is not None:
        request["preferred"] = preferred
    elif UNCONSTRAINED in annotations:
        request["unconstrained"] = parse_bool(annotations[UNCONSTRAINED])

    size = annotations.get(SEGMENT_SIZE, None if default_size is None else str(default_size))
    if SEGMENT_LAYERS in annotations:
        layers = parse_layers(annotations[SEGMENT_LAYERS], forgiving=forgiving)
        request["podsetSliceRequiredTopologyConstraints"] = layers
    elif SEGMENT_LEVEL in annotations and size is not None:
        request["podSetSliceRequiredTopology"] = annotations[SEGMENT_LEVEL]
        request["podSetSliceSize"] = parse_size(size)

    request |= _numbering_fields(numbering)
    if not request:
        return None
    if GROUP in annotations and (required is not None or preferred is not None):
        request["podSetGroupName"] = annotations[GROUP]
    return request


def decode_request(request: Field) -> TopologyRequest:
    """Locality, segments and group of a PodSetTopologyRequest; an empty one is unconstrained."""
    required, preferred = request.at("required"), request.at("preferred")
    if required.text() and preferred.text():
        preferred.error("may not be set together with required")
    locality = Locality(
        required=required.text() or None,
        preferred=preferred.text() or None if not required.text() else None,
    )
    return TopologyRequest(locality, _segments(request), request.at("podSetGroupName").text())


def parse_bool(text: str) -> bool:
    """A boolean in the spellings of Go's strconv.ParseBool."""
    if text not in _TRUE and text not in _FALSE:
        raise ValueError(f'strconv.ParseBool: parsing "{text}": invalid syntax')
    return text in _TRUE


def parse_size(text: str) -> int:
    """A 32-bit whole number."""
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > 20 or not -INT32_MAX - 1 <= int(text) <= INT32_MAX:
        raise ValueError(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def read_layers(text: str, *, forgiving: bool = True) -> list[dict[str, object]]:
    """Segment layers as a JSON list of {topology, size}, outermost first; their number is not checked."""
    if forgiving:
        text = _QUOTED_SIZE.sub(r"\1\2", _TRAILING_COMMA.sub(r"\1", text))
    return read_layer_list(text)


def parse_layers(text: str, *, forgiving: bool = True) -> list[dict[str, object]]:
    """The segment layers of a pod set. ValueError if they are invalid, empty or too many."""
    try:
        layers = read_layers(text, forgiving=forgiving)
    except ValueError as error:
        raise ValueError(f"{LAYERS_UNREADABLE}: {error}") from None
    if not 1 <= len(layers) <= LAYERS_MAX:
        raise ValueError(f"{LAYERS_COUNT}: got {len(layers)}")
    return layers


def _numbering_fields(numbering: Numbering) -> dict[str, object]:
    fields: dict[str, object | None] = {
        "podIndexLabel": numbering.index_label,
        "subGroupIndexLabel": numbering.subgroup_label,
        "subGroupCount": numbering.subgroup_count,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _segments(request: Field) -> tuple[Segment, ...]:
    layers = request.at("podsetSliceRequiredTopologyConstraints").items()
    if layers:
        return tuple(_segment(layer.at("topology"), layer.at("size")) for layer in layers)
    level = request.at("podSetSliceRequiredTopology")
    return (_segment(level, request.at("podSetSliceSize")),) if level.text() else ()


def _segment(level: Field, size: Field) -> Segment:
    if not level.text():
        level.error("must be set")
    if not size.present:
        size.error("must be set when a slice topology is")
    return Segment(size.integer(default=0, minimum=1), level.text())
