"""Defaults, server-set fields and validation of each built-in kind.

May import: dialects, api, schema, patching, storage.
"""
