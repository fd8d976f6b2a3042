"""Admission: admits queued gangs, and keeps the statuses of Workloads and queues.

May import: model, state, scheduling, dialects, runtime.core.
"""
