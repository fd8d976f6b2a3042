"""State of scheduling: gangs and pods to be bound, the scheduling queue, and the snapshot of a cycle.

May import: model, placement, state.cluster.
"""
