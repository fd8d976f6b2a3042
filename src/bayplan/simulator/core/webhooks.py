"""The functions behind our webhooks, asked by the store of a simulation as an API server would ask them."""

from __future__ import annotations

from bayplan.backends.embedded.api.admission_hooks import CREATE, UPDATE, Hook, HookResponse, Review
from bayplan.backends.embedded.storage.store import Store
from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.kueue.conversion.workload import GROUP
from bayplan.dialects.kueue.fields.defaulting import DEFAULTED, default
from bayplan.dialects.kueue.webhooks.job_defaults import default_written
from bayplan.dialects.kueue.webhooks.validate import VALIDATED, validate

JOBS = frozenset((kind.group, kind.plural) for kind in KINDS.values())
OURS = frozenset((GROUP, resource) for resource in DEFAULTED)


def ask_functions(store: Store) -> None:
    """Jobs that name a queue are held back, and what makes no sense is refused."""
    created = frozenset({CREATE})
    store.admission.register(Hook("jobs.bayplan.dev", _held_back, JOBS, created, mutating=True))
    store.admission.register(Hook("defaults.bayplan.dev", _defaulted, OURS, created, mutating=True))
    store.admission.register(
        Hook("rules.bayplan.dev", _checked, frozenset(VALIDATED), frozenset({CREATE, UPDATE}))
    )


def _held_back(review: Review) -> HookResponse:
    return HookResponse(object=None if review.object is None else default_written(review.object, review.old))


def _defaulted(review: Review) -> HookResponse:
    return HookResponse(object=None if review.object is None else default(review.object))


def _checked(review: Review) -> HookResponse:
    errors = validate(review.object, review.old)
    return HookResponse(not errors, "; ".join(str(error) for error in errors), 422 if errors else 200)
