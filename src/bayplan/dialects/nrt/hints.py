"""Which zones a pod was meant for, written on the pod: nodes need not heed it, people may want to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bayplan.model.whole_numbers import whole_number

ASSUMED_ZONES = "bayplan.dev/assumed-zones"


def zone_hint(zones: Iterable[tuple[str, int]]) -> dict[str, str]:
    """The annotation: `container=zone` with commas between, or the zone of the whole pod."""
    text = ",".join(f"{name}={number}" if name else str(number) for name, number in zones)
    return {ASSUMED_ZONES: text} if text else {}


def hinted_zones(annotations: Mapping[str, str]) -> dict[str, int]:
    """What an annotation says, by container; the whole pod goes by the empty name. Nonsense says nothing."""
    found = {}
    for part in filter(None, annotations.get(ASSUMED_ZONES, "").split(",")):
        name, _, text = part.rpartition("=")
        number = whole_number(text)
        if number is None:
            return {}
        found[name] = number
    return found
