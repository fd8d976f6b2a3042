"""A configuration of ours: what it says takes effect, and everything wrong with it is told at once."""

from __future__ import annotations

from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from bayplan.assembly import settings_reference
from bayplan.cli.config.options import InvalidConfiguration, configure
from bayplan.configuration.settings import DEFAULTS, EMPTY, OPTIONS, Settings, UngatingSettings, read_settings
from bayplan.dialects.kai.grouper.defaults import GrouperSettings as Grouping
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.workloads import decode_workload
from bayplan.dialects.kueue.fields.counting import NO_TRANSFORMATIONS, Transformation
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.dialects.kueue.pods.node_health import HealthRules
from bayplan.model.profile import FairRule, LeaderRules, NodeChoice, Profile, Remainder, Strategy
from tests.support.queued_cluster import GPU, queued_workload

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"


def read(**sections: Any) -> Settings:
    body = Field({"apiVersion": "bayplan.dev/v1", "kind": "Configuration", **sections})
    found = read_settings(body)
    assert [str(error) for error in body.errors] == []
    return found


def problems(**sections: Any) -> list[str]:
    body = Field({"apiVersion": "bayplan.dev/v1", "kind": "Configuration", **sections})
    read_settings(body)
    return [str(error) for error in body.errors]


# ── good ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_not_said_has_its_default() -> None:
    assert read() == Settings() == DEFAULTS
    assert read(scheduling=None, resources={}).resources is NO_TRANSFORMATIONS
    assert read(scheduling={"reserve": None}) == DEFAULTS, "null is nothing"


def test_how_pods_are_grouped_can_be_chosen() -> None:
    given = {
        "queueLabel": "team",
        "nodePoolLabel": "a.io/pool",
        "defaults": "ns/by.kind",
        "knativeGangs": False,
    }
    assert read(grouper=given).grouper == Grouping("team", "a.io/pool", ("ns", "by.kind"), False)
    assert read(grouper={"defaults": None}).grouper == Grouping()
    wrong = problems(
        grouper={"queueLabel": "a b", "nodePoolLabel": 3, "defaults": "by.kind", "knative": True}
    )
    assert [one.partition(":")[0] for one in wrong] == [
        "grouper.knative", "grouper.queueLabel", "grouper.nodePoolLabel", "grouper.defaults",
    ]  # fmt: skip
    for bad in ("/", "", "a/", "/b", "a/b/c", "A/b", 7, ["a", "b"]):
        assert problems(grouper={"defaults": bad}), bad


def test_every_choice_of_a_profile_can_be_made() -> None:
    zones = {"zones"}  # has a part of its own
    assert {option.name for option in OPTIONS if option.part == "scheduling"} == {
        field.name for field in fields(Profile)
    } - zones
    found = read(
        scheduling={
            "strategies": {"required": "most_free", "preferred": "balanced", "unconstrained": "exact"},
            "exactSeconds": 0.5,
            "remainder": "leave_out",
            "leaderRules": "workers",
            "packSegments": False,
            "preferredNodeAffinity": True,
            "rulesBelowLeaf": False,
            "singleDomainSelector": True,
            "reserve": True,
            "recompute": False,
            "fairSharing": {"enabled": True, "rules": ["initial_share"]},
            "placementBackoff": {"firstSeconds": 1, "limitSeconds": 2},
            "nodeReplacementFailFast": False,
            "nodeReplacementBackoff": {"firstSeconds": 3, "limitSeconds": 3},
            "gangNodes": "spread",
            "preemption": False,
            "partialGangSeconds": 5,
            "backfillReservationSeconds": 0,
        },
        resources={"ignoreUncovered": True},
    )
    assert found.scheduling == Profile(
        required=Strategy.MOST_FREE,
        preferred=Strategy.BALANCED,
        unconstrained=Strategy.EXACT,
        exact_seconds=0.5,
        remainder=Remainder.LEAVE_OUT,
        leader_rules=LeaderRules.WORKERS,
        pack_segments=False,
        preferred_affinity=True,
        rules_below_leaf=False,
        by_selector_alone=True,
        reserve=True,
        recompute=False,
        fair_sharing=True,
        fair_rules=(FairRule.INITIAL_SHARE,),
        place_first=1,
        place_limit=2,
        replace_fast=False,
        replace_first=3,
        replace_limit=3,
        ignore_uncovered=True,
        gang_nodes=NodeChoice.SPREAD,
        preemption=False,
        heal_seconds=5,
        keep_after_seconds=0,
    )
    assert replace(found, scheduling=Profile()) == DEFAULTS


def test_each_scheduler_has_a_profile_of_its_own() -> None:
    assert read().profiles == {"bayplan": Profile()}
    found = read(
        scheduling={"exactSeconds": 2},
        schedulers={"dense": {}, "loose": {"gangNodes": "spread", "strategies": {"required": "exact"}}},
    )
    assert found.profiles == {
        "dense": Profile(exact_seconds=2),
        "loose": Profile(exact_seconds=2, gang_nodes=NodeChoice.SPREAD, required=Strategy.EXACT),
    }


def test_what_is_wrong_with_schedulers_is_told_with_its_path() -> None:
    assert problems(schedulers={}) == ["schedulers: must name at least one scheduler"]
    assert problems(schedulers={"A_": {}, "b": {"strategies": {"requird": "exact"}, "preemption": 1}}) == [
        "schedulers.A_: is not a valid schedulerName",
        "schedulers.b.strategies.requird: is not a known key; did you mean required?",
        "schedulers.b.preemption: 1: must be true or false, not a number",
    ]


def test_nodes_and_pods_have_their_times() -> None:
    assert read(ungating={"batchSeconds": 0}).ungating == UngatingSettings(0.0)
    flags = ("failWhenNotReady", "failWhenPodsEnd", "failWhenTainted", "replaceTogether")
    assert read(nodes={"notReadySeconds": 5, **dict.fromkeys(flags, False)}).nodes == HealthRules(
        not_ready_seconds=5, by_time=False, by_pods=False, by_taints=False, replace_together=False
    )


def test_pods_are_waited_for_only_if_asked_to() -> None:
    assert read().pods_ready_policy is None
    assert read(jobs={"waitForPodsReady": {"timeoutSeconds": 60}}).pods_ready_policy is None
    assert read(jobs={"waitForPodsReady": {"enabled": True}}).pods_ready_policy == PodsReadyPolicy()
    waiting = {
        "enabled": True,
        "timeoutSeconds": 60,
        "recoveryTimeoutSeconds": 30,
        "backoff": {"firstSeconds": 0, "limitSeconds": 10},
        "retriesMax": 3,
    }
    assert read(jobs={"waitForPodsReady": waiting}).pods_ready_policy == PodsReadyPolicy(60, 30, 0, 10, 3)


def test_resources_count_as_others() -> None:
    rules = [
        {"input": GPU, "strategy": "Replace", "outputs": {"memory": "5Gi", "cpu": "500m"}},
        {"input": "cpu", "outputs": {"example.com/credits": 2}},
    ]
    found = read(resources={"transformations": rules, "excludePrefixes": ["example.com/"]}).resources
    assert found.transformations == (
        Transformation(GPU, {"memory": Fraction(5 * 2**30), "cpu": Fraction(500)}, keep=False),
        Transformation("cpu", {"example.com/credits": Fraction(2, 1000)}),
    )
    assert found.ignored == ("example.com/",)
    (ask,) = decode_workload(Field(queued_workload("a", 1, 2)), found).requests  # 2 GPUs and 8 CPUs
    assert ask.per_pod == {"memory": 10 * 2**30, "cpu": 9000, "example.com/credits": 16}


def test_outputs_are_multiplied_by_another_resource_if_that_is_asked_for() -> None:
    rule = {"input": GPU, "multiplyBy": "cpu", "outputs": {"example.com/credits": 3}}
    found = read(resources={"transformations": [rule]}).resources
    (both,) = decode_workload(Field(queued_workload("a", 1, 2)), found).requests
    assert both.per_pod == {"cpu": 8000, GPU: 2, "example.com/credits": 2 * 8 * 3}
    other = read(resources={"transformations": [{**rule, "multiplyBy": "memory"}]}).resources
    (alone,) = decode_workload(Field(queued_workload("a", 1, 2)), other).requests
    assert alone.per_pod["example.com/credits"] == 2 * 3


def test_what_is_excluded_is_not_transformed_and_an_allowance_takes_from_outputs_only() -> None:
    rules = [
        {"input": GPU, "outputs": {"example.com/credits": 5}},
        {"input": "cpu", "outputs": {"example.com/credits": -1, "memory": -1}},
    ]
    found = read(resources={"transformations": rules}).resources
    (ask,) = decode_workload(Field(queued_workload("a", 1, 2)), found).requests
    assert ask.per_pod == {"cpu": 8000, GPU: 2, "example.com/credits": 2 * 5 - 8, "memory": 0}
    excluded = read(resources={"transformations": rules, "excludePrefixes": ["nvidia.com/"]}).resources
    (ask,) = decode_workload(Field(queued_workload("a", 1, 2)), excluded).requests
    assert ask.per_pod == {"cpu": 8000, "example.com/credits": 0, "memory": 0}


# ── bad ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sections", "problem"),
    [
        ({"schedulin": {}}, "schedulin: is not a known key; did you mean scheduling?"),
        (
            {"colour": "red"},
            "colour: is not a known key; known keys are apiVersion, kind, metadata, scheduling, resources, "
            "jobs, ",
        ),
        ({"scheduling": []}, "scheduling: a list of 0: must be a mapping, not a list"),
        (
            {"scheduling": {"Reserve": True}},
            "scheduling.Reserve: is not a known key; did you mean reserve?",
        ),
        (
            {"scheduling": {"strategies": {"requird": "best_fit"}}},
            "scheduling.strategies.requird: is not a known key; did you mean required?",
        ),
        (
            {"scheduling": {"strategies": {"required": "BestFit"}}},
            'scheduling.strategies.required: "BestFit": must be best_fit, most_free, least_free, pack_racks, '
            "balanced or exact; did you mean best_fit?",
        ),
        (
            {"scheduling": {"remainder": "drop"}},
            'scheduling.remainder: "drop": must be last_segment or leave_out',
        ),
        ({"scheduling": {"remainder": 7}}, "scheduling.remainder: 7: must be text, not a number"),
        ({"scheduling": {"reserve": "yes"}}, 'scheduling.reserve: "yes": must be true or false, not text'),
        (
            {"scheduling": {"exactSeconds": 0}},
            "scheduling.exactSeconds: 0: must be a number of seconds above 0",
        ),
        (
            {"scheduling": {"exactSeconds": float("nan")}},
            "scheduling.exactSeconds: nan: must be a number of seconds above 0",
        ),
        (
            {"scheduling": {"exactSeconds": "5s"}},
            'scheduling.exactSeconds: "5s": must be a number of seconds, not text',
        ),
        (
            {"scheduling": {"exactSeconds": True}},
            "scheduling.exactSeconds: true: must be a number of seconds, not true or false",
        ),
        (
            {"ungating": {"batchSeconds": -1}},
            "ungating.batchSeconds: -1: must be a number of seconds of at least 0",
        ),
        (
            {"scheduling": {"placementBackoff": {"firstSeconds": 400}}},
            "scheduling.placementBackoff.firstSeconds: 400.0: must not be more than limitSeconds, "
            "which is 300",
        ),
        (
            {"jobs": {"waitForPodsReady": {"backoff": {"limitSeconds": 10}}}},
            "jobs.waitForPodsReady.backoff.firstSeconds: 60.0: must not be more than limitSeconds, which is",
        ),
        (
            {"jobs": {"waitForPodsReady": {"retriesMax": -1}}},
            "jobs.waitForPodsReady.retriesMax: -1: must not be less than 0",
        ),
        (
            {"scheduling": {"fairSharing": True}},
            "scheduling.fairSharing: true: must be a mapping, not true or false",
        ),
        (
            {"scheduling": {"fairSharing": {"rules": ["initial_share", "final_share"]}}},
            "scheduling.fairSharing.rules: must be [final_share, initial_share] or [final_share] or "
            "[initial_share]",
        ),
        (
            {"scheduling": {"fairSharing": {"rules": []}}},
            "scheduling.fairSharing.rules: must be [final_share, ",
        ),
        (
            {"scheduling": {"fairSharing": {"rules": ["final"]}}},
            'scheduling.fairSharing.rules[0]: "final": must be final_share or initial_share',
        ),
        (
            {"scheduling": {"fairSharing": {"rules": "final_share"}}},
            'scheduling.fairSharing.rules: "final_share": must be a list, not text',
        ),
        (
            {"resources": {"excludePrefixes": [""]}},
            'resources.excludePrefixes[0]: "": must not be empty: it would match every resource',
        ),
        ({"resources": {"excludePrefixes": [5]}}, "resources.excludePrefixes[0]: 5: must be text"),
        (
            {"resources": {"transformations": [{"outputs": {}}]}},
            "resources.transformations[0].input: must name a resource",
        ),
        (
            {"resources": {"transformations": [{"input": "cpu"}, {"input": "cpu"}]}},
            'resources.transformations[1].input: "cpu": is transformed more than once',
        ),
        (
            {"resources": {"transformations": [{"input": "cpu", "strategy": "Drop"}]}},
            'resources.transformations[0].strategy: "Drop": must be Retain or Replace',
        ),
        (
            {"resources": {"transformations": [{"input": "cpu", "output": {}}]}},
            "resources.transformations[0].output: is not a known key; did you mean outputs?",
        ),
        (
            {"resources": {"transformations": [{"input": "cpu", "outputs": {"memory": "5GB"}}]}},
            'resources.transformations[0].outputs.memory: "5GB": must be a quantity',
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_path(sections: dict[str, Any], problem: str) -> None:
    (found,) = problems(**sections)
    assert found.startswith(problem)


def test_everything_wrong_is_told_at_once_and_nothing_is_used() -> None:
    found = problems(
        scheduling={"reserve": True, "recompute": 1, "strategy": "exact"},
        resources={"ignoreUncovered": "no"},
        nope={},
    )
    assert [line.partition(":")[0] for line in found] == [
        "nope", "scheduling.strategy", "scheduling.recompute", "resources.ignoreUncovered",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty: there is no object in it"),
        ("a: [", "is not YAML"),
        ("just text", "must be an object, not text"),
        ("kind: Configuration", "apiVersion: must be bayplan.dev/v1, or config.kueue.x-k8s.io/v1beta2 or "),
        ("apiVersion: bayplan.dev/v2\nkind: Configuration", 'apiVersion: "bayplan.dev/v2": must be '),
        ("apiVersion: bayplan.dev/v1\nkind: Config", 'kind: "Config": must be Configuration'),
        (f"{EMPTY}---\n{EMPTY}", "contains 2 objects; a configuration is a single object"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_configuration(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    with pytest.raises(InvalidConfiguration) as refused:
        configure(str(path))
    assert len(refused.value.problems) == 1 and problem in refused.value.message
    assert refused.value.message.startswith(str(path))


def test_files_that_cannot_be_read() -> None:
    for name, why in (("nowhere.yaml", "there is no such file"), ("-", "not read from standard input")):
        with pytest.raises(InvalidConfiguration, match=why):
            configure(name)


# ── the reference ──────────────────────────────────────────────────────────────────────────────────


def test_the_reference_is_up_to_date() -> None:
    again = f"write it again: {settings_reference.COMMAND}"
    written = {path.name: path.read_text(encoding="utf-8") for path in REFERENCE.glob("configuration.*")}
    assert written == {
        settings_reference.PAGE: settings_reference.page(),
        settings_reference.EXAMPLE: settings_reference.example(),
    }, again


def test_the_example_has_every_option_at_its_default(tmp_path: Path) -> None:
    assert configure(str(REFERENCE / settings_reference.EXAMPLE)).settings.scheduling == Profile()
    body = Field(yaml.safe_load(settings_reference.example()))
    for option in OPTIONS:
        field = body.at(*option.keys)
        assert field.value == option.of(DEFAULTS) or option.form.read(field) == option.of(DEFAULTS), (
            option.path
        )
        assert option.keys[-1] in body.at(*option.keys[:-1]).value, option.path  # type: ignore[operator]
    settings_reference.write(tmp_path / "reference")
    assert sorted(path.name for path in (tmp_path / "reference").iterdir()) == [
        settings_reference.PAGE, settings_reference.EXAMPLE,
    ]  # fmt: skip


def test_the_snippets_of_the_page_can_be_read() -> None:
    snippets = settings_reference.page().split("```yaml\n")[1:]
    for snippet in snippets:
        read(**yaml.safe_load(snippet.partition("```")[0]) | {"kind": "Configuration"})


@pytest.mark.parametrize("value", [10**400, float("inf"), 1e300])
def test_a_time_without_end_is_told(value: float) -> None:
    (found,) = problems(ungating={"batchSeconds": value})
    assert found.endswith("must be at most 100000000000 seconds")
