"""Placement of a pod set by counts: roll up capacity, select domains, descend to hosts.

May import: model, placement.cluster and numa.
"""
