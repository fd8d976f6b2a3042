"""The result of `bayplan place` as JSON or YAML: assignments as in the API, and the details of misfits.

Keys are camelCase. Amounts are whole numbers; the unit is in the key (`cpuMillis`, `memoryBytes`), or given
as `unit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from bayplan.cli.config.json_values import camel_case
from bayplan.cli.config.read_files import InputProblem
from bayplan.cli.inputs.placement_input import PlacementInput, PlacementResult
from bayplan.dialects.kueue.fields.assignment_encode import encode_domains, encode_slices
from bayplan.dialects.kueue.status.misfit_messages import misfit_message
from bayplan.explanation.misfit import Explanation
from bayplan.explanation.text import amounts_json, unit
from bayplan.model.assignment import Misfit


def problems_report(problems: Sequence[InputProblem], status: int) -> dict[str, Any]:
    """The report for invalid input."""
    return {"problems": [asdict(problem) for problem in problems], "exitStatus": status}


def outcome_report(
    placement_input: PlacementInput,
    outcomes: Sequence[tuple[PlacementResult, Explanation | None]],
    notes: Sequence[str],
    status: int,
) -> dict[str, Any]:
    """The report for all gangs."""
    return {
        "topology": {"name": placement_input.topology.name, "levels": list(placement_input.topology.levels)},
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
            "requests": amounts_json(pod_set.requests),
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
    """The details of a misfit, the message of the Kueue API, and the explanation."""
    facts = {key: value for key, value in camel_case(misfit).items() if value not in ("", [], None, [0, 0])}
    facts["segmentSize"] = facts.pop("unit")
    if misfit.oversized is not None:
        facts["oversized"]["lacks"] = [
            {"resource": name, "requested": requested, "allocatable": allocatable, "unit": unit(name)}
            for name, requested, allocatable in misfit.oversized.lacks
        ]
    facts["message"] = misfit_message(misfit)
    if explanation is not None:
        facts["explanation"] = camel_case(explanation)
    return facts
