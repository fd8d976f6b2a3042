"""Text for amounts, levels and counts, and the units of amounts in JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from bayplan.model.assignment import Oversized
from bayplan.model.filter_failure import FILTERED
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME
from bayplan.model.numa import ALIGNED

_BYTES_KEYS = {"memory": "memoryBytes", "ephemeral-storage": "ephemeralStorageBytes"}
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_LEVEL_PREFIXES = ("gce-topology-", "topology-", "network-node-")


def counted(number: int, noun: str) -> str:
    """`1 rack`, `2 racks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural(noun)}"


def plural(noun: str) -> str:
    """The plural of an English noun."""
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def amount_text(resource: str, amount: float) -> str:
    """An amount as people write it: CPU in cores, memory in Gi."""
    if resource == "cpu":
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if _is_bytes(resource):
        return _bytes_text(amount)
    return str(int(amount))


def unit(resource: str) -> str:
    """The unit in which JSON output gives whole numbers of a resource."""
    if resource == "cpu":
        return "millicores"
    return "bytes" if _is_bytes(resource) else "count"


def amounts_json(amounts: Mapping[str, int]) -> dict[str, int]:
    """Amounts by resource for JSON, with units in keys: `cpuMillis`, `memoryBytes`, `nvidia.com/gpu`."""
    return {_key_with_unit(resource): amount for resource, amount in amounts.items()}


def _key_with_unit(resource: str) -> str:
    if resource == "cpu":
        return "cpuMillis"
    if resource in _BYTES_KEYS:
        return _BYTES_KEYS[resource]
    return f"{resource}Bytes" if _is_bytes(resource) else resource


def _is_bytes(resource: str) -> bool:
    return resource in _BYTES_KEYS or resource.startswith("hugepages-")


def oversized_text(oversized: Oversized) -> str:
    """`no node that it may use is large enough for one pod: the largest, n1, has 96 of 200 cpu`."""
    names = short_resources(name for name, _, _ in oversized.lacks)
    lacks = [
        f"{amount_text(name, has)} of {amount_text(name, asked)} {names[name]}"
        for name, asked, has in sorted(oversized.lacks, key=lambda lack: importance(lack[0]))
    ]
    whose = f" of {oversized.pod_set}" if oversized.pod_set else ""
    return (
        f"no node that it may use is large enough for one pod{whose}: "
        f"the largest, {oversized.node}, has {' and '.join(lacks)}"
    )


def is_cap(resource: str) -> bool:
    """Whether a resource only expresses how many pods a node can have by its NUMA zones or by a filter."""
    return resource.startswith((ALIGNED, FILTERED))


def importance(resource: str) -> tuple[int, str]:
    """A key to sort resources by: devices, then CPU, memory and disk."""
    return {"cpu": 1, "memory": 2, "ephemeral-storage": 3}.get(resource, 0), resource


def short_resources(resources: Iterable[str]) -> dict[str, str]:
    """`nvidia.com/gpu` → `gpu`, unless two resources would share the name."""
    return _shortest(list(resources), lambda name: name.rpartition("/")[2])


def short_levels(levels: Sequence[str]) -> dict[str, str]:
    """`cloud.example.com/topology-rack` → `rack`, unless two levels would share the name."""
    return _shortest(list(levels), _level_word)


def _shortest(names: list[str], shorten: Callable[[str], str]) -> dict[str, str]:
    short = {name: shorten(name) for name in names}
    words = list(short.values())
    return {name: word if words.count(word) == 1 else name for name, word in short.items()}


def _level_word(level: str) -> str:
    if level == HOSTNAME:
        return "host"
    word = level.rpartition("/")[2]
    for prefix in _LEVEL_PREFIXES:
        word = word.removeprefix(prefix)
    return word


def _bytes_text(amount: float) -> str:
    power = 0
    while abs(amount) >= 1024 and power < len(_BINARY) - 1:
        amount, power = amount / 1024, power + 1
    return f"{amount:.1f}".rstrip("0").rstrip(".") + _BINARY[power]


def shown_name(ref: Ref) -> str:
    """The name of a gang without the replica key, which is empty for a group that has one replica."""
    return ref.name.rstrip("/")
