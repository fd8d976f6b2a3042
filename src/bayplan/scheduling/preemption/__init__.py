"""Which pods are preempted so that a gang fits: search, trial, reprieve.

May import: model, placement, state, scheduling.attempt.
"""
