"""The settings of Bayplan: every option of a configuration, with its path, format and meaning.

docs/reference/configuration.md and its example are generated from this table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.configuration.defragment_settings import ROWS as DEFRAGMENT_ROWS
from bayplan.configuration.defragment_settings import DefragmentSettings
from bayplan.configuration.fields import (
    CONFIG_MAP,
    COUNT,
    DEVICE_CLASSES,
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
from bayplan.dialects.kai.grouper.defaults import GrouperSettings
from bayplan.dialects.kube.fields.bounded_yaml import bounded_documents
from bayplan.dialects.kube.fields.name_rules import subdomain_problems
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.dialects.kueue.fields.counting import NO_TRANSFORMATIONS, Counting, UncountedDevices
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
from bayplan.state.cluster.numa_state import DEFAULT_NUMA_POLICY

VERSION = "bayplan.dev/v1"
KIND = "Configuration"
EMPTY = f"apiVersion: {VERSION}\nkind: {KIND}\n"
"""A configuration that leaves everything at its default."""


@dataclass(frozen=True, slots=True)
class UngatingSettings:
    """How the pods of admitted gangs are ungated."""

    batch_seconds: float = BATCH_SECONDS


@dataclass(frozen=True, slots=True)
class JobSettings:
    """How jobs are managed."""

    await_pods: bool = False  # evict gangs whose pods do not become ready in time


@dataclass(frozen=True, slots=True)
class SchedulerNames:
    """The scheduler names of Bayplan, each with the options that differ in its profile."""

    schedulers: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {SCHEDULER: {}}, hash=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, with their defaults."""

    scheduling: Profile = field(default_factory=Profile)
    resources: Counting = NO_TRANSFORMATIONS
    nodes: HealthRules = field(default_factory=HealthRules)
    ungating: UngatingSettings = field(default_factory=UngatingSettings)
    jobs: JobSettings = field(default_factory=JobSettings)
    pods_ready: PodsReadyPolicy = field(default_factory=PodsReadyPolicy)
    names: SchedulerNames = field(default_factory=SchedulerNames)
    zones: ZoneRules = field(default_factory=ZoneRules)
    numa_staleness: NumaStalenessPolicy = DEFAULT_NUMA_POLICY
    grouper: GrouperSettings = field(default_factory=GrouperSettings)
    defragmentation: DefragmentSettings = field(default_factory=DefragmentSettings)

    @property
    def profile(self) -> Profile:
        """The profile of admission, and the base of all scheduler profiles."""
        return replace(self.scheduling, zones=self.zones)

    @property
    def profiles(self) -> dict[str, Profile]:
        """The profile of each scheduler name."""
        return {name: replace(self.profile, **values) for name, values in self.names.schedulers.items()}

    @property
    def pods_ready_policy(self) -> PodsReadyPolicy | None:
        """The waitForPodsReady policy; None if it is disabled."""
        return self.pods_ready if self.jobs.await_pods else None

    @property
    def feature_switches(self) -> FeatureSwitches:
        """The feature switches for jobs."""
        return replace(
            RULES,
            selector_without_gate=self.scheduling.by_selector_alone,
            detailed_reasons=self.scheduling.detailed_reasons,
        )


DEFAULTS = Settings()


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its path in the file, the setting it sets, its format, and its meaning."""

    path: str
    part: str  # of Settings
    name: str  # of the field in that part
    form: ValueForm
    meaning: str

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self.path.split("."))

    def of(self, settings: Settings) -> Any:
        """The value of the option in the settings."""
        return getattr(getattr(settings, self.part), self.name)


def _schedulers(body: Field) -> dict[str, dict[str, Any]]:
    """For each name the options that differ from `scheduling`."""
    schedulers: dict[str, dict[str, Any]] = {}
    for name, own in body.entries():
        if subdomain_problems(name):
            own.error("is not a valid schedulerName", value=None)
        _reject_unknown(own, ("scheduling",))
        schedulers[name] = {
            option.name: option.form.read(written)
            for option in OPTIONS
            if option.keys[0] == "scheduling" and (written := own.at(*option.keys[1:])).present
        }
    if not schedulers:
        body.error("must name at least one scheduler", value=None)
    return schedulers


_STRATEGY = choice(Strategy)
_NAMES = ValueForm("scheduler names, each with the options of `scheduling` that differ", _schedulers)
_FAIR = fair_rules({rule.value: rule for rule in FairRule})


def _options(above: str, part: str, *rows: tuple[str, str, ValueForm, str]) -> Iterator[Option]:
    """Options below one path that set one part: the rest of the path, field, format, meaning."""
    for path, name, form, meaning in rows:
        yield Option(f"{above}.{path}", part, name, form, meaning)


OPTIONS = (
    *_options(
        "scheduling", "scheduling",
        ("strategies.required", "required", _STRATEGY,
         "how domains are chosen for pod sets that require one domain"),
        ("strategies.preferred", "preferred", _STRATEGY,
         "how domains are chosen for pod sets that prefer one domain"),
        ("strategies.unconstrained", "unconstrained", _STRATEGY,
         "how domains are chosen for pod sets without a topology request; `pack_racks` takes one host, else"
         " one rack, and keeps whole racks free"),
        ("exactSeconds", "exact_seconds", seconds(above_zero=True),
         "time limit of one search of the strategy `exact`"),
        ("decisionSeconds", "decision_seconds", seconds(above_zero=True),
         "time limit of the decision about one gang; after that the gang is rejected with the reasons found"
         " so far, and requeued"),
        ("remainder", "remainder", choice(Remainder),
         "what is done with pods that do not fill a whole segment"),
        ("leaderRules", "leader_rules", choice(LeaderRules),
         "whether the node selectors, tolerations and affinity of the leader or of the workers apply to the"
         " leader of a group"),
        ("packSegments", "pack_segments", FLAG,
         "whether pods are packed inside the domain of a segment, too"),
        ("preferredNodeAffinity", "preferred_affinity", FLAG,
         "whether preferred node affinity takes precedence over the strategy"),
        ("rulesBelowLeaf", "rules_below_leaf", FLAG,
         "whether node selectors, affinity and taints are also checked inside the lowest domains of"
         " topologies that do not end at the host"),
        ("bindingFilters", "binding_filters", FLAG,
         "whether queued gangs are admitted only on nodes where their pods can be bound: host ports, volumes,"
         " pod affinity and anti-affinity, and topology spread are checked at admission, too"),
        ("singleDomainSelector", "by_selector_alone", FLAG,
         "whether a pod set that fits in one domain gets a node selector for it, instead of a topology gate"
         " and a node selector for each pod"),
        ("reserve", "reserve", FLAG,
         "whether quota and domains are reserved for the first gang of a queue and of a topology that only"
         " waits for other gangs to end, so that later gangs do not use them up"),
        ("detailedReasons", "detailed_reasons", FLAG,
         "whether the condition QuotaReserved of a pending Workload has a reason such as `WaitingForQuota` or"
         " `TopologyPlacementFailed`; else `Pending`, `Inadmissible` or `Waiting`, as releases of Kueue write"
         " by default"),
        ("recompute", "recompute", FLAG,
         "whether a placement that an earlier gang of the same cycle invalidated is computed again at once"),
        ("fairSharing.enabled", "fair_sharing", FLAG,
         "whether the queues of a cohort are ordered, and preempted, by the share that they borrow"),
        ("fairSharing.rules", "fair_rules", _FAIR,
         "when a gang may preempt a gang of a queue with a higher share; the second rule is tried if the"
         " first finds no victims"),
        ("placementBackoff.firstSeconds", "place_first", seconds(above_zero=True),
         "time until the placement of a gang with reserved quota is retried; doubled each time"),
        ("placementBackoff.limitSeconds", "place_limit", seconds(above_zero=True),
         "longest backoff; a gang whose next backoff would be longer is evicted"),
        ("nodeReplacementFailFast", "replace_fast", FLAG,
         "whether a gang is evicted if the first attempt to replace its failed nodes fails"),
        ("nodeReplacementBackoff.firstSeconds", "replace_first", seconds(above_zero=True),
         "time until the replacement of failed nodes is retried, without fail-fast; doubled each time"),
        ("nodeReplacementBackoff.limitSeconds", "replace_limit", seconds(above_zero=True),
         "longest time between two attempts"),
        ("gangNodes", "gang_nodes", choice(NodeChoice),
         "whether the pods of a gang are packed on the fullest nodes, or so that whole racks of the first"
         " Topology stay free, or spread over many nodes"),
        ("preemption", "preemption", FLAG,
         "whether pods of lower priority are preempted for a gang or pod that does not fit otherwise"),
        ("queueActions", "preemption_means", several_of(PreemptionMeans),
         "the actions that free capacity for a pod group of a KAI queue, in the order they are tried"),
        ("partialGangSeconds", "heal_seconds", seconds(above_zero=True),
         "how long a gang that never reached its minimum may run partly before its running pods are deleted"),
        ("backfillReservationSeconds", "keep_after_seconds", seconds(),
         "how long the oldest gang is pending before capacity is reserved for it; 0 disables reservations"),
    ),
    *_options(
        "resources", "resources",
        ("transformations", "transformations", TRANSFORMATIONS,
         "resources that are counted as other resources in quota"),
        ("excludePrefixes", "ignored", PREFIXES,
         "prefixes of resources that are not counted in quota"),
        ("deviceClassMappings", "device_classes", DEVICE_CLASSES,
         "resources that devices of some classes count as in quota, for pods that get devices by claim"),
        ("uncountedDevices", "uncounted_devices", choice(UncountedDevices),
         "what becomes of a gang that claims devices which quota cannot count: classes that are not mapped,"
         " alternatives (`firstAvailable`), all devices of a node, admin access, and claims that pods name"
         " directly"),
    ),
    Option(
        "resources.ignoreUncovered", "scheduling", "ignore_uncovered", FLAG,
        "whether resources that a queue has no quota for are ignored; else a gang that requests them is not"
        " admitted",
    ),
    Option(
        "jobs.waitForPodsReady.enabled", "jobs", "await_pods", FLAG,
        "whether a gang whose pods do not become ready in time is evicted and requeued",
    ),
    *_options(
        "jobs.waitForPodsReady", "pods_ready",
        ("timeoutSeconds", "seconds", seconds(above_zero=True),
         "time from admission until all pods must be ready"),
        ("recoveryTimeoutSeconds", "recovery_seconds", seconds(above_zero=True),
         "time from the loss of a pod until all pods must be ready again; `null` is unlimited"),
        ("backoff.firstSeconds", "backoff_base_seconds", seconds(),
         "backoff before such a gang is admitted again; doubled each time"),
        ("backoff.limitSeconds", "backoff_max_seconds", seconds(), "longest backoff"),
        ("retriesMax", "retries_max", COUNT,
         "number of retries before the gang is deactivated; `null` is unlimited"),
    ),
    *_options(
        "nodes", "nodes",
        ("notReadySeconds", "not_ready_seconds", seconds(),
         "how long a node is NotReady before it counts as failed, even if its pods are reported as running"),
        ("failWhenNotReady", "by_time", FLAG,
         "whether a node that is NotReady for that long counts as failed"),
        ("failWhenPodsEnd", "by_pods", FLAG,
         "whether a NotReady node counts as failed as soon as no pod of the gang runs there; a tainted node"
         " then counts as failed only after that"),
        ("failWhenTainted", "by_taints", FLAG,
         "whether a cordoned node, or one with a taint that the gang does not tolerate, counts as failed"),
        ("replaceTogether", "replace_together", FLAG,
         "whether several failed nodes of a gang are replaced together; else a second one evicts the gang"),
    ),
    Option(
        "ungating.batchSeconds", "ungating", "batch_seconds", seconds(),
        "how long new pods of an admitted gang are collected before they are ungated",
    ),
    *_options(
        "zones", "zones",
        ("fit", "fit", choice(FitRule),
         "what must fit in one NUMA zone of a node with the policy single-numa-node: everything that the node"
         " pins, or each container without memory and huge pages"),
        ("sidecarsKeepZone", "sidecars_stay", FLAG,
         "whether sidecars keep the resources of their zone; else they count like other init containers"),
        ("score", "score", choice(ZoneScore), "how nodes are scored by their zones"),
        ("weights", "weights", WEIGHTS, "weights of resources in that score; the default is 1"),
    ),
    Option(
        "zones.hints", "scheduling", "zone_hints", FLAG,
        "whether pods get an annotation with the zones of their node that the scheduler assumed",
    ),
    Option(
        "zones.preemption", "numa_staleness", "simulate_evictions", FLAG,
        "whether preemption considers zones, on nodes that report which zones their pods use",
    ),
    *_options(
        "zones.staleReports", "numa_staleness",
        ("policy", "over_reserve", choice(OverReserve),
         "what is done about pods that a node's report does not include yet: nothing, skip the node until"
         " they are bound, or reserve their requests in every zone until the report includes them"),
        ("resyncSeconds", "period", seconds(), "time between two checks of nodes with stale reports"),
        ("foreignPods", "foreign_pods", some_of(Whose, Whose.AS_REPORTED),
         "which pods of other schedulers make a report stale until it includes them"),
        ("fingerprintPods", "counted", some_of(Whose, Whose.NONE),
         "which pods the fingerprint of a report includes"),
        ("fingerprintStartingPods", "count_starting", FLAG,
         "whether the fingerprint includes pods as soon as they are not pending; else only running pods"),
        ("trustPolicyChanges", "follow_settings", FLAG,
         "whether a report with another topology manager policy is trusted at once"),
    ),
    *_options(
        "grouper", "grouper",
        ("queueLabel", "queue_label", LABEL_KEY,
         "the label of jobs and pods with the queue of their pod group"),
        ("nodePoolLabel", "node_pool_label", LABEL_KEY,
         "the label of pods with their node pool, which is appended to the queue of the label `project`"),
        ("defaults", "defaults", CONFIG_MAP,
         "the ConfigMap with the default priority class and preemptibility of each kind of job"),
        ("knativeGangs", "knative_gangs", FLAG,
         "whether the pods of a Knative revision are a gang; else each pod is scheduled on its own"),
    ),
    *_options("defragmentation", "defragmentation", *DEFRAGMENT_ROWS),
    Option(
        "schedulers", "names", "schedulers", _NAMES,
        "the values of `schedulerName` that Bayplan schedules",
    ),
)  # fmt: skip

_BACKOFFS = (
    "scheduling.placementBackoff",
    "scheduling.nodeReplacementBackoff",
    "jobs.waitForPodsReady.backoff",
)


def read_settings(body: Field) -> Settings:
    """The settings in a Bayplan configuration. Only valid if the body has no errors afterwards."""
    _reject_unknown(body, ())
    changes: dict[str, dict[str, Any]] = {}
    for option in OPTIONS:
        written = body.at(*option.keys)
        if written.present:
            changes.setdefault(option.part, {})[option.name] = option.form.read(written)
    if body.errors:
        return DEFAULTS
    settings = merged(DEFAULTS, changes)
    by_path = {option.path: option for option in OPTIONS}
    for path in _BACKOFFS:
        value, limit = (by_path[f"{path}.{key}Seconds"].of(settings) for key in ("first", "limit"))
        if value > limit:
            where = body.derived(value, f"{path}.firstSeconds")
            where.error(f"must not be more than limitSeconds, which is {limit:g}")
    return settings


def merged(settings: Settings, changes: dict[str, dict[str, Any]]) -> Settings:
    """The settings with new values, by part and field."""
    return replace(
        settings, **{part: replace(getattr(settings, part), **values) for part, values in changes.items()}
    )


def sections(above: tuple[str, ...] = ()) -> dict[str, None]:
    """The keys below a path, in the order of the table."""
    size = len(above)
    return dict.fromkeys(option.keys[size] for option in OPTIONS if option.keys[:size] == above)


def _reject_unknown(here: Field, above: tuple[str, ...]) -> None:
    """Add an error for each unknown key below a path of the table."""
    known = sections(above)
    unknown_keys(here, known if above else ("apiVersion", "kind", "metadata", *known))
    for key in known:
        inner = (*above, key)
        if any(len(option.keys) > len(inner) and option.keys[: len(inner)] == inner for option in OPTIONS):
            _reject_unknown(here.at(key), inner)


def kind_defaults(text: str) -> tuple[str, str] | None:
    """The namespace and name of the ConfigMap with defaults by kind, if a valid configuration names one."""
    body: Any = next((one for _, one in bounded_documents(text)), {})
    return read_settings(Field({"grouper": body.get("grouper")})).grouper.defaults
