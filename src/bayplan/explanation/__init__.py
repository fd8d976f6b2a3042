"""Decisions in sentences for people: why a gang is pending, what would help, and amounts with their units.

May import: model, placement and dialects.
"""
