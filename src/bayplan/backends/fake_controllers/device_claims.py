"""A simulated controller of resource claims: makes them from templates, and ends reservations."""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.backends.fake_controllers.objects import (
    OVER,
    PODS,
    Object,
    annotations_of,
    create,
    delete,
    is_owned_by,
    is_terminating,
    name_of,
    owner_reference,
    patch,
    patch_status,
    phase_of,
    suffix,
    uid_of,
)  # fmt: skip
from bayplan.dialects.api import Event, Happened, Kind, Write

GROUP, VERSION = "resource.k8s.io", "v1"
CLAIMS = Kind(GROUP, VERSION, "ResourceClaim", "resourceclaims", optional=True)
TEMPLATES = Kind(GROUP, VERSION, "ResourceClaimTemplate", "resourceclaimtemplates", optional=True)
CLASSES = Kind(GROUP, VERSION, "DeviceClass", "deviceclasses", namespaced=False, optional=True)
SLICES = Kind(GROUP, VERSION, "ResourceSlice", "resourceslices", namespaced=False, optional=True)
POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
FINALIZER = "resource.kubernetes.io/delete-protection"
NAME_MAX = 57
Name = tuple[str, str]


class FakeClaimController:
    """Keeps the pods with claims, the claims and the templates; says what is to be written."""

    kinds = (CLAIMS, TEMPLATES)

    def __init__(self) -> None:
        self.pods: dict[Name, Object] = {}
        self.claims: dict[Name, Object] = {}
        self.templates: dict[Name, Object] = {}
        self.dirty_pods: dict[Name, None] = {}
        self.dirty_claims: dict[Name, None] = {}

    def note(self, event: Event) -> None:
        """Take in an event."""
        if event.happened is Happened.SYNCED:
            return
        found, gone = event.object, event.happened is Happened.GONE
        key = name_of(found)
        if event.kind.plural == PODS.plural:
            if found["spec"].get("resourceClaims"):
                _keep(self.pods, key, found, gone)
                self.dirty_pods[key] = None
                self.dirty_claims.update(dict.fromkeys(self._claims_of(found)))
        elif event.kind.plural == CLAIMS.plural:
            _keep(self.claims, key, found, gone)
            self.dirty_claims[key] = None
            for owner in found["metadata"].get("ownerReferences") or ():
                self.dirty_pods[key[0], owner["name"]] = None
        elif event.kind.plural == TEMPLATES.plural:
            _keep(self.templates, key, found, gone)
            self.dirty_pods.update(dict.fromkeys(self.pods))

    def look_again(self, write: Write) -> None:
        """A write failed or ended: look at its object again."""
        if write.kind.plural == CLAIMS.plural:
            self.dirty_claims[write.namespace, write.name] = None
            for owner in (write.body.get("metadata") or {}).get("ownerReferences") or ():
                self.dirty_pods[write.namespace, owner["name"]] = None

    def is_dirty(self) -> bool:
        """Whether an object has to be looked at."""
        return bool(self.dirty_pods or self.dirty_claims)

    def writes(self) -> Iterator[Write]:
        """What is to be written."""
        pods, self.dirty_pods = list(self.dirty_pods), {}
        for key in pods:
            pod = self.pods.get(key)
            if pod is not None and phase_of(pod) not in OVER and not is_terminating(pod):
                yield from self._for_pod(pod)
        claims, self.dirty_claims = list(self.dirty_claims), {}
        for key in claims:
            if key in self.claims:
                yield from self._for_claim(self.claims[key])

    def _claims_of(self, pod: Object) -> list[Name]:
        namespace = name_of(pod)[0]
        entries = [*pod["spec"]["resourceClaims"], *(pod["status"].get("resourceClaimStatuses") or ())]
        return [(namespace, one["resourceClaimName"]) for one in entries if one.get("resourceClaimName")]

    def _for_pod(self, pod: Object) -> Iterator[Write]:
        """Claims from templates, and their names in the status of the pod."""
        namespace, name = name_of(pod)
        known = list(pod["status"].get("resourceClaimStatuses") or ())
        named = {one["name"] for one in known}
        added = []
        for entry in pod["spec"]["resourceClaims"]:
            template = self.templates.get((namespace, entry.get("resourceClaimTemplateName") or ""))
            if entry["name"] in named or template is None:
                continue
            title = f"{name}-{entry['name']}"[:NAME_MAX]
            claim = self.claims.get((namespace, f"{title}-{suffix(uid_of(pod), entry['name'])}"))
            if claim is None:
                yield create(CLAIMS, claim_for(pod, entry["name"], title, template))
            elif is_owned_by(claim, pod):
                added.append({"name": entry["name"], "resourceClaimName": name_of(claim)[1]})
        if added:
            yield patch_status(PODS, pod, {"resourceClaimStatuses": known + added})

    def _for_claim(self, claim: Object) -> Iterator[Write]:
        status, finalizers = claim.get("status") or {}, claim["metadata"].get("finalizers") or []
        reserved = status.get("reservedFor") or []
        valid = [one for one in reserved if self._is_using(name_of(claim)[0], one)]
        unused = not valid and (bool(reserved) or is_terminating(claim))
        if len(valid) < len(reserved) or (unused and status.get("allocation")):
            change: Object = {"reservedFor": valid or None}
            if not valid:
                change |= {"allocation": None, "devices": None}
            yield patch_status(CLAIMS, claim, change)
        elif not status.get("allocation") and FINALIZER in finalizers and is_terminating(claim):
            left = [one for one in finalizers if one != FINALIZER]
            yield patch(CLAIMS, claim, {"metadata": {"finalizers": left}})
        elif not reserved and not is_terminating(claim) and self._is_left_behind(claim):
            yield delete(CLAIMS, claim)

    def _is_using(self, namespace: str, consumer: Object) -> bool:
        pod = self.pods.get((namespace, consumer["name"]))
        if pod is None or uid_of(pod) != consumer["uid"] or phase_of(pod) in OVER:
            return False
        return bool(pod["spec"].get("nodeName")) or not is_terminating(pod)

    def _is_left_behind(self, claim: Object) -> bool:
        """Whether the pod that a claim was made for is over."""
        if POD_CLAIM not in annotations_of(claim):
            return False
        owners = [one["name"] for one in claim["metadata"].get("ownerReferences") or ()]
        pods = [self.pods.get((name_of(claim)[0], name)) for name in owners]
        return any(pod is not None and is_owned_by(claim, pod) and phase_of(pod) in OVER for pod in pods)


def claim_for(pod: Object, entry: str, title: str, template: Object) -> Object:
    """The claim that is made from a template for an entry of a pod."""
    meta = template["spec"].get("metadata") or {}
    return {
        "metadata": {
            "namespace": name_of(pod)[0],
            "name": f"{title}-{suffix(uid_of(pod), entry)}",
            "labels": meta.get("labels") or {},
            "annotations": {**(meta.get("annotations") or {}), POD_CLAIM: entry},
            "ownerReferences": [owner_reference(pod, PODS)],
        },
        "spec": template["spec"]["spec"],
    }


def _keep(items: dict[Name, Object], key: Name, found: Object, gone: bool) -> None:
    if gone:
        items.pop(key, None)
    else:
        items[key] = found
