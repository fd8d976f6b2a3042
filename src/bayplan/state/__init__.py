"""The scheduler's view of the cluster, folded from changes, and the snapshots that decisions are made on."""
