"""The eight requirements of the north star, in memory, through the real loop; and that each can fail."""

from __future__ import annotations

import pytest

from bayplan.dialects.kube.gang_api.gates import ALL_GATES, VERSIONS
from tests.conformance.gang_steps_objects import Dialect
from tests.conformance.gang_steps_stage import Embedded
from tests.gangs.north_star import REQUIREMENTS, problems, with_everything

every_version = pytest.mark.parametrize("version", VERSIONS)
every_requirement = pytest.mark.parametrize("name", REQUIREMENTS)


@every_version
@every_requirement
def test_north_star(name: str, version: str) -> None:
    stage = Embedded(Dialect(version), ALL_GATES, with_everything)
    assert problems(stage, REQUIREMENTS[name]) == []


@every_version
@every_requirement
def test_north_star_can_fail(name: str, version: str) -> None:
    stage = Embedded(Dialect(version), ALL_GATES, REQUIREMENTS[name].without)
    assert problems(stage, REQUIREMENTS[name]) != []
