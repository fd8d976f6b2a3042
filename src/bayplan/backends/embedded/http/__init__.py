"""The HTTP API server that kubectl talks to.

May import: dialects and every other folder of backends.embedded.
"""
