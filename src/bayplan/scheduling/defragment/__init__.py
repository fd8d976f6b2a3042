"""Whole gangs move so that a gang fits: which of them, where to, in which order, and at what cost.

May import: model, placement, state, scheduling.attempt, scheduling.preemption.
"""
