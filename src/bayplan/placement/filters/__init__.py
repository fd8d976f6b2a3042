"""Filters and scores of single pods: affinity, topology spread, volumes, resources.

May import: model, placement.cluster and numa.
"""
