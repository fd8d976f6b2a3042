"""Failed nodes: finds the gangs that run there and asks for a replacement or an eviction.

May import: model, dialects, runtime.core.
"""
