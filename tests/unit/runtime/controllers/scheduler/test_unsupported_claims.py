"""A pod with resource claims waits with a reason, and is not bound without its devices."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bayplan.dialects.api import Event, Happened, Kind, Write
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.dialects.kube.gang.objects import POD_GROUPS
from bayplan.dialects.kube.gang_api.gates import V1ALPHA2
from bayplan.runtime.controllers.scheduler.controller import SchedulerController

NOW = 1_800_000_000.0
TEMPLATE = {"name": "gpu", "resourceClaimTemplateName": "single-gpu"}
SHARED = {"name": "channel", "resourceClaimName": "rack-channel"}


class Hand:
    """Passes objects to a scheduler and takes its writes, without a server."""

    def __init__(self) -> None:
        self.role = SchedulerController()
        for name in ("n1", "n2", "n3"):
            allocatable = {"cpu": "4", "pods": "10"}
            self.see(
                NODES, name, {"labels": {"kubernetes.io/hostname": name}}, status={"allocatable": allocatable}
            )

    def see(self, kind: Kind, name: str, metadata: dict[str, Any] | None = None, **body: Any) -> None:
        assert kind.wire is not None
        meta = {"name": name, "uid": f"u-{name}", "resourceVersion": "7", **(metadata or {})}
        meta |= {"namespace": "ns"} if kind.namespaced else {}
        item = msgspec.convert({**body, "metadata": meta}, kind.wire, strict=False)
        self.role.apply(self.role.decode(Event(Happened.SEEN, kind, item)))

    def pod(self, name: str, *claims: dict[str, Any], **spec: Any) -> None:
        whole = {"schedulerName": "bayplan", "containers": [{"name": "c"}], **spec}
        self.see(PODS_KIND, name, spec={**whole, "resourceClaims": list(claims)} if claims else whole)

    def writes(self, seconds: float = 60.0) -> list[Write]:
        """What is written within some seconds."""
        found: list[Write] = []
        for passed in range(int(seconds)):
            now = NOW + passed
            view = self.role.snapshot(now)
            if view is not None:
                plan = self.role.decide(view, now)
                self.role.assume(plan, now)
                found += self.role.encode(plan, now)
            found += self.role.reconcile(now)
        return found


def bound(writes: list[Write]) -> list[str]:
    return sorted({write.name for write in writes if write.subresource == "binding"})


def reasons(writes: list[Write]) -> dict[str, tuple[str, str]]:
    """The PodScheduled conditions that were written, by pod: reason and message."""
    found = {}
    for write in writes:
        if write.kind.kind == "Pod" and write.subresource == "status":
            (condition,) = write.body["status"]["conditions"]
            found[write.name] = (condition["reason"], condition["message"])
    return found


@pytest.fixture
def hand() -> Hand:
    return Hand()


def test_a_pod_with_a_claim_is_not_bound_and_the_reason_names_the_claim(hand: Hand) -> None:
    hand.pod("trainer", TEMPLATE)
    writes = hand.writes()
    assert bound(writes) == []
    code, message = reasons(writes)["trainer"]
    assert code == "SchedulerError", "no node helps: a cluster autoscaler must not add one"
    assert message.startswith(
        'pod "ns/trainer": resource claim "gpu" (ResourceClaimTemplate single-gpu) is not supported: '
    )


def test_a_reason_names_every_claim_of_the_pod(hand: Hand) -> None:
    hand.pod("trainer", TEMPLATE, SHARED)
    _, message = reasons(hand.writes())["trainer"]
    names = '"gpu" (ResourceClaimTemplate single-gpu), "channel" (ResourceClaim rack-channel)'
    assert f"resource claims {names} are not supported" in message


def test_a_pod_without_claims_is_bound_beside_one_that_waits(hand: Hand) -> None:
    hand.pod("trainer", TEMPLATE)
    hand.pod("plain")
    assert bound(hand.writes()) == ["plain"]


def test_a_gang_does_not_start_without_its_pod_that_has_a_claim(hand: Hand) -> None:
    hand.see(POD_GROUPS[V1ALPHA2], "g", spec={"schedulingPolicy": {"gang": {"minCount": 2}}})
    for name, claims in (("g-0", ()), ("g-1", (TEMPLATE,)), ("g-2", ())):
        hand.pod(name, *claims, schedulingGroup={"podGroupName": "g"})
    writes = hand.writes()
    assert bound(writes) == []
    assert all(
        message.startswith('pod "ns/g-1": resource claim "gpu"') for _, message in reasons(writes).values()
    )
    assert set(reasons(writes)) == {"g-0", "g-1", "g-2"}


def test_a_pod_that_another_scheduler_bound_with_its_claim_holds_its_capacity(hand: Hand) -> None:
    three = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}
    for number in (1, 2, 3):
        hand.pod(
            f"held-{number}", TEMPLATE, schedulerName="default-scheduler", nodeName=f"n{number}", **three
        )
    hand.pod("plain", **three)
    assert bound(hand.writes()) == []
