"""Pods, nodes, volumes and disruption budgets as values of the model.

May import: model, fields.
"""
