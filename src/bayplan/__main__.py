"""`python -m bayplan` is the `bayplan` command."""

from bayplan.cli.commands.main import main

main(prog_name="bayplan")
