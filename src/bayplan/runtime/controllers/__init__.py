"""The controllers that the loop runs: scheduler, admission, jobs, ungating, node health and others.

May import: model, state, scheduling, dialects, runtime.core.
"""
