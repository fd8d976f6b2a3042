"""The functions behind our webhooks, asked by a cluster in memory without any HTTP between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bayplan.assembly.manifests import InstallSettings, webhook_configurations
from bayplan.assembly.webhooks import REVIEWED_AS, LookUps, hook_name, registry
from bayplan.backends.embedded.api.admission_hooks import Hook, HookResponse, Review
from bayplan.backends.embedded.schema.webhook_matching import matching
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.api import Kind
from bayplan.dialects.kai.grouper.join import PODS
from bayplan.dialects.kai.grouper.owner_kinds import BY_NAME
from bayplan.dialects.kueue.names.api_kinds import LOCAL_QUEUES, TOPOLOGIES
from bayplan.runtime.controllers.jobs.cache import CLASSES
from bayplan.runtime.webhooks.admission_review import Key, Object, Registry
from bayplan.runtime.webhooks.live_objects import CONTROLLERS

Decide = Callable[[Registry, Review], HookResponse]
DEFAULTS = InstallSettings()


def ask_our_functions(store: Store) -> None:
    """Have a store ask everybody who looks at what people write."""

    def find(kind: str, namespace: str, name: str) -> object:
        return store.find(LOCAL_QUEUES, namespace, name) if kind == LOCAL_QUEUES.kind else None

    def owner(group: str, kind: str, namespace: str, name: str) -> Object | None:
        known = PODS if (group, kind) == ("", "Pod") else BY_NAME.get((group, kind))
        if known is None or (known.group, known.version, known.plural) not in store.resources.by_place:
            return None
        return store.find(known, namespace, name)

    def there(kind: Kind, namespace: str, name: str) -> Object | None:
        known = (kind.group, kind.version, kind.plural) in store.resources.by_place
        return store.find(kind, namespace, name) if known else None

    def controller(group: str, kind: str, namespace: str, name: str) -> Object | None:
        known = CONTROLLERS.get((group, kind))
        return None if known is None else there(known, namespace, name)

    def has_class(kind: str, name: str) -> bool:
        return any(there(one, "", name) is not None for one in CLASSES if one.kind == kind)

    def levels() -> set[str]:
        """Of all topologies."""
        if (TOPOLOGIES.group, TOPOLOGIES.version, TOPOLOGIES.plural) not in store.resources.by_place:
            return set()
        listed = store.list(TOPOLOGIES).items
        return {level["nodeLabel"] for one in listed for level in one["spec"]["levels"]}

    for hook in configured_hooks(registry(LookUps(find, owner, levels, controller, has_class))):
        store.admission.register(hook)


def configured_hooks(registry: Registry, settings: InstallSettings = DEFAULTS) -> list[Hook]:
    """A hook for each webhook that `bayplan install` configures, asked about the same writes only."""
    found = []
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
            found.append(
                Hook(
                    webhook["name"],
                    partial(decide, registry),
                    frozenset(resources),
                    frozenset(operations),
                    mutating=decide is _mutated,
                    matching=matching(webhook),
                )
            )
    return found


def hooks(registry: Registry) -> list[Hook]:
    """A hook for each resource that somebody looks at, asked about every write, whoever it is for."""
    asked: dict[tuple[str, str, Decide], set[str]] = {}
    for (group, resource, operation), handlers in registry.admission.items():
        if handlers.mutate:
            asked.setdefault((group, resource, _mutated), set()).add(operation)
        if handlers.validate:
            asked.setdefault((group, resource, _validated), set()).add(operation)
    return [
        Hook(
            hook_name(group, resource),
            partial(decide, registry),
            frozenset({(group, resource)}),
            frozenset(operations),
            mutating=decide is _mutated,
        )
        for (group, resource, decide), operations in asked.items()
    ]


def _mutated(registry: Registry, review: Review) -> HookResponse:
    if review.object is None:
        return HookResponse()
    wanted = registry.mutated(_key(review), *_shown(registry, review))
    return HookResponse(object=_as(review.object["apiVersion"], wanted, registry))


def _validated(registry: Registry, review: Review) -> HookResponse:
    new, old = _shown(registry, review)
    errors = registry.problems(_key(review), new, old)
    if errors:
        return HookResponse(False, "; ".join(str(error) for error in errors), 422)
    return HookResponse(code=200, warnings=tuple(registry.advice(_key(review), new)))


def _shown(registry: Registry, review: Review) -> tuple[Any, Object | None]:
    """The new and the old object in the version that our functions see."""
    version = REVIEWED_AS.get(review.group)
    if version is None:
        return review.object, review.old
    target = f"{review.group}/{version}"
    new, old = (one and _as(target, one, registry) for one in (review.object, review.old))
    return new, old


def _as(version: str, obj: Object, registry: Registry) -> Object:
    """The object in a version; where nobody converts the kind, its versions are the same."""
    if obj["apiVersion"] == version:
        return obj
    change = registry.conversion.get((version.partition("/")[0], obj["kind"]))
    return {**obj, "apiVersion": version} if change is None else change(obj, version)


def _key(review: Review) -> Key:
    resource = f"{review.plural}/{review.subresource}" if review.subresource else review.plural
    return review.group, resource, review.operation
