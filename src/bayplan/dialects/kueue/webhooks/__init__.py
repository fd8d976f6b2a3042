"""Defaulting and validation of Kueue objects and of the jobs that name a queue.

May import: model, dialects.kube, dialects.jobs, names, fields.
"""
