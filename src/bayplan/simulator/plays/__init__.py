"""Plays that combine several random clusters.

May import: every other folder of simulator.
"""
