"""Nodes for concrete pods that may differ from each other, batch by batch.

May import: model and the folders of placement named before.
"""
