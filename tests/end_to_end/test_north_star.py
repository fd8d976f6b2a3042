"""The eight requirements of the north star on a real control plane, where `bayplan run` schedules.

That each can fail is shown in memory (tests/gangs): the scenes are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.conformance.gang_steps import dialect_of
from tests.conformance.gang_steps_objects import Dialect
from tests.end_to_end.gang_stage import Real, served
from tests.gangs.north_star import HEAL_SECONDS, REQUIREMENTS, problems
from tools.controlplane.plan import DEFAULT_KUBE

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

DIALECT = Dialect(dialect_of(f"v{os.environ.get('KUBE') or DEFAULT_KUBE}"))


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = f"scheduling: {{partialGangSeconds: {HEAL_SECONDS}}}"
    with served(cluster, tmp_path_factory.mktemp("gangs"), settings):
        yield cluster


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_north_star(site: Cluster, name: str) -> None:
    stage = Real(site, DIALECT)
    try:
        assert problems(stage, REQUIREMENTS[name]) == []
    finally:
        stage.clear()
