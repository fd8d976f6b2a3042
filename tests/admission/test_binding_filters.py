"""Admission places gangs only where the filters of binding let their pods be bound."""

from __future__ import annotations

from bayplan.dialects.kueue.status.rejection_messages import details, rejection_message
from bayplan.model.change import PodLost, StorageSeen
from bayplan.model.node import HOSTNAME
from bayplan.model.node_rules import NodeSelectorTerm, Requirement
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import ClaimUse, Disk, HostPort, PodAffinity, PodSignature
from bayplan.model.profile import Profile
from bayplan.model.quota import Preemption, VictimPolicy
from bayplan.model.storage import ONE_POD, NodeVolumes, StorageClass, Volume, VolumeClaim
from tests.support.bindable_gangs import (
    NAMESPACE,
    RACK,
    ZONE,
    AdmissionStage,
    apart,
    by_host,
    by_label,
    hosts,
    in_rack,
    labels,
    near,
    queued,
    running,
    selects,
    spread_over,
    term,
    workers,
)

ME = labels(app="me")
PORT = PodSignature(ports=(HostPort(8080),))
TWO_HOSTS = hosts("z1-r1-1 z1-r1-2")
FOUR_RACKS = hosts("z1-r1-1 z1-r1-2 z1-r2-1 z1-r2-2 z2-r1-1 z2-r1-2 z2-r2-1 z2-r2-2")
CLAIM = PodSignature(claims=(ClaimUse("data"),))


def in_zone(zone: str) -> tuple[NodeSelectorTerm, ...]:
    return (NodeSelectorTerm((Requirement(ZONE, "In", (zone,)),)),)


def bound_claim(zone: str = "z2", modes: tuple[str, ...] = ()) -> tuple[StorageSeen, ...]:
    claim = VolumeClaim(NAMESPACE, "data", volume="disk", bound=True, modes=modes)
    return StorageSeen(claim), StorageSeen(Volume("disk", claim=claim.key, affinity=in_zone(zone)))


# ── ports and disks ────────────────────────────────────────────────────────────────────────────────


def test_pods_with_a_host_port_get_a_host_each() -> None:
    stage = AdmissionStage(TWO_HOSTS)
    assert by_host(stage.admit(queued("a", workers(2, PORT)))["main"]) == {"z1-r1-1": 1, "z1-r1-2": 1}


def test_without_the_option_pods_with_a_host_port_share_a_host() -> None:
    stage = AdmissionStage(TWO_HOSTS, profile=Profile(binding_filters=False))
    assert len(by_host(stage.admit(queued("a", workers(2, PORT)))["main"])) == 1


def test_a_host_whose_port_another_pod_uses_is_left_out() -> None:
    stage = AdmissionStage(TWO_HOSTS)
    stage.run(running("web", "z1-r1-1", PORT))
    assert by_host(stage.admit(queued("a", workers(1, PORT)))["main"]) == {"z1-r1-2": 1}


def test_a_port_of_an_admitted_gang_without_pods_is_taken() -> None:
    stage = AdmissionStage(TWO_HOSTS)
    first = by_host(stage.admit(queued("a", workers(1, PORT)))["main"])
    second = by_host(stage.admit(queued("b", workers(1, PORT)))["main"])
    assert set(first) | set(second) == {"z1-r1-1", "z1-r1-2"}


def test_more_pods_with_a_port_than_hosts_are_refused_with_the_filter_and_what_to_do() -> None:
    rejection = AdmissionStage(TWO_HOSTS).rejection(queued("a", workers(3, PORT))).rejection
    assert 'topology "t" allows to fit only 2 out of 3 pod(s)' in rejection_message(rejection)
    assert "host ports" in details(rejection)


def test_a_gang_is_admitted_when_the_pod_that_has_its_port_is_gone() -> None:
    stage = AdmissionStage(TWO_HOSTS)
    stage.run(running("web", "z1-r1-1", PORT))
    stage.rejection(queued("a", workers(2, PORT)))
    stage.see(PodLost(PodKey(NAMESPACE, "web")))
    assert len(by_host(stage.admit(queued("a", workers(2, PORT)))["main"])) == 2


def test_pods_that_write_to_one_disk_get_a_host_each() -> None:
    disk = PodSignature(disks=(Disk("gce", "d"),))
    assert len(by_host(AdmissionStage(TWO_HOSTS).admit(queued("a", workers(2, disk)))["main"])) == 2


# ── volumes ────────────────────────────────────────────────────────────────────────────────────────


def test_a_volume_of_a_zone_takes_the_gang_there() -> None:
    stage = AdmissionStage(FOUR_RACKS, *bound_claim("z2"))
    assert by_label(stage.admit(queued("a", workers(4, CLAIM)))["main"], FOUR_RACKS, ZONE) == {"z2": 4}


def test_a_missing_claim_is_named_and_waited_for() -> None:
    stage = AdmissionStage(FOUR_RACKS)
    rejection = stage.rejection(queued("a", workers(4, CLAIM))).rejection
    assert 'persistentvolumeclaim "data" not found' in rejection_message(rejection)
    stage.see(*bound_claim("z1"))
    assert by_label(stage.admit(queued("a", workers(4, CLAIM)))["main"], FOUR_RACKS, ZONE) == {"z1": 4}


def test_two_pods_cannot_share_a_claim_for_one_pod() -> None:
    stage = AdmissionStage(FOUR_RACKS, *bound_claim("z2", (ONE_POD,)))
    rejection = stage.rejection(queued("a", workers(2, CLAIM))).rejection
    assert "ReadWriteOncePod" in rejection_message(rejection) + details(rejection)
    assert stage.admit(queued("b", workers(1, CLAIM)))


def test_a_late_claim_is_provisioned_where_its_class_allows() -> None:
    late = StorageClass("fast", "csi", wait_for_consumer=True, topologies=in_zone("z2"))
    stage = AdmissionStage(FOUR_RACKS, StorageSeen(late), StorageSeen(VolumeClaim(NAMESPACE, "data", "fast")))
    assert by_label(stage.admit(queued("a", workers(2, CLAIM)))["main"], FOUR_RACKS, ZONE) == {"z2": 2}


def test_a_host_without_another_attachment_is_left_out() -> None:
    claims = [VolumeClaim(NAMESPACE, name, volume=name, bound=True) for name in ("data", "old")]
    volumes = [Volume(one.name, claim=one.key, driver="csi", handle=one.name) for one in claims]
    limits = [NodeVolumes(node.name, {"csi": 1}) for node in TWO_HOSTS]
    seen = [StorageSeen(one) for group in (claims, volumes, limits) for one in group]
    stage = AdmissionStage(TWO_HOSTS, *seen)
    stage.run(running("old", "z1-r1-1", PodSignature(claims=(ClaimUse("old"),))))
    assert by_host(stage.admit(queued("a", workers(2, CLAIM)))["main"]) == {"z1-r1-2": 2}


# ── anti-affinity ──────────────────────────────────────────────────────────────────────────────────


def test_pods_that_repel_each_other_by_host_get_a_host_each() -> None:
    shape = PodSignature(labels=ME, affinity=apart(HOSTNAME, app="me"))
    assert len(by_host(AdmissionStage(TWO_HOSTS).admit(queued("a", workers(2, shape)))["main"])) == 2


def test_pods_that_repel_each_other_by_rack_get_a_rack_each() -> None:
    shape = PodSignature(labels=ME, affinity=apart(RACK, app="me"))
    found = AdmissionStage(FOUR_RACKS).admit(queued("a", workers(4, shape)))["main"]
    assert sorted(by_label(found, FOUR_RACKS, RACK).values()) == [1, 1, 1, 1]


def test_pods_that_repel_each_other_by_rack_do_not_fit_in_one_rack() -> None:
    shape = PodSignature(labels=ME, affinity=apart(RACK, app="me"))
    rejection = AdmissionStage(FOUR_RACKS).rejection(queued("a", in_rack(2, shape))).rejection
    assert "anti-affinity" in details(rejection)


def test_a_zone_with_a_pod_that_the_gang_repels_is_left_out() -> None:
    stage = AdmissionStage(FOUR_RACKS)
    stage.run(running("db", "z1-r1-1", PodSignature(labels=labels(app="db"))))
    shape = PodSignature(labels=ME, affinity=apart(ZONE, app="db"))
    assert by_label(stage.admit(queued("a", workers(4, shape)))["main"], FOUR_RACKS, ZONE) == {"z2": 4}


def test_a_zone_whose_pod_repels_the_gang_is_left_out() -> None:
    stage = AdmissionStage(FOUR_RACKS)
    stage.run(running("db", "z1-r1-1", PodSignature(affinity=apart(ZONE, app="me"))))
    shape = PodSignature(labels=ME)
    assert by_label(stage.admit(queued("a", workers(4, shape)))["main"], FOUR_RACKS, ZONE) == {"z2": 4}


def test_an_admitted_gang_without_pods_repels_others() -> None:
    stage = AdmissionStage(FOUR_RACKS)
    lonely = PodSignature(labels=labels(app="lonely"), affinity=apart(ZONE, app="me"))
    first = by_label(stage.admit(queued("a", workers(1, lonely)))["main"], FOUR_RACKS, ZONE)
    second = by_label(stage.admit(queued("b", workers(2, PodSignature(labels=ME))))["main"], FOUR_RACKS, ZONE)
    assert set(first).isdisjoint(second)


def test_pods_of_another_namespace_do_not_count() -> None:
    stage = AdmissionStage(TWO_HOSTS)
    stage.run(running("db", "z1-r1-1", PodSignature(namespace="other", labels=ME)))
    stage.run(running("dc", "z1-r1-2", PodSignature(namespace="other", labels=ME)))
    shape = PodSignature(labels=ME, affinity=apart(HOSTNAME, app="me"))
    assert len(by_host(stage.admit(queued("a", workers(2, shape)))["main"])) == 2


def test_two_pod_sets_that_repel_each_other_get_different_zones() -> None:
    red = PodSignature(labels=labels(app="red"), affinity=apart(ZONE, app="blue"))
    blue = PodSignature(labels=labels(app="blue"))
    found = AdmissionStage(FOUR_RACKS).admit(
        queued("a", workers(3, red, name="red"), workers(3, blue, name="blue"))
    )
    zones = [set(by_label(found[name], FOUR_RACKS, ZONE)) for name in ("red", "blue")]
    assert zones[0].isdisjoint(zones[1])


# ── affinity ───────────────────────────────────────────────────────────────────────────────────────


def test_a_gang_goes_to_the_rack_of_the_pod_that_it_has_to_be_near() -> None:
    stage = AdmissionStage(FOUR_RACKS)
    stage.run(running("db", "z2-r1-2", PodSignature(labels=labels(app="db"))))
    shape = PodSignature(labels=ME, affinity=near(RACK, app="db"))
    assert by_label(stage.admit(queued("a", workers(4, shape)))["main"], FOUR_RACKS, RACK) == {"z2-r1": 4}


def test_a_gang_waits_for_the_pod_that_it_has_to_be_near() -> None:
    stage = AdmissionStage(FOUR_RACKS)
    shape = PodSignature(labels=ME, affinity=near(RACK, app="db"))
    rejection = stage.rejection(queued("a", workers(4, shape))).rejection
    assert "pod affinity" in rejection_message(rejection) + details(rejection)
    stage.run(running("db", "z2-r1-2", PodSignature(labels=labels(app="db"))))
    assert stage.admit(queued("a", workers(4, shape)))


def test_pods_that_have_to_be_near_each_other_get_one_rack() -> None:
    shape = PodSignature(labels=ME, affinity=near(RACK, app="me"))
    nodes = hosts("z1-r1-1 z1-r1-2 z1-r2-1 z1-r2-2 z1-r2-3", cpu=4000)
    stage = AdmissionStage(nodes)
    found = stage.admit(queued("a", workers(10, shape)))["main"]
    assert by_label(found, nodes, RACK) == {"z1-r2": 10}


def test_workers_go_where_the_leader_of_their_gang_goes() -> None:
    leader = PodSignature(labels=labels(app="leader"))
    shape = PodSignature(labels=ME, affinity=near(RACK, app="leader"))
    found = AdmissionStage(FOUR_RACKS).admit(
        queued("a", workers(6, shape), workers(1, leader, name="leader", cpu=8000))
    )
    racks = [set(by_label(found[name], FOUR_RACKS, RACK)) for name in ("main", "leader")]
    assert racks[0] == racks[1] and len(racks[0]) == 1


# ── spread ─────────────────────────────────────────────────────────────────────────────────────────


def test_pods_are_spread_over_zones_by_the_maximum_skew() -> None:
    shape = PodSignature(labels=ME, spread=(spread_over(ZONE, app="me"),))
    found = AdmissionStage(FOUR_RACKS).admit(queued("a", workers(7, shape)))["main"]
    assert sorted(by_label(found, FOUR_RACKS, ZONE).values()) == [3, 4]


def test_running_pods_count_for_the_spread() -> None:
    stage = AdmissionStage(FOUR_RACKS)
    for number in range(3):
        stage.run(running(f"w{number}", "z1-r1-1", PodSignature(labels=ME)))
    shape = PodSignature(labels=ME, spread=(spread_over(ZONE, app="me"),))
    assert by_label(stage.admit(queued("a", workers(3, shape)))["main"], FOUR_RACKS, ZONE) == {"z2": 3}


def test_pods_that_must_be_spread_do_not_fit_in_one_rack() -> None:
    shape = PodSignature(labels=ME, spread=(spread_over(ZONE, app="me"),))
    rejection = AdmissionStage(FOUR_RACKS).rejection(queued("a", in_rack(2, shape))).rejection
    assert "topology spread" in details(rejection)


def test_spread_by_host_gives_each_host_as_many_pods() -> None:
    shape = PodSignature(labels=ME, spread=(spread_over(HOSTNAME, app="me"),))
    found = AdmissionStage(FOUR_RACKS).admit(queued("a", workers(16, shape)))["main"]
    assert set(by_host(found).values()) == {2}


# ── with other parts of admission ──────────────────────────────────────────────────────────────────


def test_a_gang_with_the_port_is_preempted_for_one_of_higher_priority() -> None:
    lower = Preemption(within=VictimPolicy.LOWER)
    stage = AdmissionStage(TWO_HOSTS, preempts=lower)
    stage.admit(queued("low", workers(2, PORT)))
    assert stage.evicted(queued("high", workers(1, PORT), priority=5)) == ["low"]


def test_topologies_that_end_at_the_rack_count_the_hosts_that_bind() -> None:
    stage = AdmissionStage(FOUR_RACKS, levels=(ZONE, RACK))
    assert stage.admit(queued("a", in_rack(2, PORT)))
    rejection = AdmissionStage(FOUR_RACKS, levels=(ZONE, RACK)).rejection(queued("a", in_rack(3, PORT)))
    assert "host ports" in details(rejection.rejection)


def test_a_term_may_name_another_namespace() -> None:
    stage = AdmissionStage(FOUR_RACKS)
    stage.run(running("db", "z2-r1-2", PodSignature(namespace="data", labels=labels(app="db"))))
    shape = PodSignature(labels=ME, affinity=PodAffinity(required=(term(RACK, "data", app="db"),)))
    assert by_label(stage.admit(queued("a", workers(4, shape)))["main"], FOUR_RACKS, RACK) == {"z2-r1": 4}
    assert selects(app="db") == shape.affinity.required[0].selector
