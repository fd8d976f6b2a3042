"""Snapshots of the dashboard: what changed between two, how many gangs fit, and what is not shown to whom."""

from __future__ import annotations

import json

import numpy as np

from bayplan.dashboard.host_map import HIDDEN_GANG, LAYERS
from bayplan.dashboard.hub import Cursor, SnapshotHub
from bayplan.dashboard.snapshot import DashboardSnapshot, difference, fragmentation, room
from bayplan.dashboard.views import HIDDEN, UserView, entries_for, explanation_for, gang_layer, queues_for
from tests.support.dashboard_snapshots import gang_entry, host_map, rack_layout, snapshot_of

SITE = rack_layout(2, 4, 2)


def test_a_domain_is_a_range_of_hosts() -> None:
    assert SITE.range_of(("b1",)) == (8, 16)
    assert SITE.range_of(("b1", "r1")) == (12, 16)
    assert SITE.range_of(("b7",)) == (0, 0)


def test_only_changed_hosts_and_gangs_are_told() -> None:
    train, other = gang_entry(1, "a", "train"), gang_entry(2, "a", "other", pending=True)
    before = snapshot_of(host_map(SITE, {0: 1}), train)
    after = snapshot_of(host_map(SITE, {0: 1, 5: 2}), train, other)
    found = difference(before, after)
    assert found.hosts == ((5,),)
    assert found.gangs == (other,)
    assert found.order == (1, 2)
    assert difference(after, after).empty
    assert difference(after, before).gone == (2,)


def test_hosts_that_moved_make_clients_read_everything_again() -> None:
    before, after = snapshot_of(host_map(SITE, {})), snapshot_of(host_map(rack_layout(2, 5, 2), {}))
    assert difference(before, after).reset


def test_a_record_that_only_became_older_has_not_changed() -> None:
    young, old = gang_entry(1, "a", "train"), gang_entry(1, "a", "train")
    assert isinstance(young.record, dict) and isinstance(old.record, dict)
    young.record["age"], old.record["age"] = "5s", "6s"
    shown = host_map(SITE, {})
    assert difference(snapshot_of(shown, young), snapshot_of(shown, old)).empty


def test_room_counts_gangs_that_fit_within_one_domain_each() -> None:
    shown = host_map(SITE, {0: 1, 1: 1, 2: 1, 8: 1})  # 1 host free in the first rack, 3 in the third
    counts = room(shown, 16)
    assert counts == {"cluster": 6, "example.com/block": 5, "example.com/rack": 5, "host": 0}
    assert room(shown, 8)["host"] == 12
    assert room(host_map(SITE, {}, down=(0,)), 8)["cluster"] == 15


def test_fragmentation_is_what_the_best_domain_does_not_hold() -> None:
    assert fragmentation(host_map(SITE, dict.fromkeys(range(8), 1))) == 0.0
    assert fragmentation(host_map(SITE, {})) == 0.5


def test_a_client_that_is_behind_gets_all_changes_since_at_once() -> None:
    hub, view = SnapshotHub(), UserView()
    hub.publish(snapshot_of(host_map(SITE, {})))
    hub.publish(snapshot_of(host_map(SITE, {1: 1}), gang_entry(1, "a", "x")))
    hub.publish(snapshot_of(host_map(SITE, {1: 1, 2: 1}), gang_entry(1, "a", "x")))
    found = hub.change(1, view)
    assert found is not None
    version, body = found
    told = json.loads(body)
    assert version == 3 and told["maps"][0]["hosts"] == [1, 2] and told["maps"][0]["gang"] == [1, 1]
    assert [one["gang"]["name"] for one in told["gangs"]] == ["x"]


def test_a_snapshot_that_shows_nothing_new_is_no_version() -> None:
    hub = SnapshotHub()
    assert hub.publish(snapshot_of(host_map(SITE, {}), now=1.0))
    assert not hub.publish(snapshot_of(host_map(SITE, {}), now=2.0))
    assert hub.version == 1


def test_versions_that_are_not_kept_have_to_be_read_again() -> None:
    hub, view = SnapshotHub(), UserView()
    for number in range(40):
        hub.publish(snapshot_of(host_map(SITE, {number % 16: number + 1})))
    assert hub.change(1, view) is None
    assert hub.layers(1, 0, view) is None
    assert hub.change(39, view) is not None


def test_a_cursor_is_read_as_written_and_nonsense_is_none() -> None:
    assert Cursor.parse(str(Cursor("ab12", 7))) == Cursor("ab12", 7)
    for text in ("", "ab12", "ab-x", "-3", "ab-" + "9" * 80, "a b-1", "ab-²"):
        assert Cursor.parse(text) is None


LIMITED = UserView(False, frozenset({"mine"}), nodes=True, queues=False)
MIXED = snapshot_of(
    host_map(SITE, {0: 1, 3: 2}),
    gang_entry(1, "mine", "train"),
    gang_entry(2, "secret", "plan-x", pending=True),
    gang_entry(3, "mine", "waits", "behind secret/plan-x, used by secret/job/plan-x (3 pods)", pending=True),
)


def test_gangs_of_other_namespaces_are_anonymous_occupancy() -> None:
    layer = gang_layer(LIMITED, MIXED, MIXED.maps[0])
    assert (layer[0], layer[3]) == (1, HIDDEN_GANG)
    assert [one.key.name for one in entries_for(LIMITED, MIXED)] == ["train", "waits"]


def test_texts_do_not_name_gangs_of_other_namespaces() -> None:
    waits = entries_for(LIMITED, MIXED)[1].record
    assert waits["message"] == f"behind {HIDDEN}, used by {HIDDEN} (3 pods)"


def test_nothing_that_a_limited_user_is_sent_contains_a_hidden_name() -> None:
    hub = SnapshotHub()
    hub.publish(DashboardSnapshot(0.0, MIXED.maps))
    hub.publish(MIXED)
    answer = {
        "explanation": [
            {"title": "used by", "lines": ["secret/plan-x: 4"]},
            {"title": "t", "lines": ["secret/plan-x"]},
        ]
    }
    change = hub.change(1, LIMITED)
    assert change is not None
    sent = hub.state(LIMITED)[1] + change[1] + json.dumps(explanation_for(LIMITED, MIXED, answer)).encode()
    assert b"plan-x" not in sent and b"secret" not in sent and b"train" in sent


def test_queues_of_the_cluster_need_permission_and_local_ones_their_namespace() -> None:
    queues = {
        "clusterQueues": [{"name": "q"}],
        "localQueues": [{"namespace": "mine"}, {"namespace": "secret"}],
    }
    assert queues_for(LIMITED, queues) == {"localQueues": [{"namespace": "mine"}]}


def test_the_bytes_of_a_map_are_its_layers_one_after_the_other() -> None:
    shown = host_map(SITE, {0: 1, 3: 2})
    packed, offset = shown.packed(), 0
    for name, kind in LAYERS.items():
        size = np.dtype(kind).itemsize * len(SITE.hosts)
        assert (np.frombuffer(packed[offset : offset + size], kind) == shown.layers[name]).all()
        offset += size
    assert offset == len(packed)
