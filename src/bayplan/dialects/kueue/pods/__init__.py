"""Pods of admitted gangs: slots, ungating, failed nodes.

May import: model, dialects.kube, dialects.jobs and the folders named before.
"""
