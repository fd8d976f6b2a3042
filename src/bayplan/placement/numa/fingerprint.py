"""Fingerprints of names: of the pods that a node's report counts, and of containers in its zones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from bayplan.model.numa import ZoneAssignment

_MASK = 2**64 - 1
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5

Name = tuple[str, str]
"""Namespace and name."""


def pods_fingerprint(pods: Iterable[Name]) -> int:
    """The fingerprint of a set of pods, independent of their order."""
    fingerprints = sorted(_pod_fingerprint(namespace, name) for namespace, name in pods)
    return xxh64(b"".join(fingerprint.to_bytes(8, "little") for fingerprint in fingerprints))


@lru_cache(maxsize=65536)
def _pod_fingerprint(namespace: str, name: str) -> int:
    return xxh64(name.encode(), xxh64(namespace.encode()))


@lru_cache(maxsize=65536)
def container_fingerprint(namespace: str, pod: str, container: str) -> int:
    """The fingerprint of one container."""
    return xxh64("\0".join((namespace, pod, container)).encode())


def zones_of_containers(
    assignment: ZoneAssignment, containers: Iterable[tuple[str, str, str]]
) -> Mapping[tuple[str, str, str], int]:
    """The zone of each container (namespace, pod, name); empty if the report has another number of them."""
    by_fingerprint = {container_fingerprint(*container): container for container in containers}
    if len(by_fingerprint) != assignment.containers:
        return {}
    zones = {place: zone for zone, places in assignment.places.items() for place in places}
    return {
        by_fingerprint[fingerprint]: zones.get(place, assignment.busiest)
        for place, fingerprint in enumerate(sorted(by_fingerprint))
    }


def xxh64(data: bytes, seed: int = 0) -> int:
    """The 64-bit hash of Yann Collet's xxHash family."""
    length, at = len(data), 0
    if length >= 32:
        lanes = [seed + _P1 + _P2, seed + _P2, seed, seed - _P1]
        while at + 32 <= length:
            for lane in range(4):
                word = int.from_bytes(data[at + 8 * lane : at + 8 * lane + 8], "little")
                lanes[lane] = _rotated(lanes[lane] + word * _P2, 31) * _P1
            at += 32
        turns = (1, 7, 12, 18)
        mixed = sum(_rotated(lane, turn) for lane, turn in zip(lanes, turns, strict=True)) & _MASK
        for lane in lanes:
            mixed = ((mixed ^ (_rotated(lane * _P2, 31) * _P1 & _MASK)) * _P1 + _P4) & _MASK
    else:
        mixed = (seed + _P5) & _MASK
    return _finalised(mixed + length, data, at)


def _finalised(mixed: int, data: bytes, at: int) -> int:
    """Mix in the bytes after the last full block, then finalise."""
    mixed &= _MASK
    while at + 8 <= len(data):
        word = int.from_bytes(data[at : at + 8], "little")
        mixed = (_rotated(mixed ^ (_rotated(word * _P2, 31) * _P1 & _MASK), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        word = int.from_bytes(data[at : at + 4], "little")
        mixed = (_rotated(mixed ^ (word * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        mixed = _rotated(mixed ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    mixed = (mixed ^ (mixed >> 33)) * _P2 & _MASK
    mixed = (mixed ^ (mixed >> 29)) * _P3 & _MASK
    return mixed ^ (mixed >> 32)


def _rotated(word: int, turns: int) -> int:
    """A word truncated to 64 bits and rotated left."""
    word &= _MASK
    return (word << turns | word >> (64 - turns)) & _MASK
