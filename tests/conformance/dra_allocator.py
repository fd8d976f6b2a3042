"""dra/allocator* and dra/random*: which devices the claims of a pod get on a node, as upstream answers."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.placement.devices.allocate import NodeAllocation
from bayplan.placement.devices.in_use import devices_in_use
from bayplan.placement.devices.pools import NodeIdentity
from tests.conformance.dra_objects import (
    PARTS,
    Object,
    allocation_from,
    allocator_of,
    claim_from,
    differences,
    features_of,
    in_use_from,
    node_from,
)
from tests.conformance.registry import Check, ForFile

ORACLE = "1.37.1"
COMPILE_ERROR = "CEL compile error:"
NOT_FOUND = ':  "not found" not found'
ALPHAS = ("DRADeviceCompatibilityGroups", "DRADerivedAttributes", "DRAOptionalNodeOperations")
"""Gates of 1.37 that are off by default: what needs them is refused."""


def check_table(case: Object) -> list[str]:
    """Upstream's own table: one node, the whole allocation, and the words of an error."""
    got = _answer(case)
    accepted = [case["expected"], *_as_list(case.get("alsoAccepted"))]
    found = [_differs(want, got) for want in accepted]
    notes = [f"needs {gate}" for gate in ALPHAS if gate in case["features"]]
    return [] if any(not one for one in found) else [*found[0], *notes]


def check_older_table(case: Object) -> list[str]:
    """1.35 tries pools in random order: devices are compared only if there is one. Its words differ."""
    got, want = _answer(case), case["expected"]
    wanted = "error" if want["error"] else "allocated" if want["allocatable"] else "no"
    if wanted != _outcome(got):
        return [f"want {wanted} {want['error']}, got {_outcome(got)}: {got.reason}"]
    pools = {(one["spec"]["driver"], one["spec"]["pool"]["name"]) for one in case["slices"]}
    if wanted != "allocated" or len(pools) > 1:
        return []
    return _allocations_differ(want["allocations"], got, ("devices", "nodes"))


def _answer(case: Object) -> NodeAllocation:
    node = node_from(case["nodes"][0]) if case["nodes"] else NodeIdentity("")
    claims = tuple(claim_from(one) for one in case["claims"])
    return allocator_of(case).allocate(node, claims, in_use_from(case["allocated"]))


def _as_list(found: object) -> list[Object]:
    return found if isinstance(found, list) else [found] if isinstance(found, dict) else []


def _differs(want: Object, got: NodeAllocation) -> list[str]:
    if want["error"]:
        same = got.error and _same_words(want["error"], got.reason)
        return [] if same else [f"want {want['error']}, got {got}"]
    if not want["allocatable"]:
        return [] if not got.fits and not got.error else [f"want no allocation, got {got}"]
    if not got.fits:
        return [f"want an allocation, got {got.reason}"]
    return _allocations_differ(want["allocations"], got)


def _allocations_differ(wanted: list[Object], got: NodeAllocation, parts: Iterable[str] = PARTS) -> list[str]:
    if len(wanted) != len(got.allocations):
        return [f"want {len(wanted)} allocations, got {len(got.allocations)}"]
    found = [
        differences(allocation_from(one), given, parts)
        for one, given in zip(wanted, got.allocations, strict=True)
    ]
    return [line for lines in found for line in lines]


def _same_words(want: str, got: str) -> bool:
    """The words of an error. What a compiler or a lister says at the end is its own."""
    if COMPILE_ERROR in want:
        return got.startswith(want[: want.index(COMPILE_ERROR) + len(COMPILE_ERROR)])
    if want.endswith(NOT_FOUND):
        return got.startswith(want.removesuffix(NOT_FOUND)) and got.endswith("not found")
    return got == want


def _outcome(got: NodeAllocation) -> str:
    return "allocated" if got.fits else "error" if got.error else "no"


def check_random(case: Object) -> list[str]:
    """Every node as upstream answered: outcome, words of an error, devices with their nodes."""
    allocator = allocator_of(case)
    held = [claim_from(one).allocation for one in case["allocatedClaims"]]
    shares = features_of(case["features"]).shares
    in_use = devices_in_use([one for one in held if one is not None], shares=shares)
    claims = tuple(claim_from(one) for one in case["claims"])
    found = []
    for wire, want in zip(case["nodes"], case["expected"][ORACLE], strict=True):
        got = allocator.allocate(node_from(wire), claims, in_use)
        if _outcome(got) != want["outcome"]:
            found.append(f"{want['node']}: want {want['outcome']}, got {_outcome(got)}: {got.reason}")
        elif want["outcome"] == "error" and got.reason != want["error"]:
            found.append(f"{want['node']}: want {want['error']}, got {got.reason}")
        elif want["outcome"] == "allocated":
            lines = _allocations_differ(want["allocations"], got)
            found += [f"{want['node']}: {line}" for line in lines]
    return found


FILES: dict[str, Check | ForFile] = {
    "dra/allocator*": check_table,
    "dra/allocator_v1.35*": check_older_table,
    "dra/random*": check_random,
}
