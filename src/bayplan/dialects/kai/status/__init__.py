"""Status, messages and advice on pod groups and queues.

May import: model, dialects.kube, api.
"""
