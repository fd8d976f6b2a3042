"""Install the JobSet API: its CRD and webhooks as released, pointed at the controller on loopback."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from tools.controlplane.build import JOBSET_MANIFESTS, manifest
from tools.controlplane.components import LOOPBACK, Site

JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"


def objects(site: Site, kube: str) -> list[dict[str, Any]]:
    """What has to be in the API before the JobSet controller starts."""
    found = [document for name in JOBSET_MANIFESTS for document in _documents(manifest(name, kube))]
    authority = base64.b64encode(Path(site.pki("ca.crt")).read_bytes()).decode()
    for document in found:
        for webhook in document.get("webhooks", ()):
            _redirect(webhook, f"https://{LOOPBACK}:{site.ports['jobset-webhook']}", authority)
        if document["kind"].endswith("WebhookConfiguration"):
            document["metadata"]["name"] = f"jobset-{document['metadata']['name']}"
    return found


def _redirect(webhook: dict[str, Any], url: str, authority: str) -> None:
    path = webhook["clientConfig"]["service"]["path"]
    webhook["clientConfig"] = {"url": url + path, "caBundle": authority}
    if path.endswith("-v1-pod"):  # as in the release: the pods of everybody else do not pass through JobSet
        webhook["objectSelector"] = {"matchExpressions": [{"key": JOBSET_LABEL, "operator": "Exists"}]}


def _documents(path: Path | None) -> list[dict[str, Any]]:
    assert path is not None, "manifests are there once everything is built"
    return [document for document in yaml.safe_load_all(path.read_text()) if document]
