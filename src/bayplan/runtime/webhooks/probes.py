"""/metrics, /healthz and /readyz for kubelet and Prometheus, served from a thread of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from bayplan.dialects.api import Kind
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.webhooks.http_server import Address, Limits, Server

Check = Callable[[], str]
"""Returns an empty text if healthy, else what is wrong. Called from another thread than the loop's."""

_LIMITS = Limits(body_bytes=1024, seconds=10.0)


def serve_health(
    metrics: Metrics,
    alive: Mapping[str, Check],
    ready: Mapping[str, Check],
    address: Address = Address(),  # noqa: B008
    *,
    with_metrics: bool = True,
) -> Server:
    """Start the server; liveness decides about restarts, readiness about traffic and rollouts.

    As in Kubernetes, a check is skipped by `?exclude=NAME`: standby replicas of a Deployment never lead, and
    a rollout must not wait for that.
    """

    async def metrics_page(_: web.Request) -> web.Response:
        return web.Response(body=metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def healthz(request: web.Request) -> web.Response:
        return _report(alive, request)

    async def readyz(request: web.Request) -> web.Response:
        return _report({**alive, **ready}, request)

    routes = [web.get("/healthz", healthz), web.get("/readyz", readyz)]
    if with_metrics:  # otherwise they are served elsewhere, with authorization
        routes.append(web.get("/metrics", metrics_page))
    return Server("health", routes, address, _LIMITS)


def steps(clock: Clock, last_step: Callable[[], float], seconds_max: float = 60.0) -> Check:
    """The loop must have completed a step recently; `last_step` returns its monotonic time."""

    def check() -> str:
        silent = clock.monotonic() - last_step()
        return f"the loop has not completed a step for {silent:.0f} s" if silent > seconds_max else ""

    return check


def synced(unsynced: Callable[[], Iterable[Kind]]) -> Check:
    """All objects that existed at the start must be known."""

    def check() -> str:
        missing = sorted(kind.plural for kind in unsynced())
        return f"not synced yet: {', '.join(missing)}" if missing else ""

    return check


def leading(clock: Clock, is_leader: Callable[[float], bool]) -> Check:
    """This replica must be the leader."""

    def check() -> str:
        return "" if is_leader(clock.monotonic()) else "another replica leads, or none does"

    return check


def _report(checks: Mapping[str, Check], request: web.Request) -> web.Response:
    excluded = request.query.getall("exclude", [])
    found = {name: _outcome(check) for name, check in checks.items() if name not in excluded}
    lines = [f"[-] {name}: {problem}" if problem else f"[+] {name}" for name, problem in found.items()]
    bad = any(found.values())
    return web.Response(status=503 if bad else 200, text="\n".join([*lines, "failed" if bad else "ok", ""]))


def _outcome(check: Check) -> str:
    try:
        return check()
    except Exception as error:  # a broken check counts as failed
        return f"the check itself failed ({error!r})"
