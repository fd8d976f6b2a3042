"""The result of `bayplan place` as JSON or YAML: assignments as in the API, and the details of misfits.

Keys are camelCase. Amounts are whole numbers; the unit is in the key (`cpuMillis`, `memoryBytes`), or given
as `unit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from typing import Any

from bayplan.cli.config.read_files import InputProblem
from bayplan.cli.inputs.placement_devices import TakenDevices
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
            if taken := [one for one in outcome.taken if one.pod_set == pod_set.name]:
                entry["devices"] = [_devices(one) for one in taken]
        report["podSets"].append(entry)
    if placement.misfit is not None:
        report["misfit"] = _misfit(placement.misfit, explanation)
    return report


def _devices(taken: TakenDevices) -> dict[str, Any]:
    return {
        "node": taken.node,
        "claim": taken.claim,
        "request": taken.request,
        "deviceClass": taken.device_class,
        "devices": list(taken.devices),
    }


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


def camel_case(value: Any) -> Any:
    """A dataclass as a JSON object with camelCase keys; keys of mappings are data and stay as they are.

    An object with a resource gets the unit of its amounts.
    """
    if is_dataclass(value):
        record = {_camel(one.name): camel_case(getattr(value, one.name)) for one in fields(value)}
        return record | {"unit": unit(record["resource"])} if record.get("resource") else record
    if isinstance(value, Mapping):
        return {str(key): camel_case(one) for key, one in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [camel_case(one) for one in value]
    return value.value if isinstance(value, Enum) else value


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
