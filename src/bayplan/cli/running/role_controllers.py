"""The controllers that the roles of `bayplan run` consist of."""

from __future__ import annotations

from collections.abc import Callable

from bayplan.configuration.settings import DEFAULTS, Settings
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.admission.queue_status import Watcher
from bayplan.runtime.controllers.jobs.controller import JobsController
from bayplan.runtime.controllers.node_health.controller import NodeHealthController
from bayplan.runtime.controllers.pod_grouper.controller import PodGrouperController
from bayplan.runtime.controllers.provisioning.controller import ProvisioningController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.controllers.ungating import Removed, UngatingController
from bayplan.runtime.core.controller import Controller
from bayplan.state.cluster.shared_state import ClusterState


def controllers_for(
    names: frozenset[str],
    watch: Watcher | None = None,
    removed: Removed | None = None,
    settings: Settings = DEFAULTS,
    grouper: PodGrouperController | None = None,
    *,
    shadow: bool = False,
) -> list[Controller]:
    """The controllers of the roles; `watch` receives queue summaries, `removed` ungated pods."""
    cluster = ClusterState()
    known: dict[str, Callable[[], list[Controller]]] = {
        "admission": lambda: [
            AdmissionController(
                settings.profile,
                settings.resources,
                watch,
                settings.numa_staleness,
                tells="scheduler" not in names,
                shadow=shadow,
                cluster=cluster,
            ),
            ProvisioningController(),
            JobsController(settings.pods_ready_policy, settings.feature_switches),
            UngatingController(settings.ungating.batch_seconds, removed),
            NodeHealthController(settings.nodes),
        ],
        "grouper": lambda: [grouper or PodGrouperController(settings.profiles, settings.grouper)],
        "scheduler": lambda: [
            SchedulerController(
                None,
                settings.profiles,
                settings.numa_staleness,
                awaits_grouper="grouper" in names,
                cluster=cluster,
            )
        ],
    }
    return [controller for name in sorted(names & set(known)) for controller in known[name]()]
