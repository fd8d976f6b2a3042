"""Alert rules and dashboards: every metric and label in them exists, and every alert is explained."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from bayplan.assembly.monitoring.alert_rules import ALERTS
from bayplan.assembly.monitoring.grafana_dashboards import COLUMNS, DASHBOARDS, Dashboard
from bayplan.assembly.monitoring.objects import ALERTS_FILE, monitoring_files
from bayplan.runtime.telemetry.admission_metrics import AdmissionMetrics
from bayplan.runtime.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[4]
GUIDE = ROOT / "docs" / "guide" / "monitoring.md"
OF_SCRAPES = {"instance"}  # a label that Prometheus adds itself
OF_PROCESSES = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
METRIC = re.compile(r"\b((?:bayplan|kueue|process)_[a-z_]+)")
GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
SELECTED = re.compile(r"\{([a-z_]+)=")


def known() -> tuple[set[str], set[str]]:
    """The names of all series and of their labels, as the processes of Bayplan serve them."""
    metrics = Metrics("1")
    AdmissionMetrics(metrics.registry, "1")
    registry: CollectorRegistry = metrics.registry
    series, labels = set(registry._names_to_collectors), {"le"}
    for collector in set(registry._names_to_collectors.values()):
        labels.update(getattr(collector, "_labelnames", ()))
    return series, labels


PANELS = [(page, panel) for page in DASHBOARDS for panel in page.panels]
EXPRESSIONS = [
    *((alert.name, alert.expression) for alert in ALERTS),
    *((f"{page.title}: {panel.title}", query) for page, panel in PANELS for query in panel.queries),
]


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS)
def test_every_metric_and_label_exists(name: str, expression: str) -> None:
    series, labels = known()
    series |= OF_PROCESSES
    assert (named := set(METRIC.findall(expression))) and named <= series
    grouped = {one.strip() for found in GROUPED.findall(expression) for one in found.split(",")} - {""}
    assert grouped | set(SELECTED.findall(expression)) <= labels | OF_SCRAPES
    assert expression.count("(") == expression.count(")")


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: one.name)
def test_every_alert_has_a_section_that_says_what_to_do(alert: object) -> None:
    page = GUIDE.read_text(encoding="utf-8")
    assert f"### {getattr(alert, 'name', '')}\n" in page


def test_the_files_in_the_repository_are_up_to_date() -> None:
    folder = ROOT / "deploy" / "monitoring"
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.iterdir()}
    assert found == monitoring_files(), "write them again: make chart"
    assert ALERTS_FILE in found


@pytest.mark.parametrize("page", DASHBOARDS, ids=lambda one: one.uid)
def test_panels_of_a_dashboard_do_not_overlap(page: Dashboard) -> None:
    panels = json.loads(page.text())["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < COLUMNS
    assert len({panel["id"] for panel in panels}) == len(panels)
