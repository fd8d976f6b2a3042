"""What our validating webhook says about jobs and topologies."""

from __future__ import annotations

from typing import Any

from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, job, topology
from bayplan.dialects.kueue.names.annotations import PREFERRED, REQUIRED, SEGMENT_LEVEL, SEGMENT_SIZE
from bayplan.dialects.kueue.webhooks.validate import validate

Object = dict[str, Any]


def said(new: Object | None, old: Object | None = None) -> list[str]:
    return [str(error) for error in validate(new, old)]


def test_a_good_job_and_a_good_topology_pass() -> None:
    notes = {REQUIRED: BLOCK, SEGMENT_LEVEL: RACK, SEGMENT_SIZE: "2"}
    assert said(job("train", 4, 1, notes, 5)) == []
    assert said(topology()) == []


def test_all_errors_come_at_once_with_their_paths() -> None:
    found = said(
        job("train", 4, 1, {REQUIRED: BLOCK, PREFERRED: RACK, SEGMENT_LEVEL: RACK, SEGMENT_SIZE: "x"}, 5)
    )
    assert len(found) >= 2
    assert all(error.startswith("spec.template.metadata.annotations") for error in found)


def test_what_was_wrong_before_may_be_changed_elsewhere() -> None:
    old = job("train", 4, 1, {SEGMENT_LEVEL: RACK, SEGMENT_SIZE: "0"}, 5)
    new = {**old, "spec": {**old["spec"], "suspend": True}}
    assert said(old) != []
    assert said(new, old) == []


def test_a_deleted_job_and_other_kinds_are_none_of_our_business() -> None:
    assert said(None, job("train", 4, 1, {}, 5)) == []
    assert said({"kind": "ConfigMap", "metadata": {"name": "x"}}) == []


def test_levels_of_a_topology_are_unique_and_the_host_comes_last() -> None:
    body = topology()
    body["spec"]["levels"] = [
        {"nodeLabel": "kubernetes.io/hostname"},
        {"nodeLabel": RACK},
        {"nodeLabel": RACK},
    ]
    assert len(said(body)) >= 2
