"""Backfill reservation: nodes reserved for a gang that has been pending long, closed to other new gangs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from bayplan.model.gang import Ref
from bayplan.placement.cluster.resource_fit import too_small
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.preemption.removals import fewest_victims_first
from bayplan.scheduling.attempt.gang import AttemptRequest, attempt, is_single_pod
from bayplan.scheduling.attempt.nominations import priority_of
from bayplan.scheduling.preemption.search import PreemptionSearch
from bayplan.scheduling.preemption.trial import PreemptionTrial
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot


class BackfillReservation:
    """The nodes reserved for one gang; at most one gang has a reservation at a time."""

    def __init__(self, search: PreemptionSearch, now: float) -> None:
        self.preemption, self.snapshot, self.now = search, search.snapshot, now
        self.reserved_for: Ref | None = None
        self.unreserved_nodes: Bools | None = (
            None  # all nodes but the reserved ones; None without a reservation
        )
        self.priority = 0
        if self.snapshot.reserved is not None:
            self.reserved_for = self.snapshot.reserved[0]
            self.unreserved_nodes = search.overlay.mask_without(self.snapshot.reserved[1])
            self.priority = _priority_of(self.reserved_for, self.snapshot)

    def allowed(self, candidate: SchedulingCandidate, priority: int) -> Bools | None:
        """The nodes a gang may use: not those reserved for a gang of at least its priority.

        Nodes it is nominated for stay allowed, and so do those of its slots: nothing there is reserved.
        """
        if (
            self.unreserved_nodes is None
            or self.snapshot.reserved is None
            or candidate.spec.source == self.snapshot.reserved[0]
        ):
            return None
        if priority > self.priority:
            return None
        overlay = self.preemption.overlay
        own = set(candidate.nominated.values())  # pods were preempted there for this gang
        claims = self.snapshot.claims
        own |= {claims[pod.key][1] for pod in candidate.pending if pod.key in claims}
        rows = [row for node in own if (row := overlay.row(node)) >= 0]
        if not rows:
            return self.unreserved_nodes
        allowed = self.unreserved_nodes.copy()
        allowed[rows] = True
        return allowed

    def reserve(self, request: AttemptRequest) -> tuple[str, ...]:
        """The nodes to reserve for a gang from now on.

        None if it is not pending long enough, or a gang of at least its priority has the reservation.
        """
        candidate, ref, priority = (
            request.candidate,
            request.candidate.spec.source,
            priority_of(request.candidate),
        )
        due = self.due(candidate)
        if due is None or due > self.now:
            return ()
        if self.reserved_for not in (None, ref) and priority <= self.priority:
            return ()
        self.reserved_for, self.priority = ref, priority
        before = self.snapshot.reserved[1] if self.snapshot.reserved is not None else frozenset()
        return nodes_to_reserve(self.preemption, request, priority, before)

    def due(self, candidate: SchedulingCandidate) -> float | None:
        """From when on the gang may have a reservation; None: never."""
        after = self.preemption.profile.keep_after_seconds
        return None if after <= 0 else candidate.since + after

    def retry_at(self, candidate: SchedulingCandidate) -> float | None:
        """When to try a gang again for its reservation; None if events are enough."""
        due = self.due(candidate)
        return due if due is not None and due > self.now and not is_single_pod(candidate) else None


def _priority_of(gang: Ref, snapshot: SchedulingSnapshot) -> int:
    for candidate in snapshot.candidates:
        if candidate.spec.source == gang:
            return priority_of(candidate)
    if snapshot.reserved_priority is not None:
        return snapshot.reserved_priority
    spec = snapshot.specs.get(gang)
    return spec.priority if spec is not None and spec.priority is not None else 2**31


def nodes_to_reserve(
    search: PreemptionSearch, request: AttemptRequest, priority: int, before: Collection[str] = ()
) -> tuple[str, ...]:
    """Nodes that hold the gang once all pods of no higher priority have ended there; none if it never fits.

    The nodes reserved already, if they still suffice; otherwise as few as possible of the emptiest nodes.
    """
    if _never_fits(search, request):
        return ()
    trial = PreemptionTrial(
        search.context, request, search.below(priority, request.candidate, or_equal=True), None
    )
    now = search.overlay.filter_input.node_snapshot.free.copy()  # a copy: the trial may empty this overlay
    with trial.emptied() as overlay:
        if before and _rows(search, overlay, request, overlay.mask_of(before)):
            return tuple(sorted(before))
        result = _rows(search, overlay, request, None)
        if not result:
            return ()
        masks = fewest_victims_first(now, overlay, [pod.spec.signature for pod in request.pending])
        low, high = 0, len(masks) - 1
        while low < high:
            middle = (low + high) // 2
            fitting = _rows(search, overlay, request, masks[middle])
            if fitting:
                high, result = middle, fitting
            else:
                low = middle + 1
    return tuple(sorted({search.overlay.node(row) for row in result}))


def _never_fits(search: PreemptionSearch, request: AttemptRequest) -> bool:
    """Whether all nodes are too small for pods of the gang's minimum; to search victims would take long."""
    node_snapshot = search.overlay.filter_input.node_snapshot
    shapes = Counter(pod.spec.signature for pod in request.pending)
    fitting = (count for shape, count in shapes.items() if not too_small(node_snapshot, shape).all())
    return sum(fitting) < request.need


def _rows(
    search: PreemptionSearch, overlay: NodeOverlay, request: AttemptRequest, allowed_nodes: Bools | None
) -> set[int]:
    """The rows of the gang if its minimum fits there, otherwise none."""
    checkpoint = overlay.checkpoint()
    result = attempt(search.snapshot, overlay, request, search.profile, allowed_nodes)
    overlay.rollback(checkpoint)
    return set(result.rows.values()) if len(result.rows) >= request.need else set()
