"""The gang scheduling API: validation, defaulting and conversion of each version.

May import: model, fields, decode.
"""
