"""What is believed about gangs and pods to be bound: their queue, their state, and the snapshot.

May import: model, placement, state.cluster.
"""
