"""The scheduler: binds gangs and pods, binds their volumes, publishes events and PodGroup statuses.

May import: model, state, scheduling, dialects, runtime.core.
"""
