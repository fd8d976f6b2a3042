"""Validation, defaulting and conversion of the gang scheduling API, version by version.

May import: model, fields, decode.
"""
