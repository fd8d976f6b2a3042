"""What `bayplan run` tells of its decisions and of contained errors: the events in its log."""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.explanation.reasons import few_words
from bayplan.model.gang import Ref
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.clock import Clock
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import Controller
from bayplan.runtime.core.journal import FileJournal, Journal
from bayplan.runtime.telemetry import logs
from bayplan.runtime.telemetry.decision_log import GangIdentity, PacedDecisionLog
from bayplan.runtime.telemetry.metrics import Metrics


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


def containment(metrics: Metrics, clock: Clock) -> Containment:
    """Contains the errors of one object, gang or thread: they are logged with a traceback, and counted."""
    log = logs.logger("containment")

    def report(sentence: str, error: BaseException, **facts: str) -> None:
        log.error(sentence, exc_info=error, **facts)

    def slow(seconds: float, where: str, kind: str, name: str) -> None:
        log.warning(f"{where} of {kind} {name} took {seconds:.1f} s".replace("  ", " "))

    return Containment(report, metrics.contained, clock, slow)
