"""The verbs of the HTTP API on a store: each request gives a response, or a watch to be streamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.backends.embedded.api.decoding import UnreadableBody, reader
from bayplan.backends.embedded.api.options import Deletion, Options
from bayplan.backends.embedded.api.paging import is_number, parse_version, version_message
from bayplan.backends.embedded.api.resource import Resource
from bayplan.backends.embedded.api.status import (
    StatusError,
    bad_request,
    method_not_allowed,
    unknown_resource,
    unsupported,
    unwanted,
    wrong_options,
)
from bayplan.backends.embedded.http import scale
from bayplan.backends.embedded.http.request import Call, RequestPath, shortened, wants_metadata, wants_table
from bayplan.backends.embedded.patching import apply
from bayplan.backends.embedded.storage.store import ListPage, Store
from bayplan.backends.embedded.storage.watch_log import Watch
from bayplan.backends.embedded.tables import rendering

Object = dict[str, Any]

_TYPE = ("apiVersion", "kind")
_NOT_HERE = {
    "log": "logs are not kept: pods here run no containers. See their events: kubectl describe pod NAME",
    "exec": "commands cannot be run: pods here run no containers",
    "attach": "nothing can be attached to: pods here run no containers",
    "portforward": "ports cannot be forwarded: pods here run no containers",
    "proxy": "nothing is proxied: pods and nodes here run no servers",
    "token": "tokens are not issued here: use the one in the kubeconfig",
}
_NO_APPLY = (
    "server-side apply is not served by the cluster in memory; leave out --server-side, or send a merge "
    f"patch ({apply.MERGE})"
)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What is sent back."""

    code: int
    body: Any
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Stream:
    """A watch to be sent line by line, each change shown as the client asked."""

    watch: Watch | None  # None: it could not begin
    resource: Resource
    show: Callable[[Object, bool], Object]  # object, whether it is the first → what is sent
    bookmarks: bool
    initial: bool  # tell when everything that existed has been sent
    seconds: int | None
    failure: Object | None = None  # the Status to end with at once


def serve(store: Store, call: Call, place: RequestPath) -> HttpResponse | Stream:
    """Handle a request; raises StatusError if it is rejected."""
    if (place.group, place.version, place.plural) not in store.resources.by_place:
        raise unknown_resource()
    resource = store.resources.find(place.group, place.version, place.plural)
    if (place.namespace and not resource.namespaced) or (
        place.name and resource.namespaced and not place.namespace
    ):
        raise unknown_resource()
    if place.subresource and place.subresource not in resource.subresources:
        raise _no_such_part(store, resource, place)
    verb = {"GET": _get, "HEAD": _get, "POST": _post, "PUT": _put, "PATCH": _patch, "DELETE": _delete}
    if call.method not in verb:
        raise method_not_allowed()
    answer = verb[call.method](store, call, place, resource)
    if isinstance(answer, HttpResponse) and resource.custom and resource.definition.deprecation:
        return replace(answer, warnings=[resource.definition.deprecation, *answer.warnings])
    return answer


def _get(store: Store, call: Call, place: RequestPath, resource: Resource) -> HttpResponse | Stream:
    if not place.name:
        return (
            _watch(store, call, place, resource)
            if call.flag("watch")
            else _list(store, call, place, resource)
        )
    if place.subresource in ("binding", "eviction", "finalize"):
        raise method_not_allowed()
    item = store.get(resource, place.namespace, place.name)
    if place.subresource == "scale":
        return HttpResponse(200, scale.scale_of(resource, item))
    return HttpResponse(200, _shown(store, call, resource, item))


def _list(store: Store, call: Call, place: RequestPath, resource: Resource) -> HttpResponse:
    query = call.query
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    exact = match == "Exact" or (version not in ("", "0") and bool(query.get("limit")) and not match)
    if version not in ("", "0") and parse_version(version) > store.version:
        raise _too_new(version, store.version)
    page = store.list(
        resource,
        place.namespace,
        labels=query.get("labelSelector", ""),
        fields=query.get("fieldSelector", ""),
        limit=0 if version == "0" else call.number("limit") or 0,
        token=query.get("continue", ""),
        version=version if exact else "",
    )
    return HttpResponse(200, _listed(store, call, resource, page))


def _listed(store: Store, call: Call, resource: Resource, page: ListPage) -> Object:
    metadata: Object = {"resourceVersion": page.version}
    if page.token:
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    if wants_table(call.accept):
        include = call.query.get("includeObject", "Metadata")
        return {**rendering.table(resource, page.items, store.now(), include, True), "metadata": metadata}
    if wants_metadata(call.accept):
        items = [rendering.partial(item) for item in page.items]
        kind = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
        return {**kind, "metadata": metadata, "items": items}
    kind = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version}
    if resource.custom:
        return {**kind, "metadata": {"continue": "", **metadata}, "items": page.items}
    items = [{key: item[key] for key in item if key not in ("kind", "apiVersion")} for item in page.items]
    return {**kind, "metadata": metadata, "items": items}


def _watch(store: Store, call: Call, place: RequestPath, resource: Resource) -> Stream:
    query = call.query
    since = query.get("resourceVersion", "")
    asked_initial = query.get("sendInitialEvents", "")
    initial = call.flag("sendInitialEvents")
    if asked_initial and query.get("resourceVersionMatch") != "NotOlderThan":
        message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        raise wrong_options("ListOptions", [unwanted("resourceVersionMatch", message)])
    if since and not is_number(since):
        raise StatusError(500, version_message(since), "")  # as upstream
    if since:
        parse_version(since)
    show, bookmarks = _shower(store, call, resource), call.flag("allowWatchBookmarks")
    seconds = call.number("timeoutSeconds")
    try:
        watch = store.watch(
            resource,
            place.namespace,
            labels=query.get("labelSelector", ""),
            fields=query.get("fieldSelector", ""),
            since="" if initial else since,
        )
    except StatusError as refusal:
        if refusal.code != 410:
            raise
        return Stream(None, resource, show, bookmarks, False, seconds, refusal.body)
    if asked_initial and not initial and since in ("", "0"):
        watch.take()  # only what comes from now on
    ends = bookmarks and (initial or (since == "0" and not asked_initial))
    return Stream(watch, resource, show, bookmarks, ends, seconds)


def _shower(store: Store, call: Call, resource: Resource) -> Callable[[Object, bool], Object]:
    include = call.query.get("includeObject", "Metadata")

    def as_table(item: Object, first: bool) -> Object:
        table = rendering.table(resource, [item], store.now(), include, first)
        return {**table, "metadata": {"resourceVersion": item["metadata"]["resourceVersion"]}}

    if wants_table(call.accept):
        return as_table
    if wants_metadata(call.accept):
        return lambda item, _: rendering.partial(item)
    return lambda item, _: item


def _post(store: Store, call: Call, place: RequestPath, resource: Resource) -> HttpResponse:
    options = call.options()
    if place.subresource:
        if place.subresource not in ("binding", "eviction"):
            raise method_not_allowed()
        body = call.decoded(place.subresource.capitalize())
        made = store.connect(resource, place.namespace, place.name, place.subresource, body, options)
        return HttpResponse(201, made, options.warnings)
    if place.name or (resource.namespaced and not place.namespace):
        raise method_not_allowed()
    made = store.create(resource, _body(call, resource), place.namespace, options)
    return HttpResponse(201, _shown(store, call, resource, made), options.warnings)


def _put(store: Store, call: Call, place: RequestPath, resource: Resource) -> HttpResponse:
    if not place.name:
        raise method_not_allowed()
    options = call.options()
    body = _body(call, resource) if place.subresource != "scale" else call.decoded("Scale")
    if place.subresource == "scale":
        return HttpResponse(200, scale.update(store, resource, place.namespace, place.name, body, options))
    made = store.update(resource, place.namespace, place.name, body, place.subresource, options)
    return HttpResponse(200, _shown(store, call, resource, made), options.warnings)


def _patch(store: Store, call: Call, place: RequestPath, resource: Resource) -> HttpResponse:
    if not place.name:
        raise method_not_allowed()
    options, form = call.options(), call.content_type.partition(";")[0].strip()
    if form.startswith("application/apply-patch"):
        raise StatusError(501, _NO_APPLY)
    if form not in (apply.MERGE, apply.JSON, apply.STRATEGIC):
        raise StatusError(415, "415: Unsupported Media Type", None, {})
    body = call.decoded(resource.kind)
    if place.subresource == "scale":
        return HttpResponse(
            200, scale.patch(store, resource, place.namespace, place.name, body, form, options)
        )
    made = store.patch(
        resource, place.namespace, place.name, body, form, subresource=place.subresource, options=options
    )
    return HttpResponse(200, _shown(store, call, resource, made), options.warnings)


def _delete(store: Store, call: Call, place: RequestPath, resource: Resource) -> HttpResponse:
    how, options = _deletion(call)
    if place.subresource:
        raise method_not_allowed()
    if place.name:
        gone = store.delete(resource, place.namespace, place.name, how, options)
        return HttpResponse(200, _shown(store, call, resource, gone), options.warnings)
    if not resource.deletes_collection:
        raise method_not_allowed()
    found = store.list(
        resource,
        place.namespace,
        labels=call.query.get("labelSelector", ""),
        fields=call.query.get("fieldSelector", ""),
    )
    for item in found.items:
        metadata = item["metadata"]
        store.delete(resource, metadata.get("namespace", ""), metadata["name"], how, options)
    return HttpResponse(200, _listed(store, call, resource, found))


def _deletion(call: Call) -> tuple[Deletion, Options]:
    body: Object = _delete_options(call) if call.body else {}
    for key in ("propagationPolicy", "orphanDependents"):
        if call.query.get(key):
            body[key] = call.flag(key) if key == "orphanDependents" else call.query[key]
    grace = call.number("gracePeriodSeconds")
    if grace is not None:
        body["gracePeriodSeconds"] = grace
    if body.get("propagationPolicy", "Background") not in ("Background", "Foreground", "Orphan"):
        known = ("Foreground", "Background", "Orphan", "nil")
        problem = unsupported("propagationPolicy", body["propagationPolicy"], known)
        raise wrong_options("DeleteOptions", [problem])
    options = call.options()
    return Deletion.from_body(body), Options(options.dry_run or bool(body.get("dryRun")))


def _delete_options(call: Call) -> Object:
    given = call.decoded("DeleteOptions")
    if given is None:
        return {}
    kept = (
        {key: item for key, item in given.items() if key not in _TYPE} if isinstance(given, dict) else given
    )
    try:
        found: Object = reader("DeleteOptions")(kept, (), [])
    except UnreadableBody as error:
        raise bad_request(f'DeleteOptions in version "v1" cannot be handled: {error}') from None
    return found


def _body(call: Call, resource: Resource) -> Any:
    body = call.decoded(resource.kind)
    if resource.custom and isinstance(body, dict) and not (body.get("kind") and body.get("apiVersion")):
        missing = "Kind" if not body.get("kind") else "apiVersion"
        message = (
            f"the object provided is unrecognized (must be of type {resource.kind}): Object '{missing}' is"
        )
        raise bad_request(
            f"{message} missing in '{call.body.decode(errors='replace')}' ({shortened(call.body)})"
        )
    return body


def _shown(store: Store, call: Call, resource: Resource, item: Object) -> Object:
    if item["kind"] == "Status" and resource.kind != "Status":
        return item
    if wants_table(call.accept):
        include = call.query.get("includeObject", "Metadata")
        table = rendering.table(resource, [item], store.now(), include, True)
        return {**table, "metadata": {"resourceVersion": item["metadata"].get("resourceVersion", "")}}
    return rendering.partial(item) if wants_metadata(call.accept) else item


def _no_such_part(store: Store, resource: Resource, place: RequestPath) -> StatusError:
    if place.subresource in _NOT_HERE and resource.plural in ("pods", "nodes", "services", "serviceaccounts"):
        store.get(resource, place.namespace, place.name)
        return StatusError(
            501, f"{place.subresource} is not served by the cluster in memory: {_NOT_HERE[place.subresource]}"
        )
    return unknown_resource()


def _too_new(version: str, current: int) -> StatusError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {version}, current: {current}"
    return StatusError(504, message, "Timeout", {"causes": [cause], "retryAfterSeconds": 1})
