"""The `bayplan` command line."""
