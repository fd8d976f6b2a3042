"""Which pod group the pods of a workload form, by kind of owner.

May import: model, dialects.kube, dialects.jobs, api.
"""
