"""The functions behind our webhooks, asked by a cluster in memory without any HTTP between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bayplan.backends.embedded.admission import Hook, Review, Verdict
from bayplan.runtime.reviews import Key, Registry

Decide = Callable[[Registry, Review], Verdict]


def hooks(registry: Registry) -> list[Hook]:
    """A hook for each resource that somebody looks at, under the name that it has in a real cluster."""
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


def hook_name(group: str, resource: str) -> str:
    """What the webhook for a resource is called."""
    return f"{resource.replace('/', '-')}.{group or 'core'}.bayplan.dev"


def _mutated(registry: Registry, review: Review) -> Verdict:
    if review.object is None:
        return Verdict()
    return Verdict(object=registry.mutated(_key(review), review.object, review.old))


def _validated(registry: Registry, review: Review) -> Verdict:
    errors = registry.problems(_key(review), review.object, review.old)
    return Verdict(not errors, "; ".join(str(error) for error in errors), 422 if errors else 200)


def _key(review: Review) -> Key:
    resource = f"{review.plural}/{review.subresource}" if review.subresource else review.plural
    return review.group, resource, review.operation
