"""Tables, drawings and sentences for a terminal.

May import: any other package, cli.config.
"""
