"""What `bayplan place` reads, and its report.

May import: any other package, cli.config and render.
"""
