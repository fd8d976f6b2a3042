"""The annotation with the NUMA zones that were assumed for a pod. Kubelets ignore it; it informs people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bayplan.model.whole_numbers import whole_number

ASSUMED_ZONES = "bayplan.dev/assumed-zones"


def zone_hint(zones: Iterable[tuple[str, int]]) -> dict[str, str]:
    """The annotation: `container=zone`, separated by commas, or the zone of the whole pod."""
    text = ",".join(f"{name}={number}" if name else str(number) for name, number in zones)
    return {ASSUMED_ZONES: text} if text else {}


def hinted_zones(annotations: Mapping[str, str]) -> dict[str, int]:
    """The zones in the annotation by container ("" for the whole pod); empty if it is invalid."""
    zones = {}
    for part in filter(None, annotations.get(ASSUMED_ZONES, "").split(",")):
        name, _, text = part.rpartition("=")
        number = whole_number(text)
        if number is None:
            return {}
        zones[name] = number
    return zones
