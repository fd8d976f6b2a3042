"""`bayplan uninstall`: removes Bayplan from a cluster, and everything of it that would block users."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from bayplan.assembly.crds import converted, unconverted
from bayplan.assembly.manifests import LABELS, NAMESPACE
from bayplan.assembly.rbac import LEASE_NAME
from bayplan.backends.remote.backend import RemoteBackend, connect
from bayplan.cli.commands.install import CALL_SECONDS, KINDS, TIMEOUT
from bayplan.cli.config.output import echo
from bayplan.dialects.api import Kind
from bayplan.dialects.errors import ApiError
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.dialects.kueue.fields.job_rules import SCHEDULING_GATE
from bayplan.dialects.kueue.names.annotations import ELASTIC_GATE, IN_USE, MANAGED, TOPOLOGY_GATE
from bayplan.dialects.kueue.names.api_kinds import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
)
from bayplan.runtime.core.api_object import LEASE
from bayplan.runtime.core.clock import SystemClock
from bayplan.runtime.webhooks.certificate_rotation import DEFINITION, MUTATING, VALIDATING

Object = dict[str, Any]

SELECTED = quote(",".join(f"{key}={value}" for key, value in LABELS.items() if "part-of" in key))
FIRST = (
    MUTATING.kind,
    VALIDATING.kind,
    "ValidatingAdmissionPolicyBinding",
    "ValidatingAdmissionPolicy",
    "Deployment",
)
"""What blocks users or writes to the cluster goes first."""
LAST = ("Namespace",)
FINALIZED = (WORKLOADS, CLUSTER_QUEUES, COHORTS, FLAVORS, TOPOLOGIES, CHECKS)
GATES = frozenset((SCHEDULING_GATE, TOPOLOGY_GATE, ELASTIC_GATE))
FINALIZERS = frozenset((IN_USE, MANAGED))
TRIES = 5
PAGE = 500


@click.command()
@click.option("--namespace", default=NAMESPACE, show_default=True, help="The namespace of Bayplan.")
@click.option(
    "--crds", is_flag=True, help="Delete the CRDs, too, and with them all queues, workloads and topologies."
)
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@click.option("--kubeconfig", type=click.Path(path_type=Path), help="Default: KUBECONFIG, or ~/.kube/config.")
@click.option("--context", help="A context of the kubeconfig (default: its current one).")
def uninstall(
    namespace: str, crds: bool, dry_run: bool, kubeconfig: Path | None, context: str | None
) -> None:  # fmt: skip
    """Remove Bayplan from a cluster, with its scheduling gates and finalizers.

    Pods that were held by a scheduling gate are released; jobs that are suspended stay suspended. The CRDs
    and their objects are kept, unless --crds is given. You need to be a cluster administrator.
    """
    backend = connect(kubeconfig, context)
    try:
        removal = Removal(backend, namespace, dry_run=dry_run)
        removal.run(crds=crds)
    except ApiError as error:
        raise click.ClickException(str(error)) from None
    finally:
        backend.close()
    sys.exit(1 if removal.failed else 0)


class Removal:
    """The steps, in an order in which nothing blocks or is written again."""

    def __init__(self, backend: RemoteBackend, namespace: str, *, dry_run: bool) -> None:
        self.backend, self.namespace, self.dry_run = backend, namespace, dry_run
        self.failed = False

    def run(self, *, crds: bool) -> None:
        """Remove everything; report what is kept."""
        rest = [name for name in KINDS if name not in (*FIRST, *LAST, DEFINITION.kind)]
        for name in FIRST:
            self._delete_kind(KINDS[name])
        self._await_replicas()
        ours = [one for one in self._listed(DEFINITION) if LABELS.items() <= _labels(one).items()]
        if any(one["metadata"]["name"] == f"{WORKLOADS.plural}.{WORKLOADS.group}" for one in ours):
            self._release()  # otherwise another program owns the API, its gates and its finalizers
        self._stop_conversion([one for one in ours if one["metadata"]["name"] in converted()])
        for name in rest:
            self._delete_kind(KINDS[name])
        lease = self._found(LEASE, {"namespace": self.namespace, "name": LEASE_NAME})
        if lease is not None:
            self._delete(LEASE, lease)
        self._delete_namespace()
        for one in ours if crds else ():
            self._delete(DEFINITION, one)
        if ours and not crds:
            echo(f"kept: {len(ours)} CustomResourceDefinitions and their objects; --crds deletes them")
        self._report_waiting()

    # ── steps ──────────────────────────────────────────────────────────────────────────────────────

    def _delete_kind(self, kind: Kind) -> None:
        for one in self._listed(kind, f"labelSelector={SELECTED}"):
            self._delete(kind, one)

    def _await_replicas(self) -> None:
        """Wait until no replica runs that could add gates and finalizers again."""
        clock = SystemClock()
        end = clock.monotonic() + TIMEOUT
        query = f"labelSelector={SELECTED}"
        while not self.dry_run and any(self._listed(PODS_KIND, query, self.namespace)):
            if clock.monotonic() > end:
                raise ApiError(
                    f"replicas still run in namespace {self.namespace} after {TIMEOUT:.0f} s; "
                    "delete their pods and run the command again"
                )
            self.backend.wait(1.0)

    def _release(self) -> None:
        """Remove our finalizers and scheduling gates."""
        for kind in FINALIZED:
            for one in self._listed(kind):
                self._change(kind, one, without_finalizers, "finalizer removed")
        for one in self._listed(PODS_KIND):
            self._change(PODS_KIND, one, released, "released")
        if held := sum(map(is_held, self._listed(WORKLOADS))):
            echo(f"suspended: the jobs of {held} Workloads; start them by hand (spec.suspend: false)")

    def _stop_conversion(self, definitions: list[Object]) -> None:
        """Serve the stored version only: no webhook converts to the others any more."""
        for one in definitions:
            self._change(DEFINITION, one, unconverted, "served in its stored version only")

    def _delete_namespace(self) -> None:
        kind = KINDS["Namespace"]
        found = self._found(kind, {"name": self.namespace})
        if found is not None and LABELS.items() <= _labels(found).items():
            self._delete(kind, found)
        elif found is not None:
            echo(f"kept: namespace/{self.namespace}, which `bayplan install` did not create")

    def _report_waiting(self) -> None:
        pods = sum(
            one["spec"].get("schedulerName") == SCHEDULER and not one["spec"].get("nodeName")
            for one in self._listed(PODS_KIND, "fieldSelector=status.phase%3DPending")
        )
        if pods:
            echo(f"pending: {pods} pods name the scheduler {SCHEDULER}; create them again without it")

    # ── requests ───────────────────────────────────────────────────────────────────────────────────

    def _listed(self, kind: Kind, query: str = "", namespace: str | None = None) -> Iterator[Object]:
        """All objects of a kind, page by page; of kinds that are installed, those in Bayplan's namespace.

        A Role may be in another namespace: that of the ConfigMap which the grouper reads.
        """
        own = kind.namespaced and kind.kind in KINDS and not kind.kind.startswith("Role")
        where = namespace or (self.namespace if own else "")
        go_on = ""
        while True:
            path = f"{kind.path(where)}?limit={PAGE}&{query}{go_on and f'&continue={quote(go_on)}'}"
            status, body = self.backend.request("GET", path, b"", TIMEOUT)
            if status == 404:
                return  # not served
            if status != 200:
                raise ApiError(f"cannot list {kind.plural}: {_message(body)}")
            page = msgspec.json.decode(body)
            yield from page.get("items") or ()
            go_on = page["metadata"].get("continue") or ""
            if not go_on:
                return

    def _found(self, kind: Kind, metadata: Mapping[str, str]) -> Object | None:
        path = kind.path(metadata.get("namespace", ""), metadata["name"])
        status, body = self.backend.request("GET", path, b"", CALL_SECONDS)
        return msgspec.json.decode(body) if status == 200 else None

    def _delete(self, kind: Kind, one: Object) -> None:
        title = _title(kind, one)
        if self.dry_run:
            echo(f"{title} would be deleted")
            return
        path = kind.path(one["metadata"].get("namespace", ""), one["metadata"]["name"])
        status, body = self.backend.request("DELETE", path, b"", CALL_SECONDS)
        self._told(title, status, body, "deleted")

    def _change(self, kind: Kind, one: Object, change: Callable[[Object], Object | None], done: str) -> None:
        """Change an object if there is something to change; again if it was changed meanwhile."""
        title, metadata = _title(kind, one), one["metadata"]
        if change(one) is not None and self.dry_run:
            echo(f"{title} would be {done}")
            return
        found: Object | None = one
        for _ in range(TRIES):
            wanted = change(found) if found is not None else None
            if wanted is None:
                return
            body = msgspec.json.encode({"apiVersion": kind.api_version, "kind": kind.kind, **wanted})
            path = kind.path(metadata.get("namespace", ""), metadata["name"])
            status, answer = self.backend.request("PUT", path, body, CALL_SECONDS)
            if status != 409:
                self._told(title, status, answer, done)
                return
            found = self._found(kind, metadata)
        self._told(title, 409, b"", done)

    def _told(self, title: str, status: int, body: bytes, done: str) -> None:
        if status < 300:
            echo(f"{title} {done}")
        elif status != 404:
            self.failed = True
            echo(f"{title} not {done}: {_message(body)}", err=True)


def without_finalizers(one: Object) -> Object | None:
    """An object without our finalizers; None if it has none of them."""
    metadata = one["metadata"]
    there = metadata.get("finalizers") or []
    left = [name for name in there if name not in FINALIZERS]
    return None if left == there else {**one, "metadata": {**metadata, "finalizers": left}}


def released(pod: Object) -> Object | None:
    """A pod without our scheduling gates and finalizers; None if it has none of them."""
    gates = pod["spec"].get("schedulingGates") or []
    left = [gate for gate in gates if gate["name"] not in GATES]
    changed = without_finalizers(pod)
    if left == gates:
        return changed
    return {**(changed or pod), "spec": {**pod["spec"], "schedulingGates": left}}


def is_held(workload: Object) -> bool:
    """Whether a Workload is neither admitted nor finished, so that its job is suspended."""
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return not any(one["type"] in ("Admitted", "Finished") and one["status"] == "True" for one in conditions)


def _labels(one: Object) -> dict[str, str]:
    return one["metadata"].get("labels") or {}


def _title(kind: Kind, one: Object) -> str:
    metadata = one["metadata"]
    name = f"{metadata['namespace']}/{metadata['name']}" if kind is PODS_KIND else metadata["name"]
    return f"{kind.kind.lower()}/{name}"


def _message(body: bytes) -> str:
    try:
        return str(msgspec.json.decode(body).get("message", ""))
    except (msgspec.DecodeError, AttributeError):
        return "the server gave no reason"
