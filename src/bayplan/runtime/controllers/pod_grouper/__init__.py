"""Makes pod groups for the pods of workloads that name a KAI scheduler.

May import: model, dialects, runtime.core.
"""
