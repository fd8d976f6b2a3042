"""The families of the scheduler: a reader for each kind, a dialect for each gang, no branch elsewhere."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.dialect import BoundGang, PendingReport
from bayplan.dialects.kai.api.names import DIALECT as KAI
from bayplan.dialects.kai.api.names import POD_GROUP_NAME
from bayplan.dialects.kube.decode.wire import PODS_KIND, Metadata, OwnerReference, PodSpecWire, PodWire
from bayplan.dialects.kube.gang.objects import COMPOSITE, COMPOSITES, POD_GROUP
from bayplan.dialects.kube.gang.objects import DIALECT as GANG
from bayplan.dialects.kueue.decode.scheduled_jobs import DIALECT as JOBS
from bayplan.dialects.registry import KINDS, SchedulerDialects
from bayplan.model.change import PodSeen
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.plan import MarkStarted, ReportUnschedulable
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.runtime.controllers.scheduler import controller

NO_SPEC = Rejection(RejectionReason.NO_SPEC)


def owned_pod(group: str = "", scheduler: str = "bayplan") -> PodWire:
    """A pod that a Job owns; its annotation may join it to a group."""
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="1", controller=True)
    notes = {POD_GROUP_NAME: group} if group else {}
    meta = Metadata(name="a", namespace="ml", uid="u", owner_references=[owner], annotations=notes)
    return PodWire(metadata=meta, spec=PodSpecWire(scheduler_name=scheduler))


def facts(spec: GangSpec | None = None, **bound: int) -> BoundGang:
    return BoundGang(spec, lambda: bound, lambda: bound)


def test_each_kind_has_one_reader() -> None:
    dialects = SchedulerDialects(["bayplan"])
    kinds = [kind for reader in dialects.readers for kind in reader.kinds]
    counts = Counter([*kinds, *dialects.slots.kinds, dialects.slots.templates])
    assert set(counts) == set(KINDS)
    assert set(counts.values()) == {1}


def test_each_gang_has_the_dialect_that_its_reference_names() -> None:
    dialects = SchedulerDialects(["bayplan"])
    found = {name: dialects.of(Ref(name, "PodGroup", "ml", "a")) for name in ("kube", GANG, JOBS, KAI)}
    assert found["kube"] is found[GANG]
    assert len(set(map(id, found.values()))) == 3
    assert all(name in dialect.names for name, dialect in found.items())


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        (owned_pod(), Ref(JOBS, "Job", "ml", "train")),
        (owned_pod(group="g"), Ref(KAI, "PodGroup", "ml", "g")),
        (owned_pod(group="g", scheduler="alone"), None),
    ],
)
def test_a_pod_belongs_to_the_group_it_is_joined_to_and_else_to_its_job(
    pod: PodWire, want: Ref | None
) -> None:
    dialects = SchedulerDialects(["bayplan", "alone"], one_by_one=["alone"])
    assert (dialects.membership(pod) or (None,))[0] == want


def test_a_pod_of_a_group_is_published_once_its_group_was_read() -> None:
    dialects = SchedulerDialects(["bayplan"])
    assert list(dialects.decode(Event(Happened.SEEN, PODS_KIND, owned_pod(group="g")))) == []
    assert [change.pod.gang for change in dialects.flush() if isinstance(change, PodSeen)] == [
        Ref(KAI, "PodGroup", "ml", "g")
    ]


@pytest.mark.parametrize("gang", [Ref(JOBS, "Job", "ml", "a"), Ref(KAI, "PodGroup", "ml", "a")])
def test_a_dialect_without_start_records_writes_none(gang: Ref) -> None:
    dialect = SchedulerDialects(["bayplan"]).of(gang)
    assert not dialect.starts_in_parts(gang)
    assert list(dialect.start_writes(MarkStarted(gang, "u"), facts(), 0.0)) == []


def test_only_a_composite_group_starts_in_parts() -> None:
    dialects = SchedulerDialects(["bayplan"])
    kinds = {kind: Ref(GANG, kind, "ml", "a") for kind in (POD_GROUP, COMPOSITE)}
    assert [kind for kind, ref in kinds.items() if dialects.of(ref).starts_in_parts(ref)] == [COMPOSITE]


def test_each_dialect_tells_why_a_gang_is_pending_on_its_own_object() -> None:
    dialects = SchedulerDialects(["bayplan"])
    told = {}
    for gang in (
        Ref(JOBS, "Job", "ml", "a"),
        Ref(KAI, "PodGroup", "ml", "a"),
        Ref(GANG, COMPOSITE, "ml", "a"),
    ):
        action = ReportUnschedulable(gang, NO_SPEC, (), True, "u")
        report = PendingReport(action, "Unschedulable", "no room", starts=False)
        (write,) = dialects.of(gang).pending_writes(report, facts(), 0.0)
        about = write.body["involvedObject"]
        told[gang.dialect] = about["apiVersion"], about["kind"], write.body["message"]
        assert (dialects.of(gang).status_reason(report) is not None) == (gang.dialect == KAI)
    assert told == {
        JOBS: ("batch/v1", "Job", "no room"),
        KAI: ("scheduling.run.ai/v2alpha2", "PodGroup", "no room"),
        GANG: (COMPOSITES.api_version, COMPOSITE, "no room"),
    }


def test_the_scheduler_names_no_family() -> None:
    source = Path(controller.__file__).read_text(encoding="utf-8")
    tree = ast.parse(source)
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names = {one for one in imported if one.startswith("bayplan.dialects.")}
    assert not {one for one in names if one.split(".")[2] in ("kai", "kueue", "nrt")}
    compared = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Compare)}
    assert not {text for text in compared if ".dialect" in text}
