"""State of nodes, topologies and NUMA zones, and the ledger of capacity in use.

May import: model, placement.
"""
