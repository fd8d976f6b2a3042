"""Reads a live cluster and tells of each object of another scheduler what Bayplan makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from bayplan.backends.conversion import convert
from bayplan.backends.remote.backend import RemoteBackend
from bayplan.cli.live.scheduled_state import schedulers_of
from bayplan.cli.live.state import OLDER, pages
from bayplan.cli.migration.object_rules import (
    FRACTIONS,
    KIND_RULES,
    SCHEDULERS,
    Carries,
    KindRule,
    Object,
    Remarks,
)
from bayplan.configuration.kueue_import import GROUP as CONFIGURATION_GROUP
from bayplan.configuration.kueue_import import read_kueue
from bayplan.configuration.settings import Settings
from bayplan.dialects.api import Kind
from bayplan.dialects.errors import Forbidden, NotServed
from bayplan.dialects.jobs.kinds import KINDS, parts
from bayplan.dialects.kube.fields.bounded_yaml import UnreadableYAML, bounded_yaml
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.conversion.versions import CONVERSIONS
from bayplan.dialects.kueue.names.annotations import QUEUE
from bayplan.dialects.kueue.names.api_kinds import GROUP as KUEUE_GROUP
from bayplan.dialects.registry import REVIEWED_AS, reviews
from bayplan.dialects.reviews import Reviewed

CONFIG_MAPS = Kind("", "v1", "ConfigMap", "configmaps")
SYSTEM_NAMESPACES = ("kueue-system", "kube-system")
SCHEDULER_CONFIGURATION = "KubeSchedulerConfiguration"
STAYS = "is left to the scheduler {name}; what its pods use counts"
QUEUED = "waits in queue {queue}"
GANG = "starts as a gang of the scheduler {name}"
TEXTS_MAX = 5  # of one object


@dataclass(frozen=True, slots=True)
class MigrationFinding:
    """What Bayplan makes of one object."""

    family: str
    kind: str
    namespace: str
    name: str
    carries: Carries
    remarks: tuple[str, ...] = ()


@dataclass(slots=True)
class Survey:
    """All findings, and the kinds that may not be listed."""

    findings: list[MigrationFinding] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)


class _Reading:
    """One reading of a cluster."""

    def __init__(self, backend: RemoteBackend, settings: Settings) -> None:
        self.backend, self.settings = backend, settings
        self.survey = Survey()
        self.reviewed: dict[tuple[str, str], list[Reviewed]] = {}
        for one in reviews():
            self.reviewed.setdefault((one.group, one.resource), []).append(one)

    def listed(self, kind: Kind, namespace: str = "") -> list[Object]:
        """All objects of a kind, in the version that rules are written for; none if it is not served."""
        try:
            found = [one for page in pages(self.backend, kind, namespace) for one in page]
        except Forbidden:
            self.survey.unread.append(kind.plural)
            return []
        except NotServed:
            if kind.group != KUEUE_GROUP or kind.version == OLDER:
                return []
            older = self.listed(replace(kind, version=OLDER), namespace)
            return [convert(one, kind.api_version) for one in older] if kind.kind in CONVERSIONS else older
        return [{"apiVersion": kind.api_version, "kind": kind.kind, **one} for one in found]

    def refusals(self, kind: Kind, obj: Object) -> Remarks:
        """What our webhooks would refuse if the object were created now."""
        if kind.version != REVIEWED_AS.get(kind.group, kind.version):
            return
        for reviewed in self.reviewed.get((kind.group, kind.plural), ()):
            if "CREATE" not in reviewed.operations:
                continue
            for mutate in reviewed.mutate:
                obj = mutate(obj, None)
            for validate in reviewed.validate:
                for error in validate(obj, None):
                    yield Carries.NOT, f"would be refused: {error}"

    def add(self, family: str, kind: Kind, obj: Object, remarks: Iterable[tuple[Carries, str]]) -> None:
        meta, found = obj.get("metadata") or {}, list(remarks)
        order = list(Carries)
        worst = max((carries for carries, _ in found), key=order.index, default=Carries.SAME)
        texts = tuple(dict.fromkeys(text for _, text in found))[:TEXTS_MAX]
        name = str(meta.get("name", ""))
        self.survey.findings.append(
            MigrationFinding(family, kind.kind, str(meta.get("namespace") or ""), name, worst, texts)
        )

    # ── objects ────────────────────────────────────────────────────────────────────────────────────

    def read(self) -> Survey:
        for rule in KIND_RULES:
            for obj in self.listed(rule.kind):
                self.add(rule.family, rule.kind, obj, self._judged(rule, obj))
        for entry in KINDS.values():
            for obj in self.listed(entry.resource):
                if not _is_owned(obj):
                    self._job(entry.resource, obj)
        for namespace in SYSTEM_NAMESPACES:
            for obj in self.listed(CONFIG_MAPS, namespace):
                self._configuration(obj)
        order = list(Carries)[::-1]
        self.survey.findings.sort(
            key=lambda one: (one.family, order.index(one.carries), one.kind, one.namespace, one.name)
        )
        return self.survey

    def _judged(self, rule: KindRule, obj: Object) -> Remarks:
        yield from rule.rule(obj)
        if rule.reviewed:
            yield from self.refusals(rule.kind, obj)

    def _job(self, kind: Kind, obj: Object) -> None:
        """A job, or pods by themselves: by their queue, else by the scheduler that they name."""
        labels = (obj.get("metadata") or {}).get("labels") or {}
        remarks = list(self._fractions(obj))
        if queue := labels.get(QUEUE):
            remarks += [*self.refusals(kind, obj), (Carries.SAME, QUEUED.format(queue=queue))]
            self.add("Kueue", kind, obj, remarks)
            return
        for name in schedulers_of(obj) or [""]:
            if name in self.settings.profiles:
                text = GANG.format(name=name)
                self.add("Bayplan", kind, obj, [*remarks, *self.refusals(kind, obj), (Carries.SAME, text)])
                return
            family, carries, text = SCHEDULERS.get(
                name, ("other", Carries.SAME, STAYS.format(name=name or "-"))
            )
            self.add(family, kind, obj, [*remarks, (carries, text)])
            return

    def _fractions(self, obj: Object) -> Remarks:
        for part in parts(Field(obj)):
            notes = part.template.at("metadata", "annotations")
            for name in FRACTIONS:
                if notes.at(name).present:
                    yield Carries.NOT, f"asks for a part of a GPU ({name}); pods take whole devices"

    # ── configurations ─────────────────────────────────────────────────────────────────────────────

    def _configuration(self, obj: Object) -> None:
        for text in (obj.get("data") or {}).values():
            if CONFIGURATION_GROUP in text:
                self.add("Kueue", CONFIG_MAPS, obj, _kueue_remarks(_loaded(text)))
            elif SCHEDULER_CONFIGURATION in text:
                self.add("kube-scheduler", CONFIG_MAPS, obj, _scheduler_remarks(_loaded(text)))


def survey(backend: RemoteBackend, settings: Settings) -> Survey:
    """Read everything; nothing is written."""
    return _Reading(backend, settings).read()


def _is_owned(obj: Object) -> bool:
    return any(one.get("controller") for one in (obj.get("metadata") or {}).get("ownerReferences") or ())


def _loaded(text: str) -> Object:
    try:
        found = bounded_yaml(text)
    except UnreadableYAML:
        return {}
    return found if isinstance(found, dict) else {}


def _kueue_remarks(body: Object) -> Remarks:
    """What `--config` of Bayplan makes of the configuration of a Kueue manager."""
    read = Field(body)
    _, unused = read_kueue(read)
    yield Carries.SAME, "`bayplan run --config` takes this file"
    for error in read.errors:
        yield Carries.NOT, f"is not accepted: {error}"
    for path in unused:
        yield Carries.DIFFERENT, f"{path} is not used"


def _scheduler_remarks(body: Object) -> Remarks:
    for profile in body.get("profiles") or ():
        name = profile.get("schedulerName") or "default-scheduler"
        yield Carries.SAME, f"the profile {name} stays with kube-scheduler"
        if profile.get("plugins") or profile.get("pluginConfig"):
            yield (
                Carries.DIFFERENT,
                f"plugins of the profile {name} have no effect on pods that Bayplan binds",
            )
    if body.get("extenders"):
        yield Carries.NOT, "extenders are not called for pods that Bayplan binds"


def sorted_families(findings: Iterable[MigrationFinding]) -> Iterator[str]:
    """The families that objects belong to, each once."""
    yield from dict.fromkeys(one.family for one in findings)
