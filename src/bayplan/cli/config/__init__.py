"""Settings, and reading files.

May import: any package but the other folders of cli.
"""
