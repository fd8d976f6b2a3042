"""The reference of the dashboard's API names every path, layer and field that the server has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from bayplan.dashboard.host_map import HIDDEN_GANG, LAYERS
from bayplan.dashboard.hub import KEPT, SnapshotHub
from bayplan.dashboard.server import DashboardServer
from bayplan.dashboard.views import UserView
from tests.support.dashboard_snapshots import gang_entry, host_map, rack_layout, snapshot_of
from tests.support.listening import free_address
from tests.unit.dashboard.test_server import Answers

REFERENCE = (Path(__file__).parents[3] / "docs/reference/dashboard-api.md").read_text(encoding="utf-8")


def test_every_path_is_documented() -> None:
    server = DashboardServer(SnapshotHub(), Answers(), free_address())
    server.stop()
    paths = [route.path for route in server.routes() if route.path.startswith("/api")]
    documented = {
        re.split(r"[/?](?=[A-Z])|\?", path)[0] for path in re.findall(r"`(/api/v1/[^` ]+)`", REFERENCE)
    }
    assert {re.split(r"/\{", path)[0] for path in paths} == documented


def test_every_layer_is_documented_with_its_type() -> None:
    found = re.findall(r"^\| `(\w+)` \| `(<?u\d)` \|", REFERENCE, re.MULTILINE)
    assert dict(found) == LAYERS
    assert str(HIDDEN_GANG) in REFERENCE and f"The last {KEPT} versions" in REFERENCE


def test_every_field_of_the_state_and_of_a_change_is_documented() -> None:
    hub, view, layout = SnapshotHub(), UserView(), rack_layout(2, 2)
    hub.publish(snapshot_of(host_map(layout, {})))
    hub.publish(snapshot_of(host_map(layout, {1: 1}), gang_entry(1, "a", "x")))
    change = hub.change(1, view)
    assert change is not None
    state, told = json.loads(hub.state(view)[1]), json.loads(change[1])
    names = {
        *state,
        *state["maps"][0],
        *state["maps"][0]["levels"][0],
        *state["gangs"][0],
        *told,
        *told["maps"][0],
    }
    missing = sorted(name for name in names if f"`{name}`" not in REFERENCE)
    assert not missing
