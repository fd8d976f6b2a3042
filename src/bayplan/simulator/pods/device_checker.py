"""Invariants of devices: none allocated twice, none leaked, no pod bound without its claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bayplan.backends.fake_controllers.objects import OVER, phase_of
from bayplan.simulator.core.documents import once_per_listing
from bayplan.simulator.pods.gang_view import List, Object, is_ours

LEAK_SECONDS = 100.0  # bindings without an answer, backoff, partial gangs that heal, slow controllers
CONTEST_SECONDS = 45.0  # until a claim that was written after that of another scheduler is released
Device = tuple[str, str, str]


def allocated(claim: Object) -> list[Device]:
    """Driver, pool and name of the devices of a claim."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return [(one["driver"], one["pool"], one["device"]) for one in results]


def claims_of(pod: Object, claims: Sequence[Object]) -> list[Object] | None:
    """The claims of a pod; None if one does not exist."""
    by_name = {claim["metadata"]["name"]: claim for claim in claims}
    made = {one["name"]: one for one in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
    names = [
        entry.get("resourceClaimName") or made.get(entry["name"], {}).get("resourceClaimName", "")
        for entry in pod["spec"].get("resourceClaims") or ()
    ]
    if any(name not in by_name for name in names):
        return None
    return [by_name[name] for name in names]


@dataclass(slots=True)
class DeviceChecker:
    """Checks claims; remembers since when a claim has devices that no bound pod uses.

    Another scheduler may allocate a device before our scheduler hears of it. That a claim of ours has the
    same device is a violation only if it stays so, or if a pod is bound with it.
    """

    idle_since: dict[str, float] = field(default_factory=dict)  # by uid of the claim
    contested_since: dict[str, float] = field(default_factory=dict)  # by sentence

    def check(self, objects: List, now: float, heal_seconds: float) -> Iterator[str]:
        """Yield each violation in the current state."""
        claims, pods = objects("resourceclaims"), objects("pods")
        yield from self._check_allocated_once(claims, pods, now)
        yield from _wrongly_bound(claims, pods, objects("nodes"))
        idle = dict(idle_claims(claims, pods))
        self.idle_since = {uid: self.idle_since.get(uid, now) for uid in idle}
        for uid, since in self.idle_since.items():
            if now - since > LEAK_SECONDS + heal_seconds:
                yield f"{idle[uid]} for {now - since:.0f} s"

    def _check_allocated_once(
        self, claims: Sequence[Object], pods: Sequence[Object], now: float
    ) -> Iterator[str]:
        """No device belongs to two claims."""
        contested = _contested(claims, pods)
        self.contested_since = {one: self.contested_since.get(one, now) for one in contested}
        for sentence, certain in contested.items():
            if certain or now - self.contested_since[sentence] > CONTEST_SECONDS:
                yield sentence


@once_per_listing
def _contested(claims: Sequence[Object], pods: Sequence[Object]) -> Mapping[str, bool]:
    """A sentence for each device of two claims, and whether it is certain that this is wrong."""
    by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
    contested = {}
    for device, holders in _holders(claims).items():
        if len(holders) > 1:
            users = [[by_uid[uid] for uid in _users(claim) if uid in by_uid] for claim in holders]
            bound = all(any(map(_uses_devices, some)) for some in users)
            foreign = any(not is_ours(pod) for some in users for pod in some)
            names = " and to ".join(claim["metadata"]["name"] for claim in holders)
            contested[f"device {'/'.join(device)} is allocated to {names}"] = bound or not foreign
    return contested


@once_per_listing
def _wrongly_bound(
    claims: Sequence[Object], pods: Sequence[Object], nodes: Sequence[Object]
) -> tuple[str, ...]:
    """What is wrong with the claims of our bound pods."""
    by_name = {node["metadata"]["name"]: node for node in nodes}
    found: list[str] = []
    for pod in pods:
        if is_ours(pod) and _uses_devices(pod):
            found += check_bound_pod(pod, claims, by_name.get(pod["spec"]["nodeName"]))
    return tuple(found)


def _holders(claims: Sequence[Object]) -> dict[Device, list[Object]]:
    holders: dict[Device, list[Object]] = {}
    for claim in claims:
        for device in allocated(claim):
            holders.setdefault(device, []).append(claim)
    return holders


def _users(claim: Object) -> list[str]:
    """The uids of the pods that a claim is reserved for."""
    return [one["uid"] for one in (claim.get("status") or {}).get("reservedFor") or ()]


def _uses_devices(pod: Object) -> bool:
    return bool(pod["spec"].get("nodeName")) and phase_of(pod) not in OVER


def check_bound_pod(pod: Object, claims: Sequence[Object], node: Object | None) -> Iterator[str]:
    """A bound pod has its claims, allocated on its node and reserved for it."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    own = claims_of(pod, claims)
    if own is None:
        yield f"pod {name} is bound without a claim"
        return
    for claim in own:
        title, status = claim["metadata"]["name"], claim.get("status") or {}
        if not status.get("allocation"):
            yield f"pod {name} is bound, but claim {title} has no devices"
        elif uid not in _users(claim):
            yield f"pod {name} is bound, but claim {title} is not reserved for it"
        elif node is not None and not _reaches(status["allocation"], node):
            yield f"pod {name} is bound to {node['metadata']['name']}, which cannot use claim {title}"


@once_per_listing
def idle_claims(claims: Sequence[Object], pods: Sequence[Object]) -> tuple[tuple[str, str], ...]:
    """Claims with devices that no bound pod uses: the uid, and a sentence."""
    return tuple(_idle_claims(claims, pods))


def _idle_claims(claims: Sequence[Object], pods: Sequence[Object]) -> Iterator[tuple[str, str]]:
    bound = {pod["metadata"]["uid"] for pod in pods if _uses_devices(pod)}
    for claim in claims:
        if allocated(claim) and not bound.intersection(_users(claim)):
            devices = len(allocated(claim))
            yield (
                claim["metadata"]["uid"],
                f"claim {claim['metadata']['name']} holds {devices} devices that no bound pod uses",
            )


def _reaches(allocation: Object, node: Object) -> bool:
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms")
    if terms is None:
        return True
    labels, fields = node["metadata"].get("labels") or {}, {"metadata.name": node["metadata"]["name"]}
    return any(
        all(_holds(rule, labels) for rule in term.get("matchExpressions") or ())
        and all(_holds(rule, fields) for rule in term.get("matchFields") or ())
        for term in terms
    )


def _holds(rule: Object, values: Object) -> bool:
    assert rule["operator"] == "In", rule
    return values.get(rule["key"]) in rule["values"]
