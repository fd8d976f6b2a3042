"""Groups of groups on a real control plane: from 1.37 on they are scheduled; before, nobody misses them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from bayplan.dialects.kube.gang_api.gates import V1BETA1
from tests.conformance.gang_steps import dialect_of
from tests.conformance.gang_steps_objects import COMPOSITES, Dialect
from tests.end_to_end.gang_stage import Real, served
from tests.end_to_end.objects import eventually
from tests.gangs.composite_scene import Scene, two_groups_start_together_or_not_at_all
from tools.controlplane.plan import DEFAULT_KUBE

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

DIALECT = Dialect(dialect_of(f"v{os.environ.get('KUBE') or DEFAULT_KUBE}"))


def test_two_groups_start_together_or_the_api_is_waited_for_quietly(cluster: Cluster, tmp_path: Path) -> None:
    log = tmp_path / "run.log"

    def about() -> list[str]:
        return [line for line in log.read_text().splitlines() if COMPOSITES.plural in line]

    with served(cluster, tmp_path):
        if DIALECT.version != V1BETA1:
            eventually(lambda: bool(about()), "it is said what is not served")
            assert len(about()) == 1, about()
            return
        stage = Real(cluster, DIALECT)
        try:
            two_groups_start_together_or_not_at_all(Scene(stage))
        finally:
            stage.clear()
        assert about() == []
