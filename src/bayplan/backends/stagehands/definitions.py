"""Definitions of the job kinds that stage hands know and a cluster in memory does not have by itself."""

from __future__ import annotations

from bayplan.backends.stagehands.objects import JOB_SETS, LEADER_WORKER_SETS, Object
from bayplan.dialects.api import Kind


def definitions() -> list[Object]:
    """JobSet and LeaderWorkerSet, with any fields below spec and status."""
    return [_definition(JOB_SETS), _definition(LEADER_WORKER_SETS)]


def _definition(kind: Kind) -> Object:
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
