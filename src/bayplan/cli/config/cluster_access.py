"""`--kubeconfig` and `--context`: which cluster a command reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click


def takes_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets `kubeconfig` and `context`."""
    context = click.option("--context", help="A context of the kubeconfig (default: its current one).")
    return click.option(
        "--kubeconfig",
        type=click.Path(path_type=Path),
        help="Default: KUBECONFIG, ~/.kube/config, or the service account of the pod.",
    )(context(command))
