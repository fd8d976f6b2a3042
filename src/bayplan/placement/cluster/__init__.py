"""Nodes as arrays: the topology tree, capacity, counters of pods, and the snapshot decisions are made on.

May import: model.
"""
