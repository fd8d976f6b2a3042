"""Readers of recorded workloads and of cluster descriptions, all giving the same values."""
