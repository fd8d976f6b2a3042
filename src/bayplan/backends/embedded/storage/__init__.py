"""The store: writes with preconditions, watches, deletion, owner garbage collection.

May import: dialects, api, schema, patching.
"""
