"""Metrics and logs.

May import: model, state, dialects, runtime.core.
"""
