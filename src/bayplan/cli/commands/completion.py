"""`bayplan completion`: the script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from bayplan.cli.config.output import echo

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print a script that completes commands and options in a shell.

    \b
    bash: bayplan completion bash > ~/.local/share/bash-completion/completions/bayplan
    zsh:  bayplan completion zsh > "${fpath[1]}/_bayplan"
    fish: bayplan completion fish > ~/.config/fish/completions/bayplan.fish
    """
    root = click.get_current_context().find_root()
    found = get_completion_class(shell)
    assert found is not None, shell
    echo(found(root.command, {}, "bayplan", "_BAYPLAN_COMPLETE").source())
