"""Jobs that name a queue: their Workloads, how they start, stop and end.

May import: model, dialects.kube, dialects.jobs and the folders named before.
"""
