"""`bayplan version`: the version, the Python it runs on, and which extras are installed."""

from __future__ import annotations

import platform
from importlib.util import find_spec

import click

from bayplan import __version__
from bayplan.cli.config.output import echo, echo_json

EXTRAS = {
    "exact": "highspy",
    "cel": "cel_expr_python",
    "sim": "matplotlib",
    "tracing": "opentelemetry",
}
"""The extras of the package, and the library that each of them adds."""


@click.command()
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="The format of the output.",
)  # fmt: skip
def version(output: str) -> None:
    """Show the version of Bayplan, of Python, and the installed extras."""
    extras = [name for name, library in EXTRAS.items() if find_spec(library)]
    found = {
        "version": __version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "extras": extras,
    }
    if output == "json":
        echo_json(found)
        return
    echo(f"bayplan {__version__}")
    echo(f"python {found['python']}, {found['platform']}")
    echo(f"extras: {', '.join(extras) or 'none'}")
