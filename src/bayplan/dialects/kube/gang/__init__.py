"""Objects and watch events of the gang scheduling API.

May import: model, fields, decode, gang_api.
"""
