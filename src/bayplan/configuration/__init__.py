"""The configuration file: its fields, their defaults, and the import of a Kueue configuration.

May import: model, state, dialects and runtime (for their defaults).
"""
