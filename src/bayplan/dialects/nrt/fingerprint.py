"""The pod fingerprint of a NodeResourceTopology: a prefix, a version, and a hash in hexadecimal."""

from __future__ import annotations

import re

from bayplan.dialects.nrt.wire import NodeTopologyWire

ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD = "nodeTopologyPodsFingerprintMethod"
ANNOTATION = "topology.node.k8s.io/fingerprint"
ALL, EXCLUSIVE = "all", "with-exclusive-resources"
PREFIX, VERSION = "pfp0", "v001"

_HASH = re.compile(r"[0-9a-f]{16}", re.ASCII)


def fingerprint_of(topology: NodeTopologyWire) -> tuple[str, str]:
    """The fingerprint and its method. The older form, an annotation, has no method."""
    attributes = {one.name: one.value for one in reversed(topology.attributes or ())}
    if ATTRIBUTE in attributes:
        return attributes[ATTRIBUTE], attributes.get(METHOD, ALL)
    return (topology.metadata.annotations or {}).get(ANNOTATION, ""), ALL


def hash_of(fingerprint: str) -> int:
    """The hash in a fingerprint. ValueError says what is wrong with it."""
    if len(fingerprint) < len(PREFIX) + len(VERSION) or not fingerprint.startswith(PREFIX):
        raise ValueError("malformed fingerprint")
    text = fingerprint.removeprefix(PREFIX)
    if not text.startswith(VERSION):
        raise ValueError("incompatible version")
    text = text.removeprefix(VERSION)
    if not _HASH.fullmatch(text):
        raise ValueError("malformed fingerprint")
    return int(text, 16)


def fingerprint_with(value: int) -> str:
    """The fingerprint with this hash."""
    return f"{PREFIX}{VERSION}{value:016x}"
