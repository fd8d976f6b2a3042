"""The configuration of a Kueue manager as ours: gates and sections that mean something here, and the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bayplan.cli.config.options import Configured, configure
from bayplan.configuration.kueue_import import ALWAYS_ON, GATES, read_kueue
from bayplan.configuration.settings import DEFAULTS, Settings
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.counting import CounterSource, DeviceClassMapping
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.model.profile import FairRule, Profile, Strategy

NEWER, OLDER = "config.kueue.x-k8s.io/v1beta2", "config.kueue.x-k8s.io/v1beta1"
FINAL, INITIAL = "LessThanOrEqualToFinalShare", "LessThanInitialShare"

AS_SHIPPED = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {healthProbeBindAddress: ":8081"}
metrics: {bindAddress: ":8443"}
webhook: {port: 9443}
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io}
controller: {groupKindConcurrency: {Job.batch: 5}}
clientConnection: {qps: 300, burst: 500}
integrations: {frameworks: [batch/job, pod]}
"""


def read(version: str = NEWER, **sections: Any) -> tuple[Settings, list[str]]:
    body = Field({"apiVersion": version, "kind": "Configuration", **sections})
    found = read_kueue(body)
    assert [str(error) for error in body.errors] == []
    return found


def problem(version: str = NEWER, **sections: Any) -> str:
    body = Field({"apiVersion": version, "kind": "Configuration", **sections})
    read_kueue(body)
    (error,) = body.errors
    return str(error)


def gates(**states: bool) -> Profile:
    settings, unused = read(featureGates=states)
    assert unused == []
    return settings.scheduling


def test_the_file_that_is_shipped_changes_nothing_and_is_told_about_once(tmp_path: Path) -> None:
    path = tmp_path / "controller_manager_config.yaml"
    path.write_text(AS_SHIPPED)
    expected = (
        "clientConnection", "controller", "health", "integrations", "leaderElection", "metrics", "webhook",
    )  # fmt: skip
    assert configure(str(path)) == Configured(DEFAULTS, expected)


def test_strategies_follow_the_gates() -> None:
    assert gates() == Profile()
    assert gates(TASProfileMixed=True) == Profile(unconstrained=Strategy.LEAST_FREE)
    assert gates(TASProfileMixed=False) == Profile(unconstrained=Strategy.BEST_FIT)
    assert gates(TASBalancedPlacement=True) == Profile(preferred=Strategy.BALANCED)
    assert gates(TASProfileBestFit=True) == Profile(unconstrained=Strategy.BEST_FIT)
    least, most = Strategy.LEAST_FREE, Strategy.MOST_FREE
    assert gates(TASProfileLeastFreeCapacity=True) == Profile(
        required=least, preferred=least, unconstrained=least
    )
    assert gates(TASProfileMostFreeCapacity=True, TASProfileMixed=False) == Profile(
        required=most, preferred=most, unconstrained=most
    )


def test_other_gates_are_fields_too() -> None:
    assert gates(TASRespectNodeAffinityPreferred=True).preferred_affinity
    assert not gates(TASRecomputeAssignmentWithinSchedulingCycle=False).recompute
    assert not gates(TASFailedNodeReplacementFailFast=False).replace_fast
    assert not gates(UnadmittedWorkloadsObservability=False).detailed_reasons


def test_every_gate_takes_effect_or_is_what_we_do() -> None:
    for name in GATES:
        states = {(read(featureGates={name: on})[0]) for on in (True, False)}
        assert len(states) == 2 or name in ("TASProfileBestFit",), name


def test_gates_without_a_meaning_here_are_listed() -> None:
    _, unused = read(featureGates={"MultiKueue": True, "FromTheFuture": False, "TASProfileMixed": True})
    assert unused == ["featureGates.FromTheFuture", "featureGates.MultiKueue"]
    assert read(featureGates=dict.fromkeys(ALWAYS_ON, True)) == (DEFAULTS, [])
    _, unused = read(featureGates={"PartialAdmission": False})
    assert unused == ["featureGates.PartialAdmission"], "it cannot be switched off"


def test_fair_sharing_is_on_by_being_there_in_the_newer_version() -> None:
    settings, _ = read(fairSharing={"preemptionStrategies": [INITIAL]})
    assert settings.scheduling == Profile(fair_sharing=True, fair_rules=(FairRule.INITIAL_SHARE,))
    settings, _ = read(fairSharing={"preemptionStrategies": [FINAL, INITIAL]})
    assert settings.scheduling == Profile(fair_sharing=True)


def test_fair_sharing_is_switched_on_in_the_older_version() -> None:
    assert read(OLDER, fairSharing={"enable": True})[0].scheduling == Profile(fair_sharing=True)
    assert read(OLDER, fairSharing={"enable": True, "preemptionStrategies": []})[0].scheduling.fair_sharing
    assert read(OLDER, fairSharing={"preemptionStrategies": [FINAL]})[0].scheduling == Profile(
        fair_rules=(FairRule.FINAL_SHARE,)
    )


def test_pods_are_waited_for_by_being_named_in_the_newer_version() -> None:
    requeuing = {"backoffLimitCount": 2, "backoffBaseSeconds": 5, "backoffMaxSeconds": 50}
    waiting = {"timeout": "1h0m30s", "recoveryTimeout": "1.5m", "requeuingStrategy": requeuing}
    settings, unused = read(waitForPodsReady=waiting)
    assert settings.pods_ready_policy == PodsReadyPolicy(3630, 90, 5, 50, 2) and unused == []
    settings, _ = read(waitForPodsReady={})
    assert settings.pods_ready_policy == PodsReadyPolicy(1800, 1800)
    settings, _ = read(waitForPodsReady={"timeout": "5m", "recoveryTimeout": "0s"})
    assert settings.pods_ready_policy == PodsReadyPolicy(300, None)
    settings, unused = read(waitForPodsReady={}, featureGates={"DisableWaitForPodsReady": True})
    assert settings.pods_ready_policy is None and unused == []


def test_pods_are_waited_for_if_told_to_in_the_older_version() -> None:
    settings, unused = read(OLDER, waitForPodsReady={"timeout": "5m"})
    assert settings.pods_ready_policy is None and unused == []
    settings, unused = read(OLDER, waitForPodsReady={"enable": True})
    assert settings.pods_ready_policy == PodsReadyPolicy(300, 300)
    assert unused == ["waitForPodsReady.blockAdmission"], "which was the default there"
    assert read(OLDER, waitForPodsReady={"enable": True, "blockAdmission": False})[1] == []


def test_what_waiting_for_pods_cannot_do_here_is_listed() -> None:
    _, unused = read(
        waitForPodsReady={"blockAdmission": True, "requeuingStrategy": {"timestamp": "Creation"}}
    )
    assert unused == ["waitForPodsReady.blockAdmission", "waitForPodsReady.requeuingStrategy.timestamp"]


def counter(name: str) -> dict[str, Any]:
    selector = {"cel": {"expression": "true"}}
    return {"counter": {"name": name, "driver": "mig.example.com", "deviceSelector": selector}}


def test_resources() -> None:
    rule = {"input": "nvidia.com/mig-1g.5gb", "strategy": "Replace", "outputs": {"memory": "5Gi"}}
    settings, unused = read(
        resources={
            "excludeResourcePrefixes": ["networking.example.com/"],
            "transformations": [rule],
            "quotaCheckStrategy": "IgnoreUndeclared",
            "deviceClassMappings": [
                {"name": "example.com/gpus", "deviceClassNames": ["gpu.example.com", "big.example.com"]},
                {
                    "name": "example.com/slices",
                    "deviceClassNames": ["mig.example.com"],
                    "sources": [counter("slices")],
                },
                {
                    "name": "example.com/memory",
                    "deviceClassNames": ["mig.example.com"],
                    "sources": [counter("memory")],
                },
                {
                    "name": "example.com/bandwidth",
                    "deviceClassNames": ["nic.example.com"],
                    "sources": [{"capacity": {}}],
                },
            ],
        }
    )
    assert settings.resources.ignored == ("networking.example.com/",)
    assert [one.resource for one in settings.resources.transformations] == [rule["input"]]
    assert settings.scheduling == Profile(ignore_uncovered=True)
    assert unused == ["resources.deviceClassMappings[3].sources"]
    assert settings.resources.by_capacity == ("nic.example.com",)
    assert settings.resources.device_classes == (
        DeviceClassMapping("example.com/gpus", ("gpu.example.com", "big.example.com")),
        *(
            DeviceClassMapping(
                f"example.com/{name}", ("mig.example.com",), (CounterSource(name, "mig.example.com", "true"),)
            )
            for name in ("slices", "memory")
        ),
    )


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"fairSharng": {}}, "fairSharng: is not a known key; did you mean fairSharing?"),
        ({"featureGates": {"TASProfileMixed": "on"}}, 'featureGates.TASProfileMixed: "on": must be true or'),
        ({"featureGates": ["TASProfileMixed"]}, "featureGates: a list of 1: must be a mapping, not a list"),
        (
            {"featureGates": {"TASProfileMixed": True, "TASProfileBestFit": True}},
            "featureGates: only one of TASProfileMixed, TASProfileBestFit can be on",
        ),
        (
            {"waitForPodsReady": {"timeout": "5 minutes"}},
            'waitForPodsReady.timeout: "5 minutes": must be a duration such as 90s, 5m or 1h30m',
        ),
        ({"waitForPodsReady": {"timeout": 300}}, "waitForPodsReady.timeout: 300: must be text, not a number"),
        ({"waitForPodsReady": {"timeout": "-5m"}}, 'waitForPodsReady.timeout: "-5m": must be a duration'),
        ({"waitForPodsReady": {"enable": True}}, "waitForPodsReady.enable: is not a known key"),
        (
            {"waitForPodsReady": {"requeuingStrategy": {"backoffLimit": 3}}},
            "waitForPodsReady.requeuingStrategy.backoffLimit: is not a known key; did you mean ",
        ),
        (
            {"waitForPodsReady": {"requeuingStrategy": {"timestamp": "Now"}}},
            'waitForPodsReady.requeuingStrategy.timestamp: "Now": must be Eviction or Creation',
        ),
        ({"fairSharing": {}}, "fairSharing.preemptionStrategies: must be set"),
        ({"fairSharing": {"enable": True, "preemptionStrategies": [FINAL]}}, "fairSharing.enable: is not"),
        (
            {"fairSharing": {"preemptionStrategies": [INITIAL, FINAL]}},
            f"fairSharing.preemptionStrategies: must be [{FINAL}, {INITIAL}] or [{FINAL}] or [{INITIAL}]",
        ),
        (
            {"fairSharing": {"preemptionStrategies": ["LessThanFinalShare"]}},
            'fairSharing.preemptionStrategies[0]: "LessThanFinalShare": must be ',
        ),
        (
            {"resources": {"quotaCheckStrategy": "Ignore"}},
            'resources.quotaCheckStrategy: "Ignore": must be IgnoreUndeclared or BlockUndeclared',
        ),
        ({"resources": {"excludePrefixes": []}}, "resources.excludePrefixes: is not a known key; did you"),
        (
            {"resources": {"transformations": [{"input": "cpu"}, {"input": "cpu"}]}},
            'resources.transformations[1].input: "cpu": is transformed more than once',
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_path(sections: dict[str, Any], told: str) -> None:
    assert problem(**sections).startswith(told)
