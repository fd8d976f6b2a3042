"""`bayplan check-migration`: what of a live cluster works with Bayplan, works differently, or does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from bayplan.backends.remote.backend import connect
from bayplan.cli.config.cluster_access import takes_cluster
from bayplan.cli.config.options import takes_configuration
from bayplan.cli.config.output import echo
from bayplan.cli.migration.object_rules import Carries
from bayplan.cli.migration.survey import MigrationFinding, Survey, sorted_families, survey
from bayplan.cli.render.tables import TableColumn, column_table, say, say_json
from bayplan.configuration.settings import Settings
from bayplan.dialects.errors import ApiError
from bayplan.explanation.text import counted

WORDS = {Carries.SAME: "same", Carries.DIFFERENT: "differently", Carries.NOT: "not at all"}
GUIDES = {
    "Kueue": "docs/migrate/kueue.md",
    "KAI": "docs/migrate/kai.md",
    "Volcano": "docs/migrate/volcano.md",
    "kube-scheduler": "docs/migrate/kube-scheduler.md",
}


@click.command()
@takes_cluster
@click.option("-o", "--output", type=click.Choice(["json"]), help="JSON instead of a table.")
@click.option("--all", "every", is_flag=True, help="List objects that work the same, too.")
@takes_configuration
def check_migration(
    kubeconfig: Path | None, context: str | None, output: str | None, every: bool, settings: Settings
) -> None:
    """Check what of a cluster works with Bayplan: the same, differently, or not at all.

    Reads the objects of Kueue, KAI and Volcano, jobs, and the configurations of Kueue and kube-scheduler.
    Nothing is changed. Exit status 3 if something does not work at all.
    """
    try:
        backend = connect(kubeconfig, context)
        try:
            found = survey(backend, settings)
        finally:
            backend.close(0)
    except ApiError as error:
        raise click.ClickException(str(error)) from None
    if found.unread:
        echo(f"not included, because you may not list them: {', '.join(sorted(set(found.unread)))}", err=True)
    if output == "json":
        say_json(_record(found))
    else:
        shown = [one for one in found.findings if every or one.carries is not Carries.SAME]
        if shown:
            say([*column_table(COLUMNS, shown, wide=True), ""])
        say(_totals(found))
    if any(one.carries is Carries.NOT for one in found.findings):
        raise click.exceptions.Exit(3)


COLUMNS: tuple[TableColumn[MigrationFinding], ...] = (
    TableColumn("FROM", lambda one: one.family),
    TableColumn("KIND", lambda one: one.kind),
    TableColumn("NAMESPACE", lambda one: one.namespace),
    TableColumn("NAME", lambda one: one.name),
    TableColumn("WORKS", lambda one: WORDS[one.carries]),
    TableColumn("REMARK", lambda one: "; ".join(one.remarks)),
)


def _totals(found: Survey) -> Iterator[str]:
    for family in sorted_families(found.findings):
        counts = Counter(one.carries for one in found.findings if one.family == family)
        parts = ", ".join(f"{counts[one]} {WORDS[one]}" for one in Carries)
        guide = f"; see {GUIDES[family]}" if family in GUIDES else ""
        yield f"{family}: {counted(sum(counts.values()), 'object')} ({parts}){guide}"
    if not found.findings:
        yield "no objects of Kueue, KAI or Volcano, no jobs, and no configuration of a scheduler were found"


def _record(found: Survey) -> dict[str, object]:
    return {
        "objects": [{**asdict(one), "carries": str(one.carries)} for one in found.findings],
        "total": {str(carries): sum(one.carries is carries for one in found.findings) for carries in Carries},
        "unread": sorted(set(found.unread)),
    }
