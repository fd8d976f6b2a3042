"""Placement of one pod set by counting: roll up the capacity, select domains, descend to hosts.

May import: model, placement.cluster and numa.
"""
