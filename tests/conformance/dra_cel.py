"""dra/cel*: which devices a selector selects, against the answers of the CEL of Kubernetes."""

from __future__ import annotations

from bayplan.dialects.kube.devices.selectors import HINT
from tests.conformance.dra_objects import SELECTORS, Object, slice_from
from tests.conformance.registry import Check, ForFile


def check(case: Object) -> list[str]:
    """One expression on one device: true, false, or the error in the same words."""
    spec = {"driver": case["driver"], "pool": {"name": "p"}, "devices": [case["device"]]}
    verdicts = SELECTORS.select(case["expression"], slice_from({"metadata": {"name": "s"}, "spec": spec}))
    want = case["expected"]
    if "compileError" in want:
        return [] if verdicts.flaw else [f"compiles, and should not: {case['expression']}"]
    if verdicts.flaw:
        return [f"cannot be compiled: {verdicts.flaw}"]
    got = verdicts.error(0).removesuffix(HINT) if verdicts.matches[0] > 1 else bool(verdicts.matches[0])
    wanted = want.get("error", want.get("matches"))
    return [] if got == wanted else [f"{case['expression']}: want {wanted}, got {got}"]


FILES: dict[str, Check | ForFile] = {"dra/cel*": check}
