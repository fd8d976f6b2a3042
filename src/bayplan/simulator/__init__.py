"""The same loop in virtual time: one seed, a cluster in memory, faults, and checkers after every step."""
