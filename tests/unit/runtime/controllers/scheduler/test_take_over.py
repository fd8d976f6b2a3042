"""A replica that takes over finds everything written already, and writes nothing again."""

from __future__ import annotations

import pytest

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Kind
from bayplan.dialects.kube.gang_api.gates import V1ALPHA1, V1ALPHA2
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.loop import Loop
from tests.support.pod_site import EVENTS, PODS
from tests.unit.runtime.controllers.scheduler.test_controller import GROUPS, OF_GROUP, OF_WORKLOAD, Site


def versions(site: Site, *more: Kind) -> dict[str, str]:
    """What a write would change: the version of every pod and group, and the events there are."""
    items = [one for kind in (PODS, EVENTS, *more) for one in site.store.list(kind).items]
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in items}


@pytest.mark.parametrize("pods", [2, 3])
def test_a_gang_that_waits_is_not_announced_again(pods: int) -> None:
    """Neither one that does not fit, nor one that lacks pods."""
    site = Site(V1ALPHA1)
    site.pod("runs")
    site.workload(3)
    for number in range(pods):
        site.pod(f"p{number}", cpu=4, **OF_WORKLOAD)
    site.run(60)
    assert len(site.events("w")) == 1, "the gang was announced once"
    before = versions(site)
    site.loop = Loop(EmbeddedBackend(site.store), (SchedulerController(),), site.journal)
    site.run(60)
    assert versions(site) == before


def test_the_condition_of_a_pod_group_that_waits_is_not_written_again() -> None:
    site = Site(V1ALPHA2)
    site.group(V1ALPHA2, 3)
    for number in range(3):
        site.pod(f"p{number}", cpu=4, **OF_GROUP)
    site.run(60)
    assert site.group_said(V1ALPHA2)[:2] == ("False", "Unschedulable")
    before = versions(site, GROUPS[V1ALPHA2])
    site.loop = Loop(EmbeddedBackend(site.store), (SchedulerController(),), site.journal)
    site.run(60)
    assert versions(site, GROUPS[V1ALPHA2]) == before


def test_a_standby_has_the_rows_of_all_nodes_before_it_leads() -> None:
    """On 100,000 nodes it takes seconds to build them."""
    site, leads = Site(V1ALPHA1), [False]
    scheduler = SchedulerController()
    site.loop = Loop(EmbeddedBackend(site.store), (scheduler,), site.journal, may_write=lambda now: leads[0])
    site.pod("first")
    site.run(2)
    flat = scheduler.state.store.nodes.flat.cluster
    built = flat.layouts
    assert built and not flat._stale
    leads[0] = True
    site.run(2)
    assert site.store.get(PODS, "default", "first")["spec"]["nodeName"] and flat.layouts == built
