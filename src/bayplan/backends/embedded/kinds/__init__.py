"""What is special about each built-in kind.

May import: dialects, api, schema, patching, storage.
"""
