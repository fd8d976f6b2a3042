"""NUMA zones of a node: reports, alignment of a pod, capacity and scores by zone.

May import: model, placement.cluster.
"""
