"""numa/filter*, score*, oracle*, quirks* and integration_match*: which nodes align a pod, and how well."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayplan.dialects.kube.encode.numa_messages import message_for, sentence
from bayplan.model.numa import FitRule, ZoneRules
from bayplan.placement.numa.alignment import aligned, why_unaligned
from bayplan.placement.numa.columns import NumaColumns
from bayplan.placement.numa.score import zone_scores
from tests.conformance.numa_objects import (
    FORGETFUL,
    SCORES,
    USUAL,
    Object,
    columns_of,
    nodes_of,
    rules_for,
    wants_of,
)
from tests.conformance.registry import Check, ForFile, NothingToRun

BEST = 100
PLAIN = ZoneRules(fit=FitRule.PLAIN)


def check_filter(case: Object) -> list[str]:
    """One node: the verdict, and its reason word for word where the peer gives one."""
    nodes = nodes_of([case["node"]])
    got = _verdict(columns_of(nodes, case["nodeResourceTopologies"]), 0, nodes[0].name, case["pod"])
    return _differ("filter", case["expected"], got)


def check_score(case: Object) -> list[str]:
    """All nodes as the peer's program answered, and its best node."""
    nodes = nodes_of(case["nodes"].values())
    columns = columns_of(nodes, case["nodeResourceTopologies"])
    wants = wants_of(case["pod"])
    rules = replace(rules_for(wants), score=SCORES[case["scoringStrategy"]])
    scores = zone_scores(columns, wants, rules)
    got = {node.name: int(score) for node, score in zip(nodes, scores, strict=True)}
    observed = case.get("observed") or {}
    wrong = [f"{name}: want {want}, got {got[name]}" for name, want in observed.items() if got[name] != want]
    best = {name: score for name, score in got.items() if score == max(got.values())}
    wanted: dict[str, int] = case["expected"] or {}
    if wanted and "max-score" in case["assert"] and not wanted.items() & best.items():
        wrong.append(f"best: want {wanted}, got {best}")
    return wrong


def check_oracle(case: Object) -> list[str]:
    """Every node and every strategy. Where the peer crashes, any answer within bounds will do."""
    nodes = nodes_of(case["nodes"])
    columns = columns_of(nodes, case["nodeResourceTopologies"])
    wants = wants_of(case["pod"])
    wrong: list[str] = []
    if wants.qos.replace("_", "") != case["qos"].lower():
        wrong.append(f"service: want {case['qos']}, got {wants.qos}")
    weights = tuple(case["weights"].items())
    scores = {
        name: zone_scores(columns, wants, replace(rules_for(wants), score=score, weights=weights))
        for name, score in SCORES.items()
    }
    for row, node in enumerate(nodes):
        seen = case["observed"].get(node.name)
        if seen is None:
            continue
        got = _verdict(columns, row, node.name, case["pod"])
        wrong += _differ(f"{node.name} filter", seen["filter"], got)
        for name, want in seen["score"].items():
            wrong += _score_differs(f"{node.name} {name}", want, int(scores[name][row]))
    return wrong + _stricter(case, columns)


def _score_differs(label: str, want: Any, got: int) -> list[str]:
    crashed = isinstance(want, dict) or not 0 <= want <= BEST
    if crashed:
        return [] if 0 <= got <= BEST else [f"{label}: got {got}, out of bounds"]
    return [] if got == want else [f"{label}: want {want}, got {got}"]


def _stricter(case: Object, columns: NumaColumns) -> list[str]:
    """Counting sidecars may only refuse more."""
    wants = wants_of(case["pod"])
    more = aligned(columns, wants, USUAL).good & ~aligned(columns, wants, FORGETFUL).good
    return ["a node is good only if sidecars are counted"] if more.any() else []


def check_integration(case: Object) -> list[str]:
    """Two nodes: where the pods may go, by filter and then by score."""
    nodes = nodes_of(case["nodes"])
    columns = columns_of(nodes, case["nodeResourceTopologies"])
    wrong: list[str] = []
    for pod in case["pods"]:
        wants = wants_of(pod)
        rules = replace(rules_for(wants), score=SCORES[case["scoringStrategy"]])
        scores = zone_scores(columns, wants, rules)
        good = {}
        for row, node in enumerate(nodes):
            got = _verdict(columns, row, node.name, pod)
            seen = case["observed"][node.name]
            wrong += _differ(f"{node.name} filter", seen["filter"], got)
            wrong += _score_differs(f"{node.name} score", seen["score"], int(scores[row]))
            if got["code"] == "Success":
                good[node.name] = int(scores[row])
        best = {name for name, score in good.items() if score == max(good.values())}
        wanted = set(case["expected"]["nodes"])
        if bool(best) != bool(wanted) or not (best & wanted or best == wanted):
            wrong.append(f"nodes: want {sorted(wanted)}, got {sorted(best)}")
    return wrong


def seed_check(path: Path) -> Check:
    """The verdicts of the simpler rule, on the cases of the file of filters."""
    filters = path.with_name("filter.json")
    listed = {case["id"] for case in json.loads(path.read_text())["cases"]}
    cases = json.loads(filters.read_text())["cases"] if filters.exists() else []
    beside = {case["id"]: case for case in cases}
    verdicts = {name: (_good(case, PLAIN), _good(case, USUAL)) for name, case in beside.items()}
    others = [name for name, (plain, strict) in verdicts.items() if plain != strict and name not in listed]

    def check(case: Object) -> list[str]:
        if case["id"] not in verdicts:
            raise NothingToRun
        want = (case["seedVerdict"] == "Success", case["currentVerdict"] == "Success")
        got = verdicts[case["id"]]
        wrong = [] if got == want else [f"want {want}, got {got}"]
        return wrong + [f"the verdicts on {name} differ, and should not" for name in others]

    return check


def _good(case: Object, rules: ZoneRules) -> bool:
    columns = columns_of(nodes_of([case["node"]]), case["nodeResourceTopologies"])
    return bool(aligned(columns, wants_of(case["pod"]), rules).good[0])


def _verdict(columns: NumaColumns, row: int, name: str, pod: Object) -> Object:
    wants = wants_of(pod)
    rules = rules_for(wants)
    good = bool(aligned(columns, wants, rules).good[row])
    why = why_unaligned(columns, row, name, wants, rules)
    assert good is (why is None), "the reason and the verdict must agree"
    if why is None:
        return {"code": "Success", "reasons": []}
    assert message_for(why).startswith(sentence(why.cause))
    return {"code": "Unschedulable", "reasons": [sentence(why.cause)]}


def _differ(label: str, want: Object, got: Object) -> list[str]:
    if "panic" in want:
        return []  # an answer instead of a crash is all that is asked for
    pairs = _reasons(want, got)
    if want["code"] != got["code"] or len(want["reasons"]) != len(got["reasons"]) or not all(pairs):
        return [f"{label}: want {want}, got {got}"]
    return []


def _reasons(want: Object, got: Object) -> Iterator[bool]:
    for wanted, given in zip(want["reasons"], got["reasons"], strict=False):
        yield wanted.startswith(given) or given.startswith(wanted)


FILES: dict[str, Check | ForFile] = {
    "numa/filter*": check_filter,
    "numa/score*": check_score,
    "numa/oracle*": check_oracle,
    "numa/quirks*": check_oracle,
    "numa/integration_match*": check_integration,
    "numa/seed_vs_current_filter*": ForFile(seed_check),
}
