"""What an administrator can decide about zones."""

from __future__ import annotations

from dataclasses import fields

from bayplan.configuration.settings import OPTIONS
from bayplan.model.numa import FitRule, NumaStalenessPolicy, OverReserve, Whose, ZoneRules
from tests.unit.configuration.test_settings import problems, read


def test_zones_are_configured_for_every_scheduler() -> None:
    found = read(
        zones={
            "fit": "plain",
            "score": "fewest_zones",
            "weights": {"cpu": 2, "example.com/gpu": 5},
            "hints": True,
            "preemption": True,
            "staleReports": {"policy": "skip", "resyncSeconds": 3, "foreignPods": "exclusive"},
        },
        schedulers={"one": {}, "two": {"gangNodes": "spread"}},
    )
    for profile in found.profiles.values():
        assert profile.zones.fit is FitRule.PLAIN
        assert profile.zones.weight("example.com/gpu") == 5
        assert profile.zone_hints
    assert (found.numa_staleness.over_reserve, found.numa_staleness.period) == (OverReserve.SKIP, 3.0)
    assert found.numa_staleness.foreign_pods is Whose.EXCLUSIVE and found.numa_staleness.simulate_evictions


def test_words_that_zones_do_not_know() -> None:
    told = " ".join(
        problems(zones={"fit": "loose", "weights": {"cpu": 0}, "staleReports": {"fingerprintPods": "none"}})
    )
    assert 'zones.fit: "loose": must be strict or plain' in told
    assert "zones.weights.cpu" in told
    assert "zones.staleReports.fingerprintPods" in told


def test_every_choice_about_zones_can_be_made() -> None:
    assert {option.name for option in OPTIONS if option.part == "zones"} == {
        field.name for field in fields(ZoneRules)
    }
    assert {option.name for option in OPTIONS if option.part == "numa_staleness"} == {
        field.name for field in fields(NumaStalenessPolicy)
    } - {"accept_early"}
