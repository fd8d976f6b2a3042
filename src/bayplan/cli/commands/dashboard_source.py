"""Snapshots of a watched cluster for the dashboard, with the records of `list`, `explain` and `plan`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from bayplan.cli.commands.explain import explain_queued, section_lines
from bayplan.cli.commands.plan import plan_documents
from bayplan.cli.config.read_files import read_text
from bayplan.cli.listing.gang_listing import list_gangs
from bayplan.cli.live.find_gang import FoundObject, GangQuery
from bayplan.cli.live.gangs import ClusterOutlook, outlook
from bayplan.cli.live.list_groups import fair_queue_records, fair_queues
from bayplan.cli.live.list_queues import queue_records
from bayplan.cli.live.list_topologies import topology_records
from bayplan.cli.live.scheduled_explanation import explain_scheduled, find_scheduled
from bayplan.cli.live.state import Live
from bayplan.cli.starts.past_runs import JournalRuns
from bayplan.cli.starts.scheduled_gangs import ScheduledForecast, scheduled_forecast
from bayplan.cli.watching.gang_owners import GangOwners
from bayplan.cli.watching.near_domains import near_domains
from bayplan.cli.watching.start_forecasts import StartForecasts
from bayplan.cli.watching.watched import WatchedCluster
from bayplan.dashboard.host_map import GangKey, MapMaker
from bayplan.dashboard.hub import SnapshotHub
from bayplan.dashboard.questions import BadQuestion
from bayplan.dashboard.snapshot import DashboardSnapshot, GangEntry
from bayplan.dialects.errors import ApiError
from bayplan.model.gang import Ref
from bayplan.runtime.core.clock import timer
from bayplan.runtime.core.containment import Containment

PENDING_STATES = ("pending", "quota reserved", "incomplete", "partly running", "inqueue")
PACE_SECONDS = 0.25  # between two snapshots
PACE_FACTOR = 3.0  # times the duration of making one: at most a quarter of a core
WAIT_SECONDS = 0.2
PATIENCE_SECONDS = 5.0  # for kinds that may not be listed
GANGS_MAX = 64  # of one submission


class DashboardSource:
    """Follows a cluster in one thread, and publishes what it sees. Questions may come from any thread."""

    def __init__(
        self, cluster: WatchedCluster, hub: SnapshotHub, containment: Containment, journal: Path | None = None
    ) -> None:
        self.cluster, self.hub, self.containment = cluster, hub, containment
        self.lock = threading.Lock()
        self.maker = MapMaker()
        self.began = cluster.clock.monotonic()
        self.trouble = ""
        self.forecasts = StartForecasts(self._look, containment, cluster.clock, journal)

    def run(self, stop: threading.Event) -> None:
        """Follow the cluster until it is stopped. Raises ApiError if it cannot be read any more."""
        due, changed, clock = 0.0, False, self.cluster.clock
        while not stop.is_set():
            with self.lock:
                changed |= self.cluster.step()
            changed |= self.forecasts.take_news()
            now = clock.monotonic()
            if changed and now >= due and self._is_readable(now):
                seconds = timer(clock)
                with self.containment.unit("draw", "dashboard"):
                    self.hub.publish(self.snapshot())
                changed, due = False, clock.monotonic() + max(PACE_SECONDS, PACE_FACTOR * seconds())
            pause = min(WAIT_SECONDS, max(0.01, due - now)) if changed else WAIT_SECONDS
            self.cluster.backend.wait(pause)

    def _is_readable(self, now: float) -> bool:
        """Kinds that may not be listed are left out after a while; nodes and pods are needed."""
        if not self.cluster.loop.unsynced:
            return True
        return self.cluster.readable and now - self.began > PATIENCE_SECONDS

    def snapshot(self) -> DashboardSnapshot:
        """The cluster as it is now."""
        with self.lock:
            live, scheduled = self.cluster.live(), self.cluster.scheduled()
            state, owners = scheduled.controller.state, GangOwners(live, scheduled)
            records = list_gangs(live, scheduled, forecast=lambda _: self.forecasts.starts).records()
            keys = [GangKey(one["namespace"], one["kind"], one["name"]) for one in records]
            self.maker.ids.forget(keys)
            entries = (
                GangEntry(self.maker.id_of(key), key, record, record["state"] in PENDING_STATES)
                for key, record in zip(keys, records, strict=True)
            )
            gangs = {entry.id: entry for entry in entries}
            owners.known = frozenset(keys)
            reserved = live.state.reservations.by_topology
            maps = self.maker.maps(
                state, owners.key_of, {name: one.domains for name, one in reserved.items()}
            )
            fair = fair_queues(live)
            queues = queue_records(live, "") | ({"queues": fair_queue_records(fair)} if fair else {})
            return DashboardSnapshot(
                live.now, maps, gangs, queues, tuple(topology_records(live)), self._notes()
            )

    def _look(self, past: JournalRuns) -> tuple[Live, ClusterOutlook, ScheduledForecast]:
        """The cluster for forecasts: the lock is not held while they are made."""
        with self.lock:
            live = self.cluster.live()
            return live, outlook(live), scheduled_forecast(live, self.cluster.scheduled(), past.pod_runs)

    def _notes(self) -> tuple[str, ...]:
        unread = self.cluster.unread()
        return (f"not included, because they cannot be listed: {', '.join(unread)}",) if unread else ()

    # ── questions ──────────────────────────────────────────────────────────────────────────────────

    def explain(self, key: GangKey) -> dict[str, Any] | None:
        """The object of `bayplan explain -o json`, with its pods and the domains that it nearly fits."""
        with self.lock:
            live, scheduled = self.cluster.live(), self.cluster.scheduled()
            owners = GangOwners(live, scheduled)
            try:
                if key.kind == "Workload":
                    ref = Ref("kueue", "Workload", key.namespace, key.name)
                    if ref not in live.workloads:
                        return None
                    lines, record = explain_queued(
                        live, ref, lambda _: self.forecasts.starts, full=False, zones=False
                    )
                else:
                    query = GangQuery(key.namespace, key.name, key.kind)
                    found: FoundObject = find_scheduled(live, scheduled, query)
                    lines, record = explain_scheduled(
                        live, scheduled, found, lambda: self.forecasts.starts, full=False, zones=False
                    )
                    record |= {"explanation": [{"title": "gang", "lines": lines}]}
            except click.ClickException:
                return None
            except ApiError as error:
                raise BadQuestion(str(error)) from None
            return {
                **record,
                "kind": key.kind,
                "namespace": key.namespace,
                "text": lines,
                "members": owners.pods(key),
                "near": near_domains(live, scheduled, owners, key),
            }

    def plan(self, manifests: str, may_see: Callable[[str], bool]) -> dict[str, Any]:
        """The object of `bayplan plan -o json`, with the answer as text and the nodes of each gang."""
        documents, problems = read_text(manifests)
        if problems or not documents:
            raise BadQuestion("\n".join(map(str, problems)) or "there is no object in it; give manifests")
        if len(documents) > GANGS_MAX:
            raise BadQuestion(f"{len(documents)} objects are too many at once; give at most {GANGS_MAX}")
        with self.lock:
            live = self.cluster.live()
            for document in documents:
                meta = document.body.at("metadata")
                namespace = meta.at("namespace").text() if meta.present else ""
                if not may_see(namespace or live.namespace):
                    raise BadQuestion(f"you may not see the namespace {namespace or live.namespace}")
            try:
                planned = plan_documents(live, documents, list(self.forecasts.past.runs.values()), full=False)
            except click.ClickException as error:
                raise BadQuestion(error.message) from None
            except ApiError as error:
                raise BadQuestion(str(error)) from None
        if planned.problems:
            raise BadQuestion("\n".join(map(str, planned.problems)))
        answers = [
            {
                "title": answer.head,
                "lines": list(section_lines(answer.sections)),
                "nodes": dict(answer.nodes),
            }
            for answer in planned.answers
        ]
        return {**planned.record(), "answers": answers, "skipped": list(planned.skipped)}
