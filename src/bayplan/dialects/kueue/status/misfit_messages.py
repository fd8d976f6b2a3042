"""Messages for a placement that failed, in the exact words of Kueue."""

from __future__ import annotations

from collections.abc import Callable

from bayplan.dialects.kube.encode.filter_messages import failure_text, filter_name
from bayplan.model.assignment import Code, Exclusions, Misfit
from bayplan.model.filter_failure import FilterFailure, filter_of
from bayplan.model.numa import ALIGNED

_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def misfit_message(misfit: Misfit) -> str:
    """Why a pod set cannot be placed."""
    return _SENTENCES[misfit.code](misfit)


def quoted(text: str) -> str:
    """Text in double quotes, with escapes for unprintable characters (Go's %q)."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in _ESCAPES or character.isprintable():
        return _ESCAPES.get(character, character)
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _no_room(misfit: Misfit) -> str:
    head = f"topology {quoted(misfit.topology)}"
    if misfit.layers:
        fits = [f"{layer.fit}/{layer.asked} slice(s) fit on level {layer.level}" for layer in misfit.layers]
        return "; ".join([f"{head} doesn't allow to fit", *fits]) + _excluded(misfit.excluded)
    unit = "pod(s)" if misfit.unit == 1 else "slice(s)"
    if misfit.fit == 0:
        return f"{head} doesn't allow to fit any of {misfit.asked} {unit}" + _excluded(misfit.excluded)
    return f"{head} allows to fit only {misfit.fit} out of {misfit.asked} {unit}" + _excluded(misfit.excluded)


def _excluded(excluded: Exclusions) -> str:
    counts = {
        "nodeSelector": excluded.selector,
        "affinity": excluded.affinity,
        "topologyDomain": excluded.outside,
    }
    counts |= {f"taint {quoted(taint)}": nodes for taint, nodes in excluded.taints.items()}
    for resource, nodes in excluded.resources.items():
        reason_name = "zone alignment" if resource.startswith(ALIGNED) else f"resource {quoted(resource)}"
        if (rejected_by := filter_of(resource)) is not None:
            reason_name = filter_name(rejected_by)
        counts[reason_name] = counts.get(reason_name, 0) + nodes
    reasons = sorted(f"{reason}: {nodes}" for reason, nodes in counts.items() if nodes)
    return f". Total nodes: {excluded.nodes}; excluded: {', '.join(reasons)}" if reasons else ""


def _unknown_level(misfit: Misfit) -> str:
    return f"no requested topology level: {misfit.level}" if misfit.level else "topology level not specified"


_SENTENCES: dict[Code, Callable[[Misfit], str]] = {
    Code.NO_ROOM: _no_room,
    Code.NO_DOMAINS: lambda m: f"no topology domains at level: {m.level}",
    Code.UNKNOWN_LEVEL: _unknown_level,
    Code.UNKNOWN_SEGMENT_LEVEL: lambda m: f"no requested topology level for slices: {m.level}",
    Code.UNKNOWN_INNER_LEVEL: lambda m: f"no requested topology level for additional slice layer: {m.level}",
    Code.SEGMENT_ABOVE_LOCALITY: lambda m: (
        f"podset slice topology {m.level} is above the podset topology {m.other_level}"
    ),
    Code.SEGMENT_SIZE_MISSING: lambda m: "slice topology requested, but slice size not provided",
    Code.INNER_LEVEL_NOT_LOWER: lambda m: (
        f"additional slice layer topology {m.level} must be at a lower level than {m.other_level}"
    ),
    Code.INNER_SIZE_NOT_DIVISOR: lambda m: (
        f"additional slice layer size {m.sizes[0]} must evenly divide parent layer size {m.sizes[1]}"
    ),
    Code.STALE_ASSIGNMENT: lambda m: (
        "Cannot replace the node, because the existing topologyAssignment is invalid, "
        f"as it contains the stale domain {m.domain}"
    ),
    Code.NO_REPLACEMENT: lambda m: f"cannot find replacement assignment for unhealthy node: {m.domain}",
    Code.NOT_DECIDED: lambda m: f"topology {quoted(m.topology)}: the search for a placement ran out of time",
    Code.NOT_BINDABLE: lambda m: (
        f"topology {quoted(m.topology)}: no nodes were found to which all pods can be bound: "
        f"{failure_text(m.filter_failure or FilterFailure(0))}"
    ),
    Code.NOT_INSTALLED: lambda m: "the exact strategy is not installed",
}
