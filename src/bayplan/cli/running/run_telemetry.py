"""What `bayplan run` tells of its decisions and of contained errors: events in its log, and spans."""

from __future__ import annotations

from collections.abc import Sequence

import click

from bayplan import __version__
from bayplan.explanation.reasons import few_words
from bayplan.model.gang import Ref
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.journal import FileJournal, Journal
from bayplan.runtime.core.spans import Spans
from bayplan.runtime.process.shutdown import ShutdownStack
from bayplan.runtime.telemetry import logs
from bayplan.runtime.telemetry.decision_log import GangIdentity, PacedDecisionLog
from bayplan.runtime.telemetry.metrics import Metrics
from bayplan.runtime.telemetry.tracing import OpenTelemetrySpans, TracingUnavailable, provider


def decision_log(controllers: Sequence[Controller], journal: Journal, *, shadow: bool) -> PacedDecisionLog:
    """The log of decisions; in shadow mode each event says that nothing was written."""
    schedulers = [one for one in controllers if isinstance(one, SchedulerController)]

    def identity(gang: Ref) -> GangIdentity:
        specs = (one.state.spec_of(gang) for one in schedulers)
        spec = next((one for one in specs if one is not None), None)
        return GangIdentity(spec.queue, spec.uid) if spec is not None else GangIdentity()

    log = logs.logger("decisions", shadow=True) if shadow else logs.logger("decisions")
    entry = (lambda: journal.sequence) if isinstance(journal, FileJournal) else (lambda: 0)
    return PacedDecisionLog(log.info, identity, few_words, entry)


def open_spans(shutdown: ShutdownStack) -> Spans:
    """Spans that are exported until the end."""
    try:
        spans = OpenTelemetrySpans(provider(__version__))
    except TracingUnavailable as error:
        raise click.ClickException(str(error)) from None
    shutdown.opened("the spans", spans.close)
    return spans


def containment(metrics: Metrics, clock: Clock) -> Containment:
    """Contains the errors of one object, gang or thread: they are logged with a traceback, and counted."""
    log = logs.logger("containment")

    def report(sentence: str, error: BaseException, **facts: str) -> None:
        log.error(sentence, exc_info=error, **facts)

    def slow(seconds: float, where: str, kind: str, name: str) -> None:
        log.warning(f"{where} of {kind} {name} took {seconds:.1f} s".replace("  ", " "))

    return Containment(report, metrics.contained, clock, slow)
