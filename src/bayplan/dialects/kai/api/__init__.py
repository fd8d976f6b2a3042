"""The API objects of the KAI scheduler: PodGroups, Queues, Topologies, segments, and their validation.

May import: model, dialects.kube, dialects.jobs.
"""
