"""JSON, merge, strategic-merge and apply patches.

May import: dialects, api.
"""
