"""Validation of jobs and topologies by the webhook."""

from __future__ import annotations

from typing import Any

from bayplan.backends.fake_controllers.manifests import BLOCK, RACK, job, topology
from bayplan.dialects.kueue.names.annotations import PREFERRED, REQUIRED, SEGMENT_LEVEL, SEGMENT_SIZE
from bayplan.dialects.kueue.webhooks.validate import validate

Object = dict[str, Any]


def errors_of(new: Object | None, old: Object | None = None) -> list[str]:
    return [str(error) for error in validate(new, old)]


def test_a_good_job_and_a_good_topology_pass() -> None:
    notes = {REQUIRED: BLOCK, SEGMENT_LEVEL: RACK, SEGMENT_SIZE: "2"}
    assert errors_of(job("train", 4, 1, notes, 5)) == []
    assert errors_of(topology()) == []


def test_all_errors_come_at_once_with_their_paths() -> None:
    found = errors_of(
        job("train", 4, 1, {REQUIRED: BLOCK, PREFERRED: RACK, SEGMENT_LEVEL: RACK, SEGMENT_SIZE: "x"}, 5)
    )
    assert len(found) >= 2
    assert all(error.startswith("spec.template.metadata.annotations") for error in found)


def test_old_errors_do_not_block_other_changes() -> None:
    old = job("train", 4, 1, {SEGMENT_LEVEL: RACK, SEGMENT_SIZE: "0"}, 5)
    new = {**old, "spec": {**old["spec"], "suspend": True}}
    assert errors_of(old) != []
    assert errors_of(new, old) == []


def test_a_deleted_job_and_other_kinds_are_not_validated() -> None:
    assert errors_of(None, job("train", 4, 1, {}, 5)) == []
    assert errors_of({"kind": "ConfigMap", "metadata": {"name": "x"}}) == []


def test_levels_of_a_topology_are_unique_and_the_host_comes_last() -> None:
    body = topology()
    body["spec"]["levels"] = [
        {"nodeLabel": "kubernetes.io/hostname"},
        {"nodeLabel": RACK},
        {"nodeLabel": RACK},
    ]
    assert len(errors_of(body)) >= 2
