"""Pod groups of fair-share queues run forward: limits of queues, sub-groups, and whose turn is next."""

from __future__ import annotations

from typing import Any

import numpy as np

from bayplan.simulation.forecast.forward_run import NEVER, ForwardRun
from bayplan.simulation.forecast.scheduling_picture import scheduled_picture
from tests.support.kai_site import RACK, Site

AMPLE = {"cpu": {"quota": -1, "limit": -1}}
IN_RACK = {"topology": "hall", "requiredTopologyLevel": RACK}


def site_with(*queues: str, racks: tuple[int, ...] = (2, 2), **resources: Any) -> Site:
    made = Site(racks)
    made.topology()
    for name in queues:
        made.queue(name, resources=resources.get(name, AMPLE))
    return made


def add(site: Site, name: str, queue: str, pods: int = 2, cpu: int = 1, **spec: Any) -> None:
    site.group(name, queue=queue, minMember=pods, **spec)
    for rank in range(pods):
        site.pod(f"{name}-{rank}", name, cpu=cpu)


def forecast(site: Site, ends: dict[str, float], run_time: float = 1000.0) -> dict[str, float]:
    """When each waiting group starts, if running ones end so many seconds from now."""
    found = scheduled_picture(site.role.state, 0.0, lambda ref: ref.name)
    picture = found.picture
    left = np.array([ends.get(one.name, NEVER) for one in picture.running])
    times = ForwardRun(picture).run(0.0, left, np.full(len(picture.waiting), run_time)).times
    return {one.name: float(at) for one, at in zip(picture.waiting, times, strict=True)}


def test_a_group_waits_for_its_own_queue_though_nodes_are_free() -> None:
    site = site_with("small", "other", small={"cpu": {"quota": 2000, "limit": 2000}})
    add(site, "runs", "small")
    add(site, "else", "other")
    site.run()
    add(site, "waits", "small")
    site.run()
    assert forecast(site, {"runs": 60.0, "else": 30.0}) == {"waits": 60.0}


def test_the_limit_of_a_parent_holds_for_the_queues_below_it() -> None:
    site = site_with("top", top={"cpu": {"quota": 2000, "limit": 2000}})
    for name in ("left", "right"):
        site.queue(name, parentQueue="top", resources=AMPLE)
    add(site, "runs", "left")
    site.run()
    add(site, "waits", "right")
    site.run()
    assert forecast(site, {"runs": 45.0}) == {"waits": 45.0}


def test_what_may_not_be_preempted_stays_within_the_quota() -> None:
    site = site_with("team", team={"cpu": {"quota": 2000, "limit": -1}})
    add(site, "runs", "team", preemptibility="non-preemptible")
    site.run()
    add(site, "firm", "team", preemptibility="non-preemptible")
    site.run()
    assert forecast(site, {"runs": 70.0}) == {"firm": 70.0}


def test_a_group_beyond_its_limit_or_without_a_queue_never_starts() -> None:
    site = site_with("small", small={"cpu": {"quota": 1000, "limit": 1000}})
    add(site, "large", "small")
    add(site, "lost", "nowhere")
    site.run()
    assert forecast(site, {}) == {"large": NEVER, "lost": NEVER}


def test_each_sub_group_needs_its_own_rack() -> None:
    site = site_with("team")
    add(site, "left", "team", pods=4, topologyConstraint=IN_RACK)
    site.run()
    rack = set(site.racks("left-0", "left-1", "left-2", "left-3"))
    assert len(rack) == 1
    parts = [{"name": name, "minMember": 3, "topologyConstraint": IN_RACK} for name in ("a", "b")]
    site.group("pair", queue="team", minMember=6, subGroups=parts)
    for rank in range(6):
        site.pod(f"pair-{rank}", "pair", "ab"[rank // 3])
    site.run()
    assert forecast(site, {"left": 90.0}) == {"pair": 90.0}


def test_groups_of_queues_below_their_quota_come_first_though_they_are_younger() -> None:
    """Queue a has all that is its own, queue b half of it: then they take turns by what each would have."""
    quotas = {name: {"cpu": {"quota": cpu, "limit": -1}} for name, cpu in (("a", 6000), ("b", 4000))}
    site = site_with("a", "b", racks=(4,), **quotas)
    for number in range(4):
        add(site, f"runs{number}", "a" if number < 3 else "b", preemptibility="non-preemptible")
    site.run()
    for name in ("a1", "a2", "b1", "b2"):
        add(site, name, name[0])
        site.run()
    found = forecast(site, {f"runs{number}": 10.0 * (number + 1) for number in range(4)})
    assert found == {"b1": 10.0, "a1": 20.0, "b2": 30.0, "a2": 40.0}


def test_a_pod_of_no_queue_has_its_turn_by_priority() -> None:
    """Groups have the priority 50 if they name none."""
    site = site_with("team", racks=(1,))
    add(site, "runs", "team")
    site.run()
    site.pod("plain", cpu=2)  # older
    add(site, "waits", "team")
    site.run()
    assert forecast(site, {"runs": 10.0}, run_time=5.0) == {"waits": 10.0, "plain": 15.0}
