"""Decode and validate parts of Kueue objects: topology requests, pod sets, assignments, queues.

May import: model, dialects.kube, dialects.jobs, names.
"""
