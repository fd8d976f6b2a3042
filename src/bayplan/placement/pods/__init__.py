"""Assignment of nodes to individual pods, one batch of identical pods at a time.

May import: model and the folders of placement named before.
"""
