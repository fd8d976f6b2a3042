"""Structural schemas and CEL rules of custom resources.

May import: dialects, api.
"""
