"""The outcome for machines: JSON or YAML with assignments in wire form and the facts of every misfit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bayplan.cli.config.read_files import InputProblem
from bayplan.cli.inputs.placement_input import PlacementInput, PlacementResult
from bayplan.dialects.kueue.fields.assignment_encode import encode_domains, encode_slices
from bayplan.dialects.kueue.status.misfit_messages import sentence
from bayplan.explanation.misfit import Explanation
from bayplan.model.assignment import Misfit


def problems_report(problems: Sequence[InputProblem], status: int) -> dict[str, Any]:
    """Bad input."""
    return {"problems": [asdict(problem) for problem in problems], "exitStatus": status}


def outcome_report(
    scene: PlacementInput,
    outcomes: Sequence[tuple[PlacementResult, Explanation | None]],
    notes: Sequence[str],
    status: int,
) -> dict[str, Any]:
    """All gangs."""
    return {
        "topology": {"name": scene.topology.name, "levels": list(scene.topology.levels)},
        "gangs": [_gang(outcome, explanation) for outcome, explanation in outcomes],
        "notes": list(notes),
        "exitStatus": status,
    }


def _gang(outcome: PlacementResult, explanation: Explanation | None) -> dict[str, Any]:
    source, placement = outcome.gang.source, outcome.placement
    report: dict[str, Any] = {
        "kind": source.kind,
        "namespace": source.namespace,
        "name": source.name,
        "placed": placement.ok,
        "podSets": [],
    }
    for pod_set in outcome.gang.root.pod_sets():
        entry: dict[str, Any] = {
            "name": pod_set.name,
            "count": pod_set.count,
            "requests": dict(pod_set.requests),
        }
        if placement.ok:
            assignment = placement.assignments[pod_set.name]
            entry["assignment"] = encode_domains(assignment)
            entry["topologyAssignment"] = encode_slices(assignment)
            if assignment.proven:
                entry["proven"] = True
        report["podSets"].append(entry)
    if placement.misfit is not None:
        report["misfit"] = _misfit(placement.misfit, explanation)
    return report


def _misfit(misfit: Misfit, explanation: Explanation | None) -> dict[str, Any]:
    """The facts, the sentence that the API family knows, and the explanation."""
    facts = {name: value for name, value in asdict(misfit).items() if value not in ("", (), None, (0, 0))}
    facts["code"] = misfit.code.value
    facts["message"] = sentence(misfit)
    if explanation is not None:
        facts["explanation"] = asdict(explanation)
    return facts
