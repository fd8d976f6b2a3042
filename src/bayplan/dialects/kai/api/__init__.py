"""Objects of the KAI scheduler's API: pod groups, queues, topologies, segments, and their rules.

May import: model, dialects.kube, dialects.jobs.
"""
