"""What we believe now: the cluster, folded from changes, and the snapshots taken of it."""
