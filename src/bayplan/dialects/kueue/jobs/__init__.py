"""Reconciliation of queued jobs: their Workloads, start, suspension and end.

May import: model, dialects.kube, dialects.jobs and the folders named before.
"""
