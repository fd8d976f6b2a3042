"""What is believed about queues, quota and admitted gangs, and the snapshot admission decides on.

May import: model, placement, state.cluster.
"""
