"""Alert rules and dashboards as objects of a cluster, and as the files of deploy/monitoring."""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

from bayplan.assembly.install_settings import InstallSettings, Object, new_object
from bayplan.assembly.monitoring.alert_rules import rule_groups
from bayplan.assembly.monitoring.grafana_dashboards import DASHBOARDS
from bayplan.assembly.tunables import enabled, pairs

RULES = "metrics.prometheusRule"
PAGES = "metrics.grafanaDashboards"
NAME = "bayplan"
ALERTS_FILE = "alerts.yaml"


def monitoring_objects(settings: InstallSettings) -> list[Object]:
    """The PrometheusRule and the ConfigMap of dashboards that the values ask for."""
    found = []
    if enabled(settings, f"{RULES}.enabled"):
        spec = {"groups": rule_groups()}
        rule = new_object("monitoring.coreos.com/v1", "PrometheusRule", NAME, settings, spec=spec)
        rule["metadata"]["labels"] |= pairs(settings, f"{RULES}.labels")
        found.append(rule)
    if enabled(settings, f"{PAGES}.enabled"):
        data = {f"{page.uid}.json": page.text() for page in DASHBOARDS}
        pages = new_object("v1", "ConfigMap", f"{NAME}-dashboards", settings, data=data)
        pages["metadata"]["labels"] |= pairs(settings, f"{PAGES}.labels")
        found.append(pages)
    return found


def monitoring_files() -> dict[str, str]:
    """The files for a Prometheus without the operator, and for a Grafana without the sidecar."""
    rules = yaml.safe_dump({"groups": rule_groups()}, sort_keys=False, width=110)
    return {ALERTS_FILE: rules, **{f"{page.uid}.json": page.text() for page in DASHBOARDS}}


def write_monitoring(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in monitoring_files().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_monitoring(Path(sys.argv[1]))
