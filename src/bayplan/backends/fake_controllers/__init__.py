"""Controllers, kubelets and a scheduler that stand in for a cluster's own in memory.

May import: dialects, backends.embedded.
"""
