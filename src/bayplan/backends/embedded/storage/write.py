"""Create, update, patch and apply: decode, default, admit, validate and store, as an API server does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bayplan.backends.embedded.api import metadata as meta
from bayplan.backends.embedded.api import scalars
from bayplan.backends.embedded.api.admission_hooks import CREATE, UPDATE, Review
from bayplan.backends.embedded.api.decoding import UnreadableBody, copied
from bayplan.backends.embedded.api.options import Options, WriteTarget
from bayplan.backends.embedded.api.resource import Resource, inward, key_of, outward
from bayplan.backends.embedded.api.status import (
    StatusError,
    already_exists,
    bad_request,
    conflict,
    invalid,
    not_found,
    quote,
    terminating,
    wrong,
)
from bayplan.backends.embedded.patching import apply as patches
from bayplan.backends.embedded.storage.interface import ObjectStorage
from bayplan.backends.embedded.storage.kind_hooks import KindHookRegistry

Object = dict[str, Any]

_GENERATE_TRIES = 8
_OTHER_NAMESPACE = "the namespace of the provided object does not match the namespace sent on the request"
_SET_BY_SERVER = (
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "generation",
    "managedFields",
)


class Writable(ObjectStorage, Protocol):
    """The interface of the store for writes."""

    uid: Callable[[], str]
    suffix: Callable[[], str]  # random, for generated names
    behaviours: KindHookRegistry
    applied: dict[str, dict[tuple[str, str], Object]]  # by uid: what each applier last applied


def create(store: Writable, target: WriteTarget, body: Mapping[str, Any]) -> Object:
    """Create an object; returns it in the storage version."""
    resource, options = target.resource, target.options
    item = read(resource, body, options)
    target = WriteTarget(resource, _namespace(store, target, item), "", "", options)
    behaviour = store.behaviours.of(resource)
    behaviour.default(item)
    item = _mutated(store, target, CREATE, item, None)
    metadata = item["metadata"]
    if metadata.get("resourceVersion"):
        raise StatusError(500, "resourceVersion should not be set on objects to be created", "")
    for key in _SET_BY_SERVER:
        metadata.pop(key, None)
    metadata["uid"] = store.uid()
    metadata["creationTimestamp"] = scalars.at(store.now())
    if not resource.namespaced:
        metadata.pop("namespace", None)
    if resource.generation:
        metadata["generation"] = 1
    if resource.custom and "status" in resource.subresources:
        item.pop("status", None)
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = _generated(store, target, metadata["generateName"])
    target = WriteTarget(resource, target.namespace, metadata.get("name", ""), "", options)
    behaviour.create(store, item)
    problems = meta.check(item, resource) + behaviour.check(item, None)
    if problems:
        raise invalid(resource, target.name, problems)
    options.warnings += behaviour.warn(item)
    behaviour.admit(store, item)
    _validate(store, target, CREATE, item, None)
    if target.key in store.collection_of(resource).objects:
        raise already_exists(resource, target.name)
    kept = inward(resource, item)
    return kept if options.dry_run else store.put(resource, target.key, kept)


def update(store: Writable, target: WriteTarget, body: Mapping[str, Any]) -> Object:
    """Replace an object or a part of it."""
    resource, name = target.resource, target.name
    item = read(resource, _of_interest(target, body), target.options)
    metadata = item["metadata"]
    if metadata.get("name") and metadata["name"] != name:
        raise _misaddressed(metadata["name"], name)
    if resource.namespaced and metadata.get("namespace", target.namespace) != target.namespace:
        raise bad_request(_OTHER_NAMESPACE)
    kept = _existing(store, target)
    old = outward(resource, kept)
    uid = old["metadata"]["uid"]
    if metadata.get("uid") and metadata["uid"] != uid:
        raise conflict(resource, name, other_uid(target, metadata["uid"], uid))
    if (resource.custom or resource.conditional) and not metadata.get("resourceVersion"):
        message = "must be specified for an update"
        raise invalid(resource, name, [wrong("metadata.resourceVersion", 0, message)], resource.plural)
    return _change(store, target, kept, item)


def patch(store: Writable, target: WriteTarget, patch: Any, form: str) -> Object:
    """Change parts of an object."""
    kept = _existing(store, target)
    old = outward(target.resource, kept)
    item = _read_patched(target, patches.patched(target.resource, old, patch, form), old)
    if item["metadata"].get("name") != target.name:
        raise _misaddressed(item["metadata"].get("name", ""), target.name)
    return _change(store, target, kept, item)


def apply(store: Writable, target: WriteTarget, body: Mapping[str, Any]) -> Object:
    """Merge an applied configuration, and remove the fields that only this manager applied before."""
    resource, who = target.resource, (target.options.manager, target.subresource)
    kept = store.collection_of(resource).objects.get(target.key)
    if kept is not None:
        wishes = dict(store.applied.get(kept["metadata"]["uid"], {}))
        before = wishes.pop(who, {})
        merged = patches.applied(resource, outward(resource, kept), before, dict(body), wishes.values())
        made = _change(store, target, kept, read(resource, merged, target.options))
    elif target.subresource:
        raise not_found(resource, target.name)
    else:
        named = {**(body.get("metadata") or {}), "name": target.name}
        made = create(store, target, {**body, "metadata": named})
    if not target.options.dry_run:
        part = patches.applied_part(resource, outward(resource, made), dict(body))
        store.applied.setdefault(made["metadata"]["uid"], {})[who] = copied(part)
    return made


def _read_patched(target: WriteTarget, body: Object, old: Object) -> Object:
    """Decode a patched object; an object that cannot be decoded means an invalid patch.

    What a patch of the status leaves alone was decoded before, and is taken from the old object later on.
    """
    if target.subresource == "status":
        parts = ("apiVersion", "kind", "metadata", "status")
        body = {
            key: value
            for key, value in body.items()
            if key in parts or key not in old or value is not old[key]
        }
    try:
        return read(target.resource, _of_interest(target, body), target.options)
    except StatusError as refusal:
        why = refusal.message.partition(": ")[2]
        if why.startswith(("strict decoding error", "json: cannot unmarshal")):
            problem = wrong("patch", "the object after the patch", why)
            cause = {"reason": problem.reason, "message": problem.message, "field": problem.field}
            message = f' "" is invalid: patch: {problem.message}'
            raise StatusError(422, message, None, {"causes": [cause]}) from None
        raise


def _of_interest(target: WriteTarget, body: Any) -> Any:
    """In a write of the status only the status is decoded; unknown fields elsewhere do not matter."""
    of_status = target.resource.custom and target.subresource == "status"
    if not of_status or target.options.validation in ("Strict", "Warn") or not isinstance(body, Mapping):
        return body
    return {key: body[key] for key in ("apiVersion", "kind", "metadata", "status") if key in body}


def read(resource: Resource, body: Any, options: Options) -> Object:
    """Decode a body; unknown fields are dropped, reported as warnings, or rejected."""
    if not isinstance(body, Mapping):
        message = (
            f"the object provided is unrecognized (must be of type {resource.kind}): it is no JSON object"
        )
        raise bad_request(message)
    kind, version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
    if (kind, version) != (resource.kind, resource.api_version):
        raise _other_kind(resource, kind, version)
    unknown: list[str] = []
    message = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}'
    try:
        item = resource.read(body, unknown)
    except UnreadableBody as error:
        raise bad_request(f"{message}: {error}") from None
    if unknown:
        sentences = [f"unknown field {quote(field)}" for field in unknown]
        if options.validation == "Strict":
            raise bad_request(f"{message}: strict decoding error: {', '.join(sentences)}")
        if options.validation == "Warn":
            options.warnings += sentences
    return item


def other_uid(target: WriteTarget, asked: str, found: str) -> str:
    """The message for a uid precondition that does not hold."""
    return (
        f"StorageError: invalid object, Code: 4, Key: /registry/{target.resource.plural}/{target.key}, "
        f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, "
        f"UID in object meta: {found}"
    )


def _change(store: Writable, target: WriteTarget, kept: Object, item: Object) -> Object:
    """Validate and store the change of an object: the common part of update and patch."""
    resource, subresource = target.resource, target.subresource
    behaviour = store.behaviours.of(resource)
    old = outward(resource, kept)
    before = old["metadata"]
    if item["metadata"].get("resourceVersion") not in (None, "", before["resourceVersion"]):
        raise conflict(resource, target.name)
    _carry_over(resource, item["metadata"], before)
    _take_part(resource, item, old, subresource)
    if subresource != "status":  # what is not the status is the old object's own
        behaviour.default(item)
    item = _mutated(store, target, UPDATE, item, old)
    metadata = item["metadata"]
    behaviour.update(store, item, old, subresource)
    if resource.generation and _differs(resource, item, old):
        metadata["generation"] = before.get("generation", 0) + 1
    problems = meta.check_update(item, old)
    if metadata != before:
        problems += meta.check(item, resource)
    problems += behaviour.check_status(item, old) if subresource == "status" else behaviour.check(item, old)
    if problems:
        raise invalid(resource, target.name, problems)
    _validate(store, target, UPDATE, item, old)
    if item == old:
        return kept
    new = inward(resource, item)
    if target.options.dry_run:
        return new
    return store.put_or_drop(resource, target.key, new)


def _carry_over(resource: Resource, metadata: Object, before: Object) -> None:
    """What an update need not repeat, and what it cannot set."""
    metadata["resourceVersion"] = before["resourceVersion"]
    for key in ("name", "uid", "creationTimestamp"):
        if not metadata.get(key):
            metadata[key] = before[key]
    if resource.namespaced:
        metadata.setdefault("namespace", before["namespace"])
    for key in ("generation", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if key in before:
            metadata[key] = before[key]
        else:
            metadata.pop(key, None)
    metadata.pop("selfLink", None)
    metadata.pop("managedFields", None)


def _take_part(resource: Resource, item: Object, old: Object, subresource: str) -> None:
    """An update of the whole leaves the status alone; an update of the status, everything else."""
    if "status" not in resource.subresources:
        return
    if not subresource:
        if "status" in old:
            item["status"] = old["status"]
        else:
            item.pop("status", None)
        return
    if subresource != "status":
        return
    for key in [key for key in item if key not in ("metadata", "status")]:
        del item[key]
    for key, value in old.items():
        if key not in ("metadata", "status"):
            item[key] = value
    if resource.custom:
        item["metadata"] = dict(old["metadata"])


def _differs(resource: Resource, item: Object, old: Object) -> bool:
    """Whether what is wanted has changed: anything but metadata and status."""
    status_apart = "status" in resource.subresources or not resource.custom
    apart = {"metadata", "status"} if status_apart else {"metadata"}
    return any(item.get(key) != old.get(key) for key in item.keys() | old.keys() if key not in apart)


def _namespace(store: Writable, target: WriteTarget, item: Object) -> str:
    """The namespace of a new object; it must exist and not be terminating."""
    metadata, asked = item["metadata"], target.namespace
    if not target.resource.namespaced:
        return ""
    given = metadata.get("namespace", "")
    if given and asked and given != asked:
        raise bad_request(_OTHER_NAMESPACE)
    asked = asked or given
    if not asked:
        raise bad_request("an empty namespace may not be set during creation")
    metadata["namespace"] = asked
    kind = store.resources.find("", "v1", "namespaces")
    found = store.collection_of(kind).objects.get(asked)
    if found is None:
        raise not_found(kind, asked)
    if found["metadata"].get("deletionTimestamp"):
        raise terminating(target.resource, metadata.get("name", ""), asked)
    return asked


def _generated(store: Writable, target: WriteTarget, prefix: str) -> str:
    resource, objects = target.resource, store.collection_of(target.resource).objects
    for _ in range(_GENERATE_TRIES):
        name = meta.generated_name(prefix, store.suffix())
        if key_of(resource, target.namespace, name) not in objects:
            return name
    message = "already exists, the server was not able to generate a unique name for the object"
    refusal = already_exists(resource, name)
    refusal.message = f"{resource.qualified} {quote(name)} {message}"
    raise refusal


def _existing(store: Writable, target: WriteTarget) -> Object:
    found = store.collection_of(target.resource).objects.get(target.key)
    if found is None:
        raise not_found(target.resource, target.name)
    return found


def _mutated(
    store: Writable, target: WriteTarget, operation: str, item: Object, old: Object | None
) -> Object:
    if not _is_reviewed(store, target, operation, mutating=True):
        return item
    review = _review(store, target, operation, item, old)
    changed = store.admission.mutate(review, target.options.warnings)
    if changed is None or changed is item:
        return item
    item = read(target.resource, changed, target.options)
    store.behaviours.of(target.resource).default(item)
    return item


def _validate(store: Writable, target: WriteTarget, operation: str, item: Object, old: Object | None) -> None:
    if _is_reviewed(store, target, operation, mutating=False):
        store.admission.validate(_review(store, target, operation, item, old), target.options.warnings)


def _is_reviewed(store: Writable, target: WriteTarget, operation: str, *, mutating: bool) -> bool:
    resource = target.resource
    place = (resource.group, resource.plural, target.subresource)
    return bool(store.admission.named(mutating, operation, *place))


def _review(store: Writable, target: WriteTarget, operation: str, item: Object, old: Object | None) -> Review:
    resource = target.resource
    return Review(
        operation,
        resource.group,
        resource.version,
        resource.plural,
        target.subresource,
        target.namespace,
        item["metadata"].get("name", ""),
        item,
        old,
        target.options.dry_run,
        store.user,
    )


def _misaddressed(given: str, asked: str) -> StatusError:
    if not given:
        message = f"the name of the object ({asked} based on URL) was undeterminable: name must be provided"
        return bad_request(message)
    return bad_request(f"the name of the object ({given}) does not match the name on the URL ({asked})")


def _other_kind(resource: Resource, kind: str, api_version: str) -> StatusError:
    if api_version != resource.api_version:
        expected = f"does not match the expected API version ({resource.api_version})"
        return bad_request(f"the API version in the data ({api_version}) {expected}")
    version = api_version.rpartition("/")[2]
    return bad_request(
        f'{kind} in version "{version}" cannot be handled as a {resource.kind}: '
        f"this is where objects of {resource.api_version} {resource.kind} are sent"
    )
