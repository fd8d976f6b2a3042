"""Simulated controllers, kubelets and a scheduler for a cluster in memory.

May import: dialects, backends.embedded.
"""
