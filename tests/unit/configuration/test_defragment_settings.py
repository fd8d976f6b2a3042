"""The section `defragmentation` has the defaults of the policy that it configures."""

from __future__ import annotations

from pathlib import Path

from bayplan.cli.live.state import ClusterTarget
from bayplan.cli.running.defragment_standing import standing_defragmentation
from bayplan.cli.running.defragment_steps import StepSettings
from bayplan.configuration.defragment_settings import DefragmentSettings
from bayplan.configuration.settings import read_settings
from bayplan.dialects.kube.fields.reader import Field
from bayplan.runtime.core.clock import VirtualClock
from bayplan.scheduling.defragment.cost import CostRules
from bayplan.scheduling.defragment.policy import DefragmentPolicy

TARGET = ClusterTarget(Path("none"), None, None, VirtualClock())


def test_the_defaults_are_those_of_the_policy() -> None:
    made = standing_defragmentation(TARGET, DefragmentSettings(), "plan", print)
    assert (made.policy, made.costs, made.settings) == (
        DefragmentPolicy(), CostRules(), StepSettings("plan")
    )  # fmt: skip


def test_every_option_reaches_the_policy() -> None:
    body = Field(
        {
            "defragmentation": {
                "everySeconds": 1, "waitSeconds": 2, "againAfterSeconds": 3, "leastRunSeconds": 4,
                "gainRatio": 0.5, "movesPerHour": 6, "gpuHoursPerDay": 7.5, "assumedCheckpointSeconds": 8,
                "timeoutSeconds": 9,
            }
        }
    )  # fmt: skip
    limits = read_settings(body).defragmentation
    assert not body.errors
    made = standing_defragmentation(TARGET, limits, "plan", print)
    assert limits.every_seconds == 1.0
    assert made.policy == DefragmentPolicy(2.0, 3.0, 6, 7.5, 0.5, 4.0)
    assert (made.costs, made.settings) == (CostRules(assumed_checkpoint=8), StepSettings("plan", 9.0))


def test_limits_that_make_no_sense_are_refused() -> None:
    body = Field({"defragmentation": {"gainRatio": 0, "gpuHoursPerDay": -1, "movesPerHour": True}})
    read_settings(body)
    assert sorted(str(one) for one in body.errors) == [
        "defragmentation.gainRatio: 0: must be a number above 0",
        "defragmentation.gpuHoursPerDay: -1: must be a number of at least 0",
        "defragmentation.movesPerHour: true: must be a whole number, not true or false",
    ]
