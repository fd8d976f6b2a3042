"""What an administrator can decide: every option of a configuration, with its place, form and meaning.

docs/reference/configuration.md and its example are written from this table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.configuration.fields import (
    CONFIG_MAP,
    COUNT,
    FLAG,
    LABEL_KEY,
    PREFIXES,
    TRANSFORMATIONS,
    WEIGHTS,
    ValueForm,
    choice,
    fair_rules,
    seconds,
    several_of,
    some_of,
    unknown_keys,
)
from bayplan.dialects.kai.grouper.defaults import GrouperSettings as Grouping
from bayplan.dialects.kube.fields.bounded_yaml import bounded_documents
from bayplan.dialects.kube.fields.name_rules import subdomain_problems
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.dialects.kueue.decode.workloads import PLAIN, Counting
from bayplan.dialects.kueue.jobs.status import PodsReadyPolicy
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.dialects.kueue.pods.node_health import HealthRules
from bayplan.model.numa import FitRule, NumaStalenessPolicy, OverReserve, Whose, ZoneRules, ZoneScore
from bayplan.model.profile import (
    FairRule,
    LeaderRules,
    NodeChoice,
    PreemptionMeans,
    Profile,
    Remainder,
    Strategy,
)
from bayplan.runtime.controllers.ungating import BATCH_SECONDS
from bayplan.state.cluster.numa_state import USUAL_CARE

VERSION = "bayplan.dev/v1"
KIND = "Configuration"
EMPTY = f"apiVersion: {VERSION}\nkind: {KIND}\n"
"""A configuration that leaves everything at its default."""


@dataclass(frozen=True, slots=True)
class UngatingSettings:
    """How pods of admitted gangs are let go."""

    batch_seconds: float = BATCH_SECONDS


@dataclass(frozen=True, slots=True)
class JobSettings:
    """How jobs are looked after."""

    await_pods: bool = False  # until they are ready, and not for ever


@dataclass(frozen=True, slots=True)
class SchedulerNames:
    """The schedulers that we are, each with what differs in its profile."""

    schedulers: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {SCHEDULER: {}}, hash=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that was decided; what nobody decided has its default."""

    scheduling: Profile = field(default_factory=Profile)
    resources: Counting = PLAIN
    nodes: HealthRules = field(default_factory=HealthRules)
    ungating: UngatingSettings = field(default_factory=UngatingSettings)
    jobs: JobSettings = field(default_factory=JobSettings)
    patience: PodsReadyPolicy = field(default_factory=PodsReadyPolicy)
    names: SchedulerNames = field(default_factory=SchedulerNames)
    zones: ZoneRules = field(default_factory=ZoneRules)
    zone_care: NumaStalenessPolicy = USUAL_CARE
    grouper: Grouping = field(default_factory=Grouping)

    @property
    def profile(self) -> Profile:
        """What admission goes by, and every scheduler that we are unless more is said of it."""
        return replace(self.scheduling, zones=self.zones)

    @property
    def profiles(self) -> dict[str, Profile]:
        """The profile of each scheduler that we are."""
        return {name: replace(self.profile, **given) for name, given in self.names.schedulers.items()}

    @property
    def patience_with_pods(self) -> PodsReadyPolicy | None:
        """How long pods may take to get ready; None for as long as they like."""
        return self.patience if self.jobs.await_pods else None

    @property
    def rulebook(self) -> FeatureSwitches:
        """What is done to the pods of jobs that start."""
        return replace(RULES, selector_alone=self.scheduling.by_selector_alone)


DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Option:
    """One value that can be written: where in the file, where it goes, how it is written, what it does."""

    path: str
    part: str  # of Settings
    name: str  # of the field in that part
    form: ValueForm
    says: str

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.path.split("."))

    def of(self, settings: Settings) -> Any:
        """The value that settings have for it."""
        return getattr(getattr(settings, self.part), self.name)


def _schedulers(body: Field) -> dict[str, dict[str, Any]]:
    """For each name what differs from `scheduling`, written with the same words."""
    found: dict[str, dict[str, Any]] = {}
    for name, own in body.entries():
        if subdomain_problems(name):
            own.error("is no name that a pod could have in its schedulerName", value=None)
        _refuse_unknown(own, ("scheduling",))
        found[name] = {
            option.name: option.form.read(written)
            for option in OPTIONS
            if option.keys[0] == "scheduling" and (written := own.at(*option.keys[1:])).present
        }
    if not found:
        body.error("must name at least one scheduler", value=None)
    return found


_STRATEGY = choice(Strategy)
_NAMES = ValueForm("names, each with options of `scheduling` that differ for it", _schedulers)
_FAIR = fair_rules({rule.value: rule for rule in FairRule})


def _options(above: str, part: str, *rows: tuple[str, str, ValueForm, str]) -> Iterator[Option]:
    """Options below one path that go into one part: the rest of the path, field, form, meaning."""
    for path, name, form, says in rows:
        yield Option(f"{above}.{path}", part, name, form, says)


OPTIONS = (
    *_options(
        "scheduling", "scheduling",
        ("strategies.required", "required", _STRATEGY,
         "how domains are chosen for pod sets that must stay within one"),
        ("strategies.preferred", "preferred", _STRATEGY,
         "the same for pod sets that would like to stay within one"),
        ("strategies.unconstrained", "unconstrained", _STRATEGY,
         "the same for pod sets that may go anywhere"),
        ("exactSeconds", "exact_seconds", seconds(above_zero=True),
         "how long one search of the strategy `exact` may take"),
        ("decisionSeconds", "decision_seconds", seconds(above_zero=True),
         "how long a decision may go on about one gang; then the gang is refused with what was found so far,"
         " and tried again later"),
        ("remainder", "remainder", choice(Remainder),
         "what becomes of pods that do not fill a whole segment"),
        ("leaderRules", "leader_rules", choice(LeaderRules),
         "whose node selectors, tolerations and affinity decide where the leader of a group may go"),
        ("packSegments", "pack_segments", FLAG,
         "whether the fullest use comes first inside a segment's domain, too"),
        ("preferredNodeAffinity", "preferred_affinity", FLAG,
         "whether preferred node affinity outranks the strategy"),
        ("rulesBelowLeaf", "rules_below_leaf", FLAG,
         "whether node rules also count inside the lowest domains of topologies that do not end at the host"),
        ("selectorAlone", "by_selector_alone", FLAG,
         "whether a pod set that one domain holds is sent there by a node selector, not pod by pod"),
        ("reserve", "reserve", FLAG,
         "whether the first gang that lacks nothing but room keeps the domain it nearly fits"),
        ("recompute", "recompute", FLAG,
         "whether a place that an earlier gang of the same round took is looked for again at once"),
        ("fairSharing.enabled", "fair_sharing", FLAG,
         "whether queues of a cohort take turns, and yield, by their share of what they borrow"),
        ("fairSharing.rules", "fair_rules", _FAIR,
         "when a gang may displace one of a queue further above its share; the second is tried if the first"
         " does not do"),
        ("placeBackoff.firstSeconds", "place_first", seconds(above_zero=True),
         "until a place is sought again for a gang that has quota and no place; doubled each time"),
        ("placeBackoff.limitSeconds", "place_limit", seconds(above_zero=True),
         "a gang that would have to wait longer than that is evicted"),
        ("replaceFast", "replace_fast", FLAG,
         "whether a gang is evicted if the first attempt to replace its failed nodes finds none"),
        ("replaceBackoff.firstSeconds", "replace_first", seconds(above_zero=True),
         "until other nodes are sought again, if not evicted at once; doubled each time"),
        ("replaceBackoff.limitSeconds", "replace_limit", seconds(above_zero=True),
         "the longest time between two attempts"),
        ("gangNodes", "gang_nodes", choice(NodeChoice),
         "which of the nodes that fit are taken first for the pods of a gang"),
        ("preemption", "displace", FLAG,
         "whether pods of lower priority have to go where a gang or pod finds no room otherwise"),
        ("queueMeans", "fair_means", several_of(PreemptionMeans),
         "how room is made for a pod group of a queue that finds none, by what is tried first"),
        ("healSeconds", "heal_seconds", seconds(above_zero=True),
         "how long a gang that never had its minimum may run in part before what runs of it is taken back"),
        ("keepAfterSeconds", "keep_after_seconds", seconds(),
         "from when on room is kept free for the gang that waits longest; 0 is never"),
    ),
    *_options(
        "resources", "resources",
        ("transformations", "transformations", TRANSFORMATIONS, "resources that count as others in quota"),
        ("excludePrefixes", "ignored", PREFIXES,
         "resources whose names begin like this do not count in quota"),
    ),
    Option(
        "resources.ignoreUncovered", "scheduling", "ignore_uncovered", FLAG,
        "whether resources that a queue has no quota for are not counted; else they keep a gang out",
    ),
    Option(
        "jobs.waitForPodsReady.enabled", "jobs", "await_pods", FLAG,
        "whether a gang whose pods do not get ready in time is evicted, to be admitted again later",
    ),
    *_options(
        "jobs.waitForPodsReady", "patience",
        ("timeoutSeconds", "seconds", seconds(above_zero=True), "from admission until all pods are ready"),
        ("recoveryTimeoutSeconds", "recovery_seconds", seconds(above_zero=True),
         "from the loss of a pod until all are ready again; `null` is as long as it takes"),
        ("backoff.firstSeconds", "backoff_base_seconds", seconds(),
         "how long such a gang waits before it is admitted again; doubled each time"),
        ("backoff.limitSeconds", "backoff_max_seconds", seconds(), "the longest such wait"),
        ("retriesMax", "retries_max", COUNT,
         "how often it may try again before it is deactivated; `null` is without end"),
    ),
    *_options(
        "nodes", "nodes",
        ("notReadySeconds", "not_ready_seconds", seconds(),
         "how long a node is NotReady before it counts as failed, even if pods are said to run there"),
        ("failWhenNotReady", "by_time", FLAG, "whether a node that is NotReady for that long has failed"),
        ("failWhenPodsEnd", "by_pods", FLAG,
         "whether a NotReady node has failed once no pod of the gang runs there; taints wait for that, too"),
        ("failWhenTainted", "by_taints", FLAG,
         "whether taints that a gang does not tolerate, and cordons, are failures"),
        ("replaceTogether", "together", FLAG,
         "whether several failed nodes of a gang are replaced together; else the second one evicts it"),
    ),
    Option(
        "ungating.batchSeconds", "ungating", "batch_seconds", seconds(),
        "how long new pods of an admitted gang are gathered before they lose their gate",
    ),
    *_options(
        "zones", "zones",
        ("fit", "fit", choice(FitRule),
         "what has to lie in one zone of a node that insists on it: all that the node would pin, or the"
         " containers one by one without memory and huge pages"),
        ("sidecarsStay", "sidecars_stay", FLAG,
         "whether sidecars keep what they take of a zone; else they are looked at like other init"
         " containers"),
        ("score", "score", choice(ZoneScore), "which nodes are liked for their zones"),
        ("weights", "weights", WEIGHTS, "how much resources count in that; others count 1"),
    ),
    Option(
        "zones.hints", "scheduling", "zone_hints", FLAG,
        "whether pods are told, by an annotation, which zones of their node they were meant for",
    ),
    Option(
        "zones.preemption", "zone_care", "make_room", FLAG,
        "whether zones are thought through when pods have to go, where nodes report which zones they use",
    ),
    *_options(
        "zones.lateReports", "zone_care",
        ("caution", "caution", choice(OverReserve),
         "what is done about pods that a node's report cannot know yet: nothing, no further pod until they"
         " are bound, or their requests are taken from every zone until the report knows them"),
        ("periodSeconds", "period", seconds(), "between two looks at nodes in doubt"),
        ("strangers", "strangers", some_of(Whose, Whose.AS_REPORTED),
         "which pods of other schedulers cast doubt on a node until its report knows them"),
        ("counted", "counted", some_of(Whose, Whose.NONE), "which pods the fingerprint of a report counts"),
        ("starting", "starting", FLAG,
         "whether pods count in it as soon as they are no longer pending; else while they run"),
        ("heedSettings", "heed_settings", FLAG,
         "whether a node that aligns in another way now is believed at once"),
    ),
    *_options(
        "grouper", "grouper",
        ("queueLabel", "queue_label", LABEL_KEY,
         "the label of jobs and pods that names the queue of their pod group"),
        ("nodePoolLabel", "node_pool_label", LABEL_KEY,
         "the label of pods that names a node pool; it is added to the queue of a label `project`"),
        ("defaults", "defaults", CONFIG_MAP,
         "where priority class and preemptibility are found by kind, for jobs and pods that name none"),
        ("knativeGangs", "knative_gangs", FLAG,
         "whether the pods of a Knative revision start together; else each by itself"),
    ),
    Option(
        "schedulers", "names", "schedulers", _NAMES,
        "the values of `schedulerName` by which pods and jobs choose us",
    ),
)  # fmt: skip

_BACKOFFS = ("scheduling.placeBackoff", "scheduling.replaceBackoff", "jobs.waitForPodsReady.backoff")


def read_settings(body: Field) -> Settings:
    """Settings out of a configuration of our own. They mean nothing if the body has errors then."""
    _refuse_unknown(body, ())
    given: dict[str, dict[str, Any]] = {}
    for option in OPTIONS:
        written = body.at(*option.keys)
        if written.present:
            given.setdefault(option.part, {})[option.name] = option.form.read(written)
    if body.errors:
        return DEFAULTS
    found = merged(DEFAULTS, given)
    by_path = {option.path: option for option in OPTIONS}
    for path in _BACKOFFS:
        value, limit = (by_path[f"{path}.{key}Seconds"].of(found) for key in ("first", "limit"))
        if value > limit:
            where = body.derived(value, f"{path}.firstSeconds")
            where.error(f"must not be more than limitSeconds, which is {limit:g}")
    return found


def merged(settings: Settings, given: dict[str, dict[str, Any]]) -> Settings:
    """The settings with what was given, part by part."""
    return replace(
        settings, **{part: replace(getattr(settings, part), **values) for part, values in given.items()}
    )


def sections(above: tuple[str, ...] = ()) -> dict[str, None]:
    """The keys that may stand below a path, in the order of the table."""
    size = len(above)
    return dict.fromkeys(option.keys[size] for option in OPTIONS if option.keys[:size] == above)


def _refuse_unknown(here: Field, above: tuple[str, ...]) -> None:
    """Note keys that mean nothing in what stands at a path of the table."""
    known = sections(above)
    unknown_keys(here, known if above else ("apiVersion", "kind", "metadata", *known))
    for key in known:
        inner = (*above, key)
        if any(len(option.keys) > len(inner) and option.keys[: len(inner)] == inner for option in OPTIONS):
            _refuse_unknown(here.at(key), inner)


def kind_defaults(text: str) -> tuple[str, str] | None:
    """The ConfigMap with defaults by kind that a good configuration names: its namespace and name."""
    body: Any = next((one for _, one in bounded_documents(text)), {})
    return read_settings(Field({"grouper": body.get("grouper")})).grouper.defaults
