"""CRDs of other projects that a cluster in memory needs: job kinds and ProvisioningRequest."""

from __future__ import annotations

import json
from importlib.resources import files

from bayplan.backends.fake_controllers.objects import JOB_SETS, LEADER_WORKER_SETS, MPI_JOBS, Object
from bayplan.dialects.api import Kind


def foreign_crds() -> list[Object]:
    """Job kinds with any fields below spec and status, and ProvisioningRequest."""
    return [schemaless_crd(JOB_SETS), *operator_crds(), provisioning_requests()]


def operator_crds() -> list[Object]:
    """CRDs of the kinds whose operators are simulated on a real control plane, too."""
    return [schemaless_crd(LEADER_WORKER_SETS), schemaless_crd(MPI_JOBS)]


def provisioning_requests() -> Object:
    """The CRD of the cluster autoscaler."""
    name = "provisioningrequests.autoscaling.x-k8s.io.json"
    text = (files("bayplan.backends.fake_controllers") / "crds" / name).read_text(encoding="utf-8")
    found: Object = json.loads(text)
    return found


def schemaless_crd(kind: Kind) -> Object:
    """A CRD that accepts any fields below spec and status."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {
                "kind": kind.kind,
                "listKind": f"{kind.kind}List",
                "plural": kind.plural,
                "singular": kind.kind.lower(),
            },
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
