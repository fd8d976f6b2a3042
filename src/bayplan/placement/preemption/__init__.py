"""Candidate victims as arrays: what their removal frees on nodes and in NUMA zones.

May import: model and every other folder of placement but subgroups.
"""
