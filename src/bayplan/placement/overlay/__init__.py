"""What-if copies of nodes, topologies and NUMA zones that a decision changes and rolls back.

May import: model, placement.cluster, numa, filters and domains.
"""
