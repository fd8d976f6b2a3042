"""The webhook functions, registered with an in-memory cluster and called in process."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bayplan.assembly.manifests import InstallSettings, webhook_configurations
from bayplan.assembly.webhooks import hook_name, registry
from bayplan.backends.embedded.api.admission_hooks import Hook, HookResponse, Review
from bayplan.backends.embedded.schema.webhook_matching import matching
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.api import Kind
from bayplan.dialects.kai.grouper.join import PODS
from bayplan.dialects.kai.grouper.owner_kinds import BY_NAME
from bayplan.dialects.kueue.names.api_kinds import LOCAL_QUEUES, TOPOLOGIES
from bayplan.dialects.registry import REVIEWED_AS
from bayplan.dialects.reviews import LookUps
from bayplan.runtime.controllers.jobs.cache import CLASSES
from bayplan.runtime.webhooks.admission_review import Key, Object, Registry
from bayplan.runtime.webhooks.live_objects import CONTROLLERS

Decide = Callable[[Registry, Review], HookResponse]
DEFAULTS = InstallSettings()


def register_webhooks(store: Store) -> None:
    """Register all webhooks of Bayplan with a store."""

    def find(kind: str, namespace: str, name: str) -> object:
        return store.find(LOCAL_QUEUES, namespace, name) if kind == LOCAL_QUEUES.kind else None

    def owner(group: str, kind: str, namespace: str, name: str) -> Object | None:
        known = PODS if (group, kind) == ("", "Pod") else BY_NAME.get((group, kind))
        if known is None or (known.group, known.version, known.plural) not in store.resources.by_place:
            return None
        return store.find(known, namespace, name)

    def existing(kind: Kind, namespace: str, name: str) -> Object | None:
        known = (kind.group, kind.version, kind.plural) in store.resources.by_place
        return store.find(kind, namespace, name) if known else None

    def controller(group: str, kind: str, namespace: str, name: str) -> Object | None:
        known = CONTROLLERS.get((group, kind))
        return None if known is None else existing(known, namespace, name)

    def has_class(kind: str, name: str) -> bool:
        return any(existing(one, "", name) is not None for one in CLASSES if one.kind == kind)

    def levels() -> set[str]:
        """The levels of all topologies."""
        if (TOPOLOGIES.group, TOPOLOGIES.version, TOPOLOGIES.plural) not in store.resources.by_place:
            return set()
        listed = store.list(TOPOLOGIES).items
        return {level["nodeLabel"] for one in listed for level in one["spec"]["levels"]}

    for hook in configured_hooks(registry(LookUps(find, owner, levels, controller, has_class))):
        store.admission.register(hook)


def configured_hooks(registry: Registry, settings: InstallSettings = DEFAULTS) -> list[Hook]:
    """A hook for each webhook that `bayplan install` configures, called for the same writes."""
    hooks = []
    for configuration in webhook_configurations(settings):
        decide = _mutated if configuration["kind"] == "MutatingWebhookConfiguration" else _validated
        for webhook in configuration["webhooks"]:
            resources = {
                (group, resource)
                for rule in webhook["rules"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
            }
            operations = {operation for rule in webhook["rules"] for operation in rule["operations"]}
            hooks.append(
                Hook(
                    webhook["name"],
                    partial(decide, registry),
                    frozenset(resources),
                    frozenset(operations),
                    mutating=decide is _mutated,
                    matching=matching(webhook),
                )
            )
    return hooks


def hooks(registry: Registry) -> list[Hook]:
    """A hook for each resource, called for every write without match conditions."""
    operations_by_key: dict[tuple[str, str, Decide], set[str]] = {}
    for (group, resource, operation), handlers in registry.admission.items():
        if handlers.mutate:
            operations_by_key.setdefault((group, resource, _mutated), set()).add(operation)
        if handlers.validate:
            operations_by_key.setdefault((group, resource, _validated), set()).add(operation)
    return [
        Hook(
            hook_name(group, resource),
            partial(decide, registry),
            frozenset({(group, resource)}),
            frozenset(operations),
            mutating=decide is _mutated,
        )
        for (group, resource, decide), operations in operations_by_key.items()
    ]


def _mutated(registry: Registry, review: Review) -> HookResponse:
    if review.object is None:
        return HookResponse()
    wanted = registry.mutated(_key(review), *_in_reviewed_version(registry, review))
    return HookResponse(object=_as(review.object["apiVersion"], wanted, registry))


def _validated(registry: Registry, review: Review) -> HookResponse:
    new, old = _in_reviewed_version(registry, review)
    errors = registry.problems(_key(review), new, old)
    if errors:
        return HookResponse(False, "; ".join(str(error) for error in errors), 422)
    return HookResponse(code=200, warnings=tuple(registry.advice(_key(review), new)))


def _in_reviewed_version(registry: Registry, review: Review) -> tuple[Any, Object | None]:
    """The new and the old object in the version that the webhook functions expect."""
    version = REVIEWED_AS.get(review.group)
    if version is None:
        return review.object, review.old
    target = f"{review.group}/{version}"
    new, old = (one and _as(target, one, registry) for one in (review.object, review.old))
    return new, old


def _as(version: str, obj: Object, registry: Registry) -> Object:
    """The object in a version; kinds without a converter have the same fields in all versions."""
    if obj["apiVersion"] == version:
        return obj
    change = registry.conversion.get((version.partition("/")[0], obj["kind"]))
    return {**obj, "apiVersion": version} if change is None else change(obj, version)


def _key(review: Review) -> Key:
    resource = f"{review.plural}/{review.subresource}" if review.subresource else review.plural
    return review.group, resource, review.operation
