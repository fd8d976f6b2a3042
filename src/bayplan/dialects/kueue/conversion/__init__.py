"""Conversion between v1beta1 and v1beta2.

May import: dialects.kube, names, fields.
"""
