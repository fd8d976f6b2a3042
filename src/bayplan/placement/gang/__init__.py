"""Placement of whole gangs: first placement, replacement of failed nodes, growth and shrinking.

May import: model and the folders of placement named before.
"""
