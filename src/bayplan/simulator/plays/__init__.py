"""Plays that combine several worlds.

May import: every other folder of simulator.
"""
