"""Deletion: immediately, after a grace period, or when the last finalizer is removed."""

from __future__ import annotations

from typing import Any

from bayplan.backends.embedded.api import scalars
from bayplan.backends.embedded.api.admission_hooks import DELETE, Review
from bayplan.backends.embedded.api.options import Deletion, WriteTarget
from bayplan.backends.embedded.api.resource import Resource, outward
from bayplan.backends.embedded.api.status import failed_precondition, forbidden, not_found, success
from bayplan.backends.embedded.storage import custom_resources
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.owner_gc import FOREGROUND, ORPHAN

Object = dict[str, Any]


_ORPHANED_PODS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
    "them or set propagationPolicy=Orphan to suppress this warning"
)
_KEPT_NAMESPACES = ("default", "kube-system", "kube-public")


def delete(store: ObjectStorage, target: WriteTarget, how: Deletion) -> Object:
    """Remove an object or mark it; the answer is the object or a Status."""
    resource, options = target.resource, target.options
    item = store.collection_of(resource).objects.get(target.key)
    if item is None:
        raise not_found(resource, target.name)
    _check_preconditions(resource, item, how)
    _ask_hooks(store, target, item)
    propagation = how.propagation
    if not propagation and resource.type == "Job":  # as it was before owners were collected
        propagation = "Orphan"
        options.warnings.append(_ORPHANED_PODS)
    finalizers = _finalizers(item, propagation)
    grace = _grace(resource, item, how)
    if item["metadata"].get("deletionTimestamp"):
        return _again(store, target, item, finalizers, grace)
    if resource.type == "CustomResourceDefinition":
        return _marked_or_gone(store, target, custom_resources.marked(store, item))
    waits = _is_namespace(resource)
    if waits and target.name in _KEPT_NAMESPACES:
        raise forbidden(resource, target.name, "this namespace may not be deleted")
    if grace is None and not finalizers and not waits:
        if not options.dry_run:
            store.drop(resource, target.key)
        return _answer(resource, item)
    marked = _marked(store, item, finalizers, grace or 0)
    if waits:
        marked["status"] = {**marked.get("status", {}), "phase": "Terminating"}
        del marked["metadata"]["deletionGracePeriodSeconds"]
    if options.dry_run:
        return marked
    return _marked_or_gone(store, target, marked)


def is_due(resource: Resource, item: Object) -> bool:
    """Whether a terminating object has neither finalizers nor a grace period left."""
    metadata = item["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if _is_namespace(resource):
        return not item.get("spec", {}).get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _is_namespace(resource: Resource) -> bool:
    return resource.plural == "namespaces" and not resource.group


def _check_preconditions(resource: Resource, item: Object, how: Deletion) -> None:
    metadata = item["metadata"]
    if how.uid and how.uid != metadata["uid"]:
        message = (
            f"the UID in the precondition ({how.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise failed_precondition(resource, metadata["name"], message)
    if how.version and how.version != metadata["resourceVersion"]:
        message = (
            f"the ResourceVersion in the precondition ({how.version}) does not match the ResourceVersion in "
            f"record ({metadata['resourceVersion']}). The object might have been modified"
        )
        raise failed_precondition(resource, metadata["name"], message)


def _ask_hooks(store: ObjectStorage, target: WriteTarget, item: Object) -> None:
    resource, warnings = target.resource, target.options.warnings
    place = (resource.group, resource.plural, "")
    if not any(store.admission.named(mutating, DELETE, *place) for mutating in (True, False)):
        return
    review = Review(
        DELETE,
        resource.group,
        resource.version,
        resource.plural,
        "",
        target.namespace,
        target.name,
        None,
        outward(resource, item),
        target.options.dry_run,
        store.user,
    )
    store.admission.mutate(review, warnings)
    store.admission.validate(review, warnings)


def _finalizers(item: Object, propagation: str) -> list[str]:
    finalizers = list(item["metadata"].get("finalizers") or ())
    if not propagation:
        return finalizers
    finalizers = [one for one in finalizers if one not in (FOREGROUND, ORPHAN)]
    wanted = {"Foreground": FOREGROUND, "Orphan": ORPHAN}.get(propagation)
    return [*finalizers, wanted] if wanted else finalizers


def _grace(resource: Resource, item: Object, how: Deletion) -> int | None:
    """Seconds of grace; None for kinds that know none. Only pods do."""
    if resource.plural != "pods" or resource.group:
        return None
    spec, phase = item.get("spec", {}), item.get("status", {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    grace = spec.get("terminationGracePeriodSeconds", 0) if how.grace is None else how.grace
    return 1 if grace < 0 else int(grace)


def _marked(store: ObjectStorage, item: Object, finalizers: list[str], grace: int) -> Object:
    metadata = dict(item["metadata"])
    metadata["deletionTimestamp"] = scalars.at(store.now() + grace)
    metadata["deletionGracePeriodSeconds"] = grace
    if metadata.get("generation"):
        metadata["generation"] += 1
    _set_finalizers(metadata, finalizers)
    return {**item, "metadata": metadata}


def _again(
    store: ObjectStorage, target: WriteTarget, item: Object, finalizers: list[str], grace: int | None
) -> Object:
    """Delete a terminating object again: only a shorter grace period or other finalizers change it."""
    metadata = dict(item["metadata"])
    left = metadata.get("deletionGracePeriodSeconds") or 0
    if grace is not None and grace < left:
        metadata["deletionGracePeriodSeconds"] = grace
        metadata["deletionTimestamp"] = scalars.at(store.now() + grace)
    _set_finalizers(metadata, finalizers)
    if metadata == item["metadata"] or target.options.dry_run:
        return item
    return _marked_or_gone(store, target, {**item, "metadata": metadata})


def _marked_or_gone(store: ObjectStorage, target: WriteTarget, marked: Object) -> Object:
    """Store the deletion mark; remove the object unless finalizers or a grace period hold it back."""
    store.put(target.resource, target.key, marked)
    if is_due(target.resource, marked):
        return _answer(target.resource, store.drop(target.resource, target.key))
    return marked


def _set_finalizers(metadata: Object, finalizers: list[str]) -> None:
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _answer(resource: Resource, item: Object) -> Object:
    if resource.returns_deleted:
        return item
    metadata = item["metadata"]
    details = {"name": metadata["name"], "group": resource.group, "kind": resource.plural}
    details["uid"] = metadata["uid"]
    return success({key: value for key, value in details.items() if value})
