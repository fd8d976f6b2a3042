"""Trees of sub-groups with a constraint and a minimum each: backtracking, packing, elastic parts.

May import: model and every other folder of placement but preemption.
"""
