"""The alert rules by the tool of Prometheus: valid, and two of them fire when they should, not before."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.assembly.monitoring.alert_rules import ALERTS
from tests.support.missing_parts import lacking
from tools.controlplane.build import build, unavailable
from tools.controlplane.plan import DEFAULT_KUBE, PROMTOOL

pytestmark = pytest.mark.real
RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "alerts.yaml"
Object = dict[str, Any]
BY_NAME = {alert.name: alert.rule() for alert in ALERTS}


@pytest.fixture(scope="module")
def promtool() -> str:
    if reason := unavailable(DEFAULT_KUBE, (PROMTOOL,)):
        lacking(reason)
    return str(build(DEFAULT_KUBE, (PROMTOOL,))[PROMTOOL.name])


def expected(name: str, **labels: str) -> Object:
    """The alert as it is sent."""
    rule = BY_NAME[name]
    return {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": rule["annotations"]}


def case(series: dict[str, str], name: str, *moments: tuple[str, list[Object]]) -> Object:
    """Samples one minute apart, and which alerts there are at some moments."""
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": [
            {"eval_time": moment, "alertname": name, "exp_alerts": alerts} for moment, alerts in moments
        ],
    }


CASES = {
    "no leader for two minutes": case(
        {'bayplan_leader{instance="a"}': "1+0x5 0+0x20", 'bayplan_leader{instance="b"}': "0+0x26"},
        "BayplanNoLeader",
        ("5m", []),
        ("7m", []),
        ("9m", [expected("BayplanNoLeader")]),
    ),
    "a queue that admits none of its pending gangs": case(
        {
            'kueue_pending_workloads{cluster_queue="left",status="active"}': "3+0x1000",
            'kueue_admitted_workloads_total{cluster_queue="left"}': "5+0x1000",
            'kueue_pending_workloads{cluster_queue="right",status="active"}': "3+0x1000",
            'kueue_admitted_workloads_total{cluster_queue="right"}': "5+1x1000",
        },
        "BayplanGangsPendingLong",
        ("5h", []),
        ("7h", [expected("BayplanGangsPendingLong", cluster_queue="left")]),
    ),
}


def run(promtool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False)


def test_prometheus_accepts_every_rule(promtool: str) -> None:
    ran = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"{len(ALERTS)} rules found" in ran.stdout


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_not_before(promtool: str, tmp_path: Path, name: str) -> None:
    path = tmp_path / "case.yaml"
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [CASES[name]]}
    path.write_text(yaml.safe_dump(content))
    ran = run(promtool, "test", "rules", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_case_that_expects_another_alert_fails(promtool: str, tmp_path: Path) -> None:
    path = tmp_path / "case.yaml"
    wrong = case(
        {'bayplan_leader{instance="a"}': "1+0x9"}, "BayplanNoLeader", ("5m", [expected("BayplanNoLeader")])
    )
    content = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [wrong]}
    path.write_text(yaml.safe_dump(content))
    assert run(promtool, "test", "rules", str(path)).returncode == 1
