"""The queueing family: Workload, Topology, topology annotations, assignments and their sentences."""
