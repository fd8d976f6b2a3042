"""Devices by claim: which devices a node can give to the claims of a pod, and to how many pods."""
