"""Devices in input files: classes, slices, claims and their templates, and what the pods of gangs claim."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from bayplan.cli.config.read_files import InputDocument
from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kube.devices.decode import claim_template_of
from bayplan.dialects.kube.devices.objects import DeviceObjects
from bayplan.dialects.kube.devices.wire import CLAIMS, CLASSES, SLICES, TAINT_RULES, TEMPLATES
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.workload_devices import devices_of
from bayplan.dialects.kueue.fields.claim_requests import PodClaim
from bayplan.model.devices.claims import DeviceClaim, DeviceClaimKey, PodDevices
from bayplan.model.gang import Ref

GROUP = CLAIMS.group
KINDS = {kind.kind: kind for kind in (CLAIMS, CLASSES, SLICES, TEMPLATES, *reversed(TAINT_RULES))}


@dataclass(slots=True)
class DeviceInputs:
    """Decoded objects of devices, and the claims of each gang's pod templates."""

    objects: DeviceObjects = field(default_factory=DeviceObjects)
    templates: dict[DeviceClaimKey, DeviceClaim] = field(default_factory=dict)
    entries: dict[Ref, tuple[PodClaim, ...]] = field(default_factory=dict)

    def add(self, document: InputDocument) -> None:
        """Decode an object."""
        kind, value = _kind_of(document), document.body.value
        if kind is None or kind.wire is None or not isinstance(value, dict):
            return
        metadata = value.get("metadata")
        if kind.namespaced and isinstance(metadata, dict):
            value = {**value, "metadata": {"namespace": "default", **metadata}}
        try:
            wire = msgspec.convert(value, kind.wire, strict=False)
            if kind == TEMPLATES:
                claim = claim_template_of(wire)
                self.templates[claim.key] = claim
            else:
                for _ in self.objects.changes(Event(Happened.SEEN, kind, wire)):
                    pass  # the object is kept
        except (msgspec.ValidationError, ValueError) as error:  # wrong types, and quantities
            document.body.error(str(error), value=None)

    def problems(self, gang: Ref) -> Iterator[str]:
        """What the claims of a gang name and the input does not have."""
        for entry in self.entries.get(gang, ()):
            claim = self._claim(gang, entry)
            if claim is None:
                kind, name = (TEMPLATES, entry.template) if entry.template else (CLAIMS, entry.claim)
                namespace = f"in namespace {gang.namespace}"
                yield f"{entry.path}: there is no {kind.kind} {name} {namespace} in the input; add it"
                continue
            for request in claim.requests:
                for ask in request.asks:
                    if ask.device_class not in self.objects.classes:
                        missing = f"there is no DeviceClass {ask.device_class} in the input; add it"
                        yield f"{entry.path}: request {request.result_name(ask)}: {missing}"

    def devices(self, gang: Ref) -> dict[str, PodDevices]:
        """What one pod of each pod set of a gang needs. The gang has no problems."""
        claims: dict[str, list[tuple[PodClaim, DeviceClaim]]] = {}
        for entry in self.entries.get(gang, ()):
            claim = self._claim(gang, entry)
            assert claim is not None, "its problems were looked for"
            claims.setdefault(entry.pod_set, []).append((entry, claim))
        return {name: devices_of(mine) for name, mine in claims.items()}

    def _claim(self, gang: Ref, entry: PodClaim) -> DeviceClaim | None:
        if entry.template:
            return self.templates.get(DeviceClaimKey(gang.namespace, entry.template))
        return self.objects.claims.get(DeviceClaimKey(gang.namespace, entry.claim))


def template_claims(templates: Iterable[tuple[str, Field]]) -> tuple[PodClaim, ...]:
    """The claims of pod templates, each with the name of its pod set."""
    found = []
    for pod_set, template in templates:
        for entry in template.at("spec", "resourceClaims").items():
            by_template, claim = (
                entry.at(key).text() for key in ("resourceClaimTemplateName", "resourceClaimName")
            )
            if by_template or claim:
                found.append(PodClaim(pod_set, entry.path, entry.at("name").text(), by_template, claim))
    return tuple(found)


def _kind_of(document: InputDocument) -> Kind | None:
    """The kind in the version of the object; an error of the document if that is not understood."""
    version = document.body.at("apiVersion").text()
    known = [kind for kind in (*KINDS.values(), *TAINT_RULES) if kind.kind == document.kind]
    found = [kind for kind in known if not version or kind.api_version == version]
    if not found:
        versions = ", ".join(dict.fromkeys(kind.api_version for kind in known))
        document.body.at("apiVersion").error(f"is not understood for a {document.kind}; give {versions}")
    return found[0] if found else None
