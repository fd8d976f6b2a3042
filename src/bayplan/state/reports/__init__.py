"""Counters and summaries of the state for people, statuses and metrics.

May import: model, placement and the other folders of state.
"""
