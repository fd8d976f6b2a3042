"""`python -m bayplan` is the `bayplan` command."""

from bayplan.cli.main import main

main(prog_name="bayplan")
