"""How a report names the pods that it counts: a prefix, a version, and a sign in hexadecimal."""

from __future__ import annotations

import re

from bayplan.dialects.nrt.wire import NodeTopologyWire

ATTRIBUTE = "nodeTopologyPodsFingerprint"
METHOD = "nodeTopologyPodsFingerprintMethod"
ANNOTATION = "topology.node.k8s.io/fingerprint"
ALL, EXCLUSIVE = "all", "with-exclusive-resources"
PREFIX, VERSION = "pfp0", "v001"

_SIGN = re.compile(r"[0-9a-f]{16}", re.ASCII)


def fingerprint_of(topology: NodeTopologyWire) -> tuple[str, str]:
    """The fingerprint and the method it was made by; an annotation is the older way, and has no method."""
    attributes = {one.name: one.value for one in reversed(topology.attributes or ())}
    if ATTRIBUTE in attributes:
        return attributes[ATTRIBUTE], attributes.get(METHOD, ALL)
    return (topology.metadata.annotations or {}).get(ANNOTATION, ""), ALL


def sign_of(fingerprint: str) -> int:
    """The sign in a fingerprint. ValueError says what is wrong with it."""
    if len(fingerprint) < len(PREFIX) + len(VERSION) or not fingerprint.startswith(PREFIX):
        raise ValueError("malformed fingerprint")
    sign = fingerprint.removeprefix(PREFIX)
    if not sign.startswith(VERSION):
        raise ValueError("incompatible version")
    sign = sign.removeprefix(VERSION)
    if not _SIGN.fullmatch(sign):
        raise ValueError("malformed fingerprint")
    return int(sign, 16)


def spelled(sign: int) -> str:
    """A fingerprint with this sign."""
    return f"{PREFIX}{VERSION}{sign:016x}"
