"""Metrics: what happened is counted under bounded labels."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write, WriteOutcome
from bayplan.runtime.telemetry.metrics import CHILDREN_MAX, OTHER, Metrics

POD = Kind("", "v1", "Pod", "pods")


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def children(metrics: Metrics, name: str) -> list[dict[str, str]]:
    families = text_string_to_metric_families(metrics.text().decode())
    return [sample.labels for family in families for sample in family.samples if sample.name == name]


def test_writes_are_counted_by_how_they_ended() -> None:
    metrics = Metrics()
    write = Write(Verb.CREATE, POD, "ns", "a", subresource="binding")
    metrics.submitted(3)
    metrics.write_ended(WriteOutcome(write, Ended.DONE))
    metrics.write_ended(WriteOutcome(write, Ended.CONFLICT))
    assert value(metrics, "bayplan_writes_total", verb="create", kind="Pod", ended="done") == 1
    assert value(metrics, "bayplan_writes_total", verb="create", kind="Pod", ended="conflict") == 1
    assert value(metrics, "bayplan_writes_in_flight") == 1


def test_the_loop_is_timed() -> None:
    metrics = Metrics()
    metrics.stepped(0.02, wall=5.0)
    metrics.snapshot_made(0.001)
    metrics.decided(0.3, {"Bind": 4, "Refuse": 1})
    metrics.refused("no_room")
    metrics.event_seen(Event(Happened.SEEN, POD))
    assert value(metrics, "bayplan_step_seconds_count") == 1
    assert value(metrics, "bayplan_last_step_timestamp_seconds") == 5.0
    assert value(metrics, "bayplan_snapshot_seconds_sum") == 0.001
    assert value(metrics, "bayplan_decision_seconds_bucket", le="0.25") == 0
    assert value(metrics, "bayplan_decision_seconds_bucket", le="0.5") == 1
    assert value(metrics, "bayplan_plan_actions_total", action="Bind") == 4
    assert value(metrics, "bayplan_placement_refusals_total", code="no_room") == 1
    assert value(metrics, "bayplan_events_total", kind="Pod", happened="seen") == 1


def test_labels_beyond_the_limit_become_one() -> None:
    metrics = Metrics()
    for number in range(CHILDREN_MAX + 50):
        metrics.refused(f"code-{number}")
    assert len(children(metrics, "bayplan_placement_refusals_total")) == CHILDREN_MAX + 1
    assert value(metrics, "bayplan_placement_refusals_total", code=OTHER) == 50


def test_queues_that_are_gone_are_no_longer_shown() -> None:
    metrics = Metrics()
    metrics.queues({("a", "ready"): 3, ("b", "ready"): 1})
    metrics.queues({("b", "ready"): 2})
    assert children(metrics, "bayplan_queue_gangs") == [{"queue": "b", "state": "ready"}]
    assert value(metrics, "bayplan_queue_gangs", queue="b", state="ready") == 2


def test_of_many_queues_the_longest_are_shown_by_name_and_none_is_left_out() -> None:
    metrics = Metrics()
    lengths = {(f"q{number:03d}", "ready"): number for number in range(CHILDREN_MAX * 2)}
    for _ in range(2):
        metrics.queues(lengths)
    shown = children(metrics, "bayplan_queue_gangs")
    assert len(shown) == CHILDREN_MAX
    assert {"queue": f"q{CHILDREN_MAX * 2 - 1:03d}", "state": "ready"} in shown
    total = sum(value(metrics, "bayplan_queue_gangs", **labels) or 0 for labels in shown)
    assert total == sum(lengths.values())


def test_leading_is_a_state_and_terms_are_counted() -> None:
    metrics = Metrics()
    for leading in (False, True, True, False, True):
        metrics.leads(leading)
    assert value(metrics, "bayplan_leader") == 1
    assert value(metrics, "bayplan_leader_terms_total") == 2


def test_reviews_watches_and_certificates() -> None:
    metrics = Metrics("1.2.3")
    metrics.reviewed("mutate", "jobs", "allowed", 0.002)
    metrics.watch_restarted("Pod", "stale")
    metrics.certificate_ends(99.0)
    assert (
        value(metrics, "bayplan_webhook_reviews_total", review="mutate", resource="jobs", answer="allowed")
        == 1
    )
    assert value(metrics, "bayplan_webhook_seconds_count", review="mutate") == 1
    assert value(metrics, "bayplan_watch_restarts_total", kind="Pod", reason="stale") == 1
    assert value(metrics, "bayplan_certificate_expiry_timestamp_seconds") == 99.0
    assert value(metrics, "bayplan_build_info", version="1.2.3") == 1


def test_two_of_them_do_not_meet() -> None:
    one, other = Metrics(), Metrics()
    one.refused("x")
    assert value(other, "bayplan_placement_refusals_total", code="x") is None


def test_no_series_is_spent_on_creation_times() -> None:
    metrics = Metrics()
    metrics.refused("x")
    assert b"_created" not in metrics.text()
    assert b"process_resident_memory_bytes" in metrics.text()
