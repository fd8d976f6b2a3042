"""Certificates of the webhooks by cert-manager, instead of our own authority.

cert-manager writes certificate and key into a Secret that the replicas mount, and its CA into the objects
that carry the annotation. The replicas then need no authority, and write no caBundle.
"""

from __future__ import annotations

from typing import Any

from bayplan.assembly.chart_values import value
from bayplan.assembly.install_settings import InstallSettings, new_object
from bayplan.assembly.tunables import optional
from bayplan.assembly.webhooks import SERVICE

Object = dict[str, Any]

API = "cert-manager.io/v1"
SECRET_NAME = "bayplan-webhook-tls"
FOLDER = "/etc/bayplan-webhooks"
"""The mount path of the Secret."""
INJECT = "cert-manager.io/inject-ca-from"
ISSUER = "webhooks.certManager.issuer"


def certificate_objects(settings: InstallSettings) -> list[Object]:
    """The Certificate, and an Issuer that signs it with its own key unless another one is named."""
    inside = f"{SERVICE}.{settings.namespace}.svc"
    spec = {
        "secretName": SECRET_NAME,
        "dnsNames": [inside, f"{inside}.cluster.local"],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
        "usages": ["digital signature", "server auth"],
        **optional(settings, "issuerRef", ISSUER, {"kind": "Issuer", "name": SERVICE}),
    }
    own = [new_object(API, "Issuer", SERVICE, settings, spec={"selfSigned": {}})]
    needed = settings.templated or not value(settings.values, ISSUER)
    return [*(own if needed else []), new_object(API, "Certificate", SERVICE, settings, spec=spec)]


def injected(settings: InstallSettings, obj: Object) -> Object:
    """An object of the API server that trusts the webhooks, with the annotation if cert-manager is used."""
    if not settings.cert_manager:
        return obj
    metadata = obj["metadata"]
    notes = {**metadata.get("annotations", {}), INJECT: f"{settings.namespace}/{SERVICE}"}
    return {**obj, "metadata": {**metadata, "annotations": notes}}


def arguments(settings: InstallSettings) -> list[str]:
    """Options of the replicas that serve webhooks."""
    if not settings.cert_manager:
        return []
    return [f"--webhook-cert-file={FOLDER}/tls.crt", f"--webhook-key-file={FOLDER}/tls.key"]


def volumes(settings: InstallSettings) -> list[Object]:
    """The volume of the replicas that serve webhooks."""
    if not settings.cert_manager:
        return []
    return [{"name": "webhook-certificate", "secret": {"secretName": SECRET_NAME}}]
