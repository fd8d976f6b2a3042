"""State of admission: queues, quota, usage of admitted gangs, and the snapshot that admission decides on.

May import: model, placement, state.cluster.
"""
