"""The complete search: finds a placement whenever one exists, within a limit of work.

May import: model, placement.cluster, numa, filters and domains.
"""
