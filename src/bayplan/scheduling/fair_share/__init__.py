"""Queues that share nodes by quota and weight: order, reclaim, consolidation.

May import: model, placement, state, scheduling.attempt and preemption.
"""
