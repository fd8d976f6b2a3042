"""Conditions, messages, events and statuses as Kueue writes them.

May import: model, dialects.kube, names, fields.
"""
