"""Jobs that name a queue: makes their Workloads, starts and stops them.

May import: model, dialects, runtime.core.
"""
