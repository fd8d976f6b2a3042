"""Tables as kubectl prints them.

May import: dialects, api.
"""
