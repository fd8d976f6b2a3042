"""What is believed about nodes, topologies and NUMA zones, and the ledger of what is used.

May import: model, placement.
"""
