"""Reading and checking parts of Kueue objects: topology requests, pod sets, assignments, queues.

May import: model, dialects.kube, dialects.jobs, names.
"""
